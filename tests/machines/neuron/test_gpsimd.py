"""The emulated GpSimd engine: each check refuses a planted fault and accepts its twin."""

import json
import os
import platform
import sys
import time
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from gpsimdkernels import SHAPE, X, alone, body, library, one_of_many, refuse, right
from hypothesis import given

from kernels import optional
from kernels.machines import cache
from kernels.machines.neuron import gpsimd
from kernels.machines.neuron.gpsimd import compiler, emulator

pytestmark = pytest.mark.skipif(
    not (optional.available("g++") and sys.platform == "linux"),
    reason="needs g++ on Linux; on Debian and Ubuntu: sudo apt install g++",
)


@given(n=st.integers(1, 300), cores=st.integers(1, 10), seed=st.integers(0, 99))
def test_the_right_one_passes_in_every_order(n, cores, seed):
    x = np.linspace(-1, 1, n, dtype=np.float32)
    order = np.random.default_rng(seed).permutation(cores)
    run = gpsimd.run(right(), "twice", x, cores=cores, order=order)
    assert run.findings == () and np.array_equal(run.result, 2 * x)
    assert (run.written == 1).all() and sum(t.loaded_bytes for t in run.traffic) == 4 * n
    assert sum(t.stored_bytes for t in run.traffic) == 4 * n


