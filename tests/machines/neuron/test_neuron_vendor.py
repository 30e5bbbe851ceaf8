"""The vendor's package is used where it is real, and nothing else of that name is."""

import importlib
import importlib.util
import sys
import types

import numpy as np
import pytest
from close import assert_close
from commands import run

from kernels import ladder, neuron
from kernels.giou import giou, nki, reference
from kernels.machines.neuron import NeuronError, api, vendor
from kernels.machines.optional import MissingPackage
from kernels.proof.backends.nki import NKI
from kernels.proof.catalog import OPERATORS

X = np.arange(12, dtype=np.float32).reshape(3, 4)
KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

def helper(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    helper(tile)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""

OLD_SCRIPT = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.baremetal
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2.0)
    return out

assert doubled(np.ones((128, 8), np.float32)).sum() == 2048
"""


@pytest.fixture(autouse=True)
def as_it_was():
    """No test leaves a module of the vendor's names behind."""
    before = dict(sys.modules)
    vendor.find.cache_clear()
    yield
    for name in set(sys.modules) - set(before):
        if name.split(".")[0] in ("nki", "neuronxcc", "a_kernel", "old_kernel"):
            del sys.modules[name]
    sys.modules.update(before)
    vendor.find.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_kernel.py").write_text(KERNEL)
    return tmp_path


class Vendors:
    """What a vendor's decorator returns."""

    def __init__(self, func):
        self.func = func

    def __call__(self, *arguments):
        return "ran on the device"


Vendors.__module__ = "nki.compiler"


def pretend(monkeypatch, simulate=None):
    """A package that looks like the vendor's, and in which no instruction works."""
    nki, language, isa = (types.ModuleType(f"nki{end}") for end in ("", ".language", ".isa"))
    nki.jit = Vendors
    nki.simulate = simulate or (lambda kernel: lambda *arguments: X)
    nki.language, nki.isa = language, isa
    for module in (nki, language, isa):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    vendor.find.cache_clear()


@pytest.fixture
def decorated(folder, monkeypatch):
    """A kernel that the package decorated."""
    pretend(monkeypatch)
    return importlib.import_module("a_kernel").kernel


def test_here_nothing_is_taken_for_the_vendor_s_package(folder):
    """A folder of that name is a namespace package to Python; and a placeholder may raise."""
    if vendor.find("nki"):
        pytest.skip("nki is installed")
    (folder / "nki").mkdir()
    (folder / "nki" / "notes.txt").touch()
    (folder / "neuronxcc").mkdir()
    (folder / "neuronxcc" / "__init__.py").write_text("raise RuntimeError('WRONG PACKAGE')")
    sys.modules.pop("neuronxcc", None)
    vendor.find.cache_clear()
    assert vendor.find("nki") is None
    assert vendor.find("neuronxcc") is None and "neuronxcc" not in sys.modules


def test_no_device_without_the_package_and_how_to_get_it(folder):
    if vendor.find("nki") or vendor.find("neuronxcc"):
        pytest.skip("a Neuron package is installed")
    boxes = np.zeros((1, 1, 4), np.float32)
    for name, module in (("nki", "nki"), ("neuronxcc", "neuronxcc.nki")):
        with pytest.raises(MissingPackage, match=f"^{module} is needed .* placeholder") as caught:
            giou(boxes, boxes, implementation=name, interpret=False)
        assert "awsdocs-neuron" in str(caught.value)


def test_installed_for_a_while(folder):
    if vendor.find("nki"):
        pytest.skip("nki is installed")
    with pytest.raises(ImportError):
        importlib.import_module("a_kernel")
    with neuron.install():
        kernel = importlib.import_module("a_kernel").kernel
        (folder / "old_kernel.py").write_text(OLD_SCRIPT)
        old = importlib.import_module("old_kernel").doubled
    assert np.array_equal(neuron.simulate(kernel, X), X + 1)
    assert np.array_equal(neuron.simulate(old, X), 2 * X)
    with pytest.raises(KeyError), neuron.install():
        raise KeyError
    assert not {"nki", "nki.language", "neuronxcc", "neuronxcc.nki"} & set(sys.modules)
    assert neuron.lint(kernel) == neuron.lint(old) == []


SCRIPT = """
import sys
import numpy as np, torch
from kernels import kernel, nl, nki  # its neighbour

@nki.jit
def large(x):
    nl.ndarray((128, 60_000), nl.float32, buffer=nl.sbuf)

x = torch.arange(12.0).reshape(3, 4)
assert torch.equal(kernel(x), x + 1) and type(kernel(x.numpy())) is np.ndarray
print(sys.argv[1:], flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "status", "says"),
    [
        (SCRIPT + "sys.exit(5)", ("--", "--batch", "4"), 5, "['--batch', '4']"),
        (OLD_SCRIPT, (), 0, ""),
        (SCRIPT + "large(x)", ("-c", "trn2"), 1, "(script.py:8)"),
        ("import torch_xla", (), 1, "No module named 'torch_xla' (script.py:1)"),
        ("bytearray(20 << 30)", (), 1, "it ran out of memory, of which its process may have 8.0"),
        ("import os\nos.kill(os.getpid(), 9)", (), 1, "script.py died of SIGKILL"),
        ("while True: pass", ("--timeout", "1"), 1, "script.py had not ended after 1 s"),
        ("", ("--chip", "inf3"), 2, "--chip is 'inf3'; accepted: inf2"),
    ],
)
def test_a_script_as_it_is(folder, text, options, status, says, capfd):
    if vendor.find("nki"):
        pytest.skip("nki is installed")
    (own := folder / "own").mkdir()
    (folder / "a_kernel.py").rename(own / "kernels.py")
    (own / "script.py").write_text(text)
    done = run("nki", own / "script.py", *options)
    said = done.output + "".join(capfd.readouterr())  # of the command, and of the script
    assert (done.exit_code, "Traceback" in said) == (status, False) and says in said, said


def test_with_the_vendor_s_package_its_names_are_its_own(monkeypatch):
    pretend(monkeypatch)
    with pytest.raises(NeuronError, match="keeps its name"), neuron.install():
        pass


def test_a_kernel_runs_on_the_device_where_there_is_one(decorated, monkeypatch):
    def function(x, *, interpret):
        return neuron.run(decorated, x, interpret=interpret)

    assert isinstance(decorated, Vendors) and neuron.lint(decorated) == []
    assert np.array_equal(neuron.simulate(decorated, X), X + 1)
    assert neuron.estimate(decorated, X).engines["Vector"].instructions == 1
    assert neuron.run(decorated, X, interpret=False) == "ran on the device"
    assert np.array_equal(neuron.run(decorated, X), X + 1)
    assert "run in nki.simulate: there is no Neuron device" in neuron.lower(function, X)
    monkeypatch.setattr(vendor, "device", lambda: True)
    assert neuron.run(decorated, X) == "ran on the device" and neuron.lower(function, X) == ""
    assert np.array_equal(neuron.run(decorated, X, interpret=True), X + 1)


def test_the_vendor_s_last_words_reach_the_reader(folder, monkeypatch):
    def simulate(kernel):
        def fails(*arguments):
            raise AssertionError("\n  partition dimension 256 exceeds maximum 128\n  in a file")

        return fails

    pretend(monkeypatch, simulate)
    kernel = importlib.import_module("a_kernel").kernel
    says = "^nki: AssertionError: partition dimension 256 exceeds maximum 128$"
    with pytest.raises(NeuronError, match=says):
        neuron.lower(lambda x, *, interpret: neuron.run(kernel, x, interpret=interpret), X)


def test_zeros_from_a_device_are_refused(monkeypatch):
    """What neuronxcc.nki.baremetal returned on SDK 2.32."""
    operator = OPERATORS["giou"]
    zeros = lambda p, t, *, interpret: np.zeros(p.shape[:2], np.float32)
    subject = ladder.Subject(operator, "zeros", NKI, zeros)
    monkeypatch.setattr(neuron, "device", lambda: True)
    monkeypatch.setattr(vendor, "find", lambda generation: neuron)
    (check,) = ladder.climb(subject, "measure", [operator.workloads["tile"]])
    assert check.status == "failed" and check.message == "every element is zero"


def test_the_book_s_kernel_is_the_vendor_s_where_that_is_installed(monkeypatch):
    def fresh(module):
        spec = importlib.util.spec_from_file_location("a_kernel", module.__file__)
        again = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(again)
        return again

    boxes = np.arange(48, dtype=np.float32).reshape(3, 4, 4)
    plain = giou(boxes, boxes + 1, implementation="numpy")
    pretend(monkeypatch)
    theirs = fresh(api)
    assert theirs.nki is sys.modules["nki"] and theirs.nisa is sys.modules["nki.isa"]
    for name in ("nki", "nl", "nisa"):
        monkeypatch.setattr(api, name, getattr(theirs, name))
    kernel = fresh(nki).giou_kernel
    assert isinstance(kernel, Vendors) and neuron.lint(kernel) == []
    wide = boxes.astype(np.float64), boxes.astype(np.float64) + 1
    got = neuron.simulate(kernel, boxes, boxes + 1)
    assert_close(got, reference.giou(*wide), plain, reference.giou_magnitude(*wide))
    assert neuron.run(kernel, boxes, boxes, interpret=False) == "ran on the device"


def test_a_failure_after_a_launch_is_not_swallowed():
    """Whatever goes wrong behind the kernel is the operator's mistake too."""
    boxes = np.zeros((1, 1, 4), np.float32)

    def broken(x, *, interpret):
        neuron.run(nki.giou_kernel, x, x, interpret=interpret)
        raise ZeroDivisionError("after the kernel")

    with pytest.raises(ZeroDivisionError, match="after the kernel"):
        neuron.lower(broken, boxes)