# Each: a line of `right`, what it becomes, the kind of the finding, and words of the message.
DATA = Path(__file__).with_name("data")
FAULTS = json.loads((DATA / "gpsimd_faults.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refused(fault):
    _, kind, words = FAULTS[fault]
    everything = [lines for lines, _, _ in FAULTS.values()]
    sources, name = one_of_many(everything, list(FAULTS).index(fault))
    assert refuse(sources, words, name=name).kind == kind


TWINS = json.loads((DATA / "gpsimd_twins.json").read_text())


@pytest.mark.parametrize("place", range(len(TWINS)))
def test_a_right_twin_passes(place):
    sources, name = one_of_many(TWINS, place)
    for order in (None, range(7, -1, -1)):
        assert np.array_equal(gpsimd.run(sources, name, X, order=order).result, 2 * X)


def test_a_race_is_found_in_either_order():
    """Core 0 reads what core 7: writes, before or after it does."""
    late = {
        "store": "to.tcm_to_tensor<float>(t, begin, share);"
        " if (!id) to.tensor_to_tcm<float>(t, 95, 1);"
    }
    refuse(right(**late), "core 0: tensor_to_tcm reads element [1, 47]", order=range(7, -1, -1))
    found = gpsimd.run(right(**late), "twice", X, checks=False).findings
    assert [f.kind for f in found] == ["unset", "race"]
    assert (
        "core 7: tcm_to_tensor writes element [1, 47] of the result, which core 0 has read"
        in str(found[1])
    )


def test_the_message_names_the_line():
    sources = right(store="\n\n\nto.tcm_to_tensor<float>(t, begin + 1, end - begin);\n")
    finding = refuse(sources, order=range(7, -1, -1))
    if finding.source is None:
        pytest.skip("needs addr2line: on Debian and Ubuntu: sudo apt install binutils")
    assert finding.source == f"source0.cpp:{1 + sources[0].split('to.tcm_to')[0].count(chr(10))}"


CRASHES = {
    "*(volatile int*)0x7000000 = 1;": "core 0: crashed at the address 0x7000000",
    "volatile int zero = 0; t[0] = 7 / zero;": "core 0: divides an integer by zero",
    "abort();": "core 0: ended itself",
    "assert(n == 1);": "core 0: ended itself",
    "exit(5);": "core 0: ended with exit status 5",
    "raise(9);": "core 0: was ended by signal 9",
}

if platform.machine() != "x86_64":  # where such a division gives 0
    del CRASHES["volatile int zero = 0; t[0] = 7 / zero;"]


@pytest.mark.parametrize("line", CRASHES)
def test_a_crash_is_told_and_the_caller_lives(line):
    every = [{"compute": each} for each in CRASHES]
    sources, name = one_of_many(every, list(CRASHES).index(line))
    assert refuse(sources, CRASHES[line], name=name).kind == "crash"


def test_an_endless_recursion_is_told():
    code = "torch::Tensor out = get_dst_tensor(); return deep(1) > 0 ? out : x;"
    deep = "int deep(volatile int n) { volatile char page[4096]; page[n] = 1; "
    sources = alone(code)
    sources[0] = deep + "return deep(n) + page[n]; }\n" + sources[0]
    assert refuse(sources, "core 0: crashed").kind == "crash"


def test_an_endless_loop_ends(monkeypatch):
    monkeypatch.setattr(emulator, "SECONDS", 1)
    start = time.monotonic()
    found = refuse(right(compute="for (volatile int i = 0; ; ++i) {}"), "not ended after 1 seconds")
    assert found.kind == "time" and time.monotonic() - start < 20


def test_each_core_has_its_own_globals():
    """On the machine it has; a counter that one core sets is not seen by the next."""
    sources = right(compute="for (size_t i = 0; i < end - begin; ++i) t[i] *= ++calls ? 2 : 0;")
    sources[0] = sources[0].replace(
        "torch::Tensor twice(", "int calls = -1000;\ntorch::Tensor twice("
    )
    assert np.array_equal(gpsimd.run(sources, "twice", X).result, 2 * X)


def test_without_checks_it_goes_on():
    """And says what it met: here every core but the first writes an element of the one before."""
    run = gpsimd.run(right(begin="id * (share - 1)"), "twice", X, checks=False)
    kinds = [f.kind for f in run.findings]  # one for each core that met it
    assert sorted(kinds) == ["twice"] * 7 + ["unwritten"]
    assert (run.written == 2).sum() == 7 and (run.written == 0).sum() == 7
    assert np.isnan(run.result[run.written == 0]).all()
    assert np.array_equal(run.result[run.written > 0], 2 * X[run.written > 0])


def test_without_checks_one_core_may_crash():
    """The others run on, and the result holds what they wrote."""
    null = "if (id == 3) { tcm_free(t); t = nullptr; }"
    run = gpsimd.run(right(load=null + body.__defaults__[4]), "twice", X, checks=False)
    found = {(f.kind, f.core) for f in run.findings}
    assert found == {("null", 3), ("crash", 3), ("unwritten", None)}
    assert (run.written == 0).sum() == 12 and (run.written == 1).sum() == 84


def test_traffic_is_counted_by_core():
    run = gpsimd.run(right(), "twice", X, cores=4, order=(2, 0, 3, 1))
    assert [t.core for t in run.traffic] == [0, 1, 2, 3]
    assert {(t.loads, t.loaded_bytes, t.stores, t.stored_bytes) for t in run.traffic} == {
        (1, 96, 1, 96)
    }
    assert {t.tcm_bytes for t in run.traffic} == {96}


def test_many_buffers_one_after_another():
    """The addresses of freed buffers come again, and stay apart from those that live."""
    code = (DATA / "many_buffers.cpp").read_text()
    x = np.arange(3000, dtype=np.float32)
    assert np.array_equal(gpsimd.run(alone(code), "twice", x, cores=1).result, 2 * x)


ELEMENTS = (DATA / "elements.cpp").read_text()


def test_the_documents_accessor_on_one_core():
    run = gpsimd.run(alone(ELEMENTS.format(more="")), "twice", X, cores=1)
    assert np.array_equal(run.result, 2 * X)
    words = "core 0: accessor takes index 48 of dimension 1 of input 0: float32[2, 48]"
    refuse(alone(ELEMENTS.format(more=" + 1")), words, cores=1)


def test_an_input_is_not_written():
    code = "auto a = x.tcm_accessor(); a.tcm_to_tensor<float>((float*)0, 0, 1); return x;"
    sources = alone(code)
    sources[0] = sources[0].replace("const torch::Tensor& x", "torch::Tensor x")
    refuse(sources, "core 0: tcm_to_tensor writes to input 0", cores=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sources", "function", "words"),
    [
        ([right()[0], library("thrice")], "thrice", "thrice"),
        (right(compute="t[0] = undeclared;"), "twice", "source0.cpp:.*undeclared"),
        (right(store="in.tcm_to_tensor<float>(t, begin, share);"), "twice", "read-only"),
        (right(compute="torch::exp(x);"), "twice", "no operations on whole tensors"),
        ([right()[0], '#include "mine.h"\n' + SHAPE], "twice", "mine.h: No such file"),
    ],
)
def test_what_does_not_compile_is_told_in_plain_words(sources, function, words):
    with pytest.raises(gpsimd.GpSimdCompileError, match=words) as caught:
        gpsimd.run(sources, function, X)
    assert "/" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_wrong_number_of_tensors():
    with pytest.raises(gpsimd.GpSimdError, match="the shape function takes 1 tensors, and 2 are"):
        gpsimd.run(right(), "twice", X, X)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "says"), [("abort();", "SIGABRT"), ("for (volatile int i = 0; ; ++i) {}", "SIGALRM")]
)
def test_a_shape_function_that_crashes_or_does_not_end(wrong, says, monkeypatch):
    monkeypatch.setattr(emulator, "SECONDS", 1)
    shape = SHAPE.replace("return torch::empty", f"{wrong} return torch::empty")
    refuse([right()[0], "#include <stdlib.h>\n" + shape], f"before any core ran: {says}")


def test_a_shape_function_has_no_data():
    code = "auto a = x.accessor<float, 2>(); float v = a[0][0]; return torch::full(x.sizes(), v,"
    sources = [right()[0], SHAPE.replace("return torch::empty(x.sizes(),", code)]
    refuse(sources, "accessor in a shape function")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (dict(cores=0), "cores is 0"),
        (dict(cores=65), "cores is 65; accepted: at most 64"),
        (dict(order=[0, 0, 1]), r"order is \[0, 0, 1\]; accepted: each of 0 to 7 once"),
        (dict(tcm_bytes=-1), "tcm_bytes is -1"),
        (dict(array=X.astype(np.float64)), r"arrays\[0\].dtype is 'float64'"),
        (dict(array=np.zeros((1,) * 9, np.float32)), r"arrays\[0\].shape .* at most 8 dimensions"),
        (dict(array=np.zeros(65536, np.float32)), "of at most 65535"),
        (dict(function="thrice"), "function is 'thrice'; accepted: twice"),
        (dict(sources=[]), "sources is empty"),
        (dict(sources=[3]), r"sources\[0\] is a int"),
        (dict(sources=[Path("gone.cpp")]), "the path gone.cpp"),
        (dict(sources=right()[:1]), "sources is without a library; accepted: NEURON_LIBRARY"),
        (dict(sources=library(*"abcdefghijk")), "a library of 11 kernels; accepted: at most 10"),
    ],
)
def test_bad_arguments_are_named(call, words):
    sources, function = call.pop("sources", right()), call.pop("function", "twice")
    with pytest.raises(ValueError, match=words):
        gpsimd.run(sources, function, call.pop("array", X), **call)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", emulator.DTYPES)
def test_every_dtype(dtype):
    kind = dict(zip(emulator.DTYPES, ("Float", "Int", "Char", "Long", "Short", "Byte")))[dtype]
    cpp = {"float32": "float"}.get(dtype, f"{dtype}_t")
    sources = [text.replace("kFloat", f"k{kind}").replace("float", cpp) for text in right()]
    x = np.arange(96).astype(dtype)
    result = gpsimd.run(sources, "twice", x).result
    assert result.dtype == dtype and np.array_equal(result, (2 * x).astype(dtype))


def test_what_it_prints_is_kept():
    sources = right(compute='printf("core %u\\n", get_cpu_id()); t[0] = 1;')
    run = gpsimd.run(sources, "twice", X, order=range(7, -1, -1))
    assert run.printed.split() == " ".join(f"core {c}" for c in range(7, -1, -1)).split()


class TestCall:
    def test_one_core_knows_no_limits(self):
        """Rung 1 is arithmetic: no pool to exhaust, no leak, no other core."""
        sources = right(allocate="(float*)tcm_malloc(20000)", free="")
        assert np.array_equal(gpsimd.call(sources, "twice", X, interpret=True), 2 * X)
        with pytest.raises(gpsimd.GpSimdError, match="ended itself"):
            gpsimd.call(sources, "twice", X, interpret=gpsimd.GpSimdParams())

    def test_the_seed_permutes_the_cores(self):
        turns = [gpsimd.GpSimdParams(order=seed).turns() for seed in (0, 0, 1)]
        assert turns[0] == turns[1] != turns[2] and all(sorted(t) == list(range(8)) for t in turns)

    def test_without_a_machine_interpret_false_says_so(self):
        with pytest.raises(ValueError, match="interpret is False; accepted: None or True here"):
            gpsimd.call(right(), "twice", X, interpret=False)
        with pytest.raises(ValueError, match="interpret is 'yes'"):
            gpsimd.call(right(), "twice", X, interpret="yes")

    def test_with_a_machine_none_takes_it(self, monkeypatch):
        monkeypatch.setattr(gpsimd, "custom_op", lambda: object())
        on_device = lambda x: ("device", x)
        for interpret in (None, False):
            found = gpsimd.call(right(), "twice", X, interpret=interpret, on_device=on_device)
            assert found == ("device", X)
        result = gpsimd.call(right(), "twice", X, interpret=True, on_device=on_device)
        assert np.array_equal(result, 2 * X)


class TestLower:
    def test_says_how_far_it_got(self):
        function = lambda x, *, interpret: gpsimd.call(right(), "twice", x, interpret=interpret)
        assert "AWS's build is not installed" in gpsimd.lower(function, X)
        with pytest.raises(gpsimd.GpSimdCompileError, match="no custom operator"):
            gpsimd.lower(lambda x, *, interpret: x, X)

    def test_a_warning_is_an_error(self):
        sources = right(free="tcm_free(t); int unused = 3;")
        assert np.array_equal(gpsimd.run(sources, "twice", X).result, 2 * X)
        function = lambda x, *, interpret: gpsimd.call(sources, "twice", x, interpret=interpret)
        with pytest.raises(gpsimd.GpSimdCompileError, match="unused variable"):
            gpsimd.lower(function, X)


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    compiler.gpp.cache_clear()
    compiler._version.cache_clear()
    try:
        with pytest.raises(optional.MissingPackage, match="sudo apt install g\\+\\+"):
            gpsimd.run(right(), "twice", X)
    finally:
        compiler.gpp.cache_clear()


def test_what_was_compiled_is_kept_and_one_file_may_hold_both(monkeypatch):
    sources = "".join(right())
    assert np.array_equal(gpsimd.run(sources, "twice", X).result, 2 * X)
    monkeypatch.setattr(compiler, "_gpp", lambda *_: pytest.fail("compiled again"))
    gpsimd.run(sources, "twice", X)


@pytest.mark.slow
def test_the_cache_stays_small(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    monkeypatch.setattr(compiler, "KEPT", 4)
    for number in range(3):
        gpsimd.run(right(guard=f"if (!t) exit({number});"), "twice", X)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 4 and sum(path.stat().st_size for path in kept) < 3e6


def test_a_damaged_program_is_told_and_made_anew(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    make = lambda path: path.write_bytes(b"whole")
    compiler._kept("program", make).write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="program is made anew: its checksum"):
        assert compiler._kept("program", make).read_bytes().startswith(b"whole")
