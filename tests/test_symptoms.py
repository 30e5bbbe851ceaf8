"""Every message on the page of symptoms is one that is said: by a small program for each."""

import functools
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton
from pallas_samples import ANY, blockwise, copy, shape

from kernels import gpu, tpu
from kernels.lessons import gallery
from kernels.machines.gpu import toolchain
from kernels.machines.optional import available
from kernels.machines.tpu import pool
from kernels.machines.tpu.export import export
from kernels.matmul import matmul
from kernels.yours import proving
from kernels.yours.report import ANCHORS, SKIPPED, ProblemResult, Report, see

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "book" / "symptoms.md").read_text(encoding="utf-8")
ENTRIES = {
    anchor: (heading, text)
    for anchor, heading, text in re.findall(
        r"^\(([a-z\d-]+)\)=\n### (.+)\n\n((?:(?!\(|#).+\n+)+)", PAGE, re.M
    )
}
F32 = functools.partial(shape, dtype=jnp.float32)
I32 = functools.partial(shape, dtype=jnp.int32)
WHOLE, LARGE, INT8 = F32(8, 128), F32(8192, 1024), shape(32, 128, dtype="int8")
SMEM, VMEM = (pl.BlockSpec(memory_space=space) for space in (pltpu.SMEM, pltpu.VMEM))
CONSTANT, X = jnp.arange(128.0), jnp.ones((8, 128))


def call(body, *arrays, out=WHOLE, **options):
    """A kernel, and what it takes."""
    return pl.pallas_call(body, out_shape=out, **options), arrays


def stores(function, *arrays, out=None):
    """A kernel that stores a function of its operands."""

    def body(*refs):
        refs[-1][...] = function(*[ref[...] for ref in refs[:-1]])

    return call(body, *arrays, out=out or arrays[0])


def rows(block, *sizes):
    function, array = blockwise(sizes, block)
    return function, (array,)


def sliced(i_ref, x_ref, o_ref):
    o_ref[...] = x_ref[:, pl.ds(i_ref[0], 128)]


def copied(i_ref, x_ref, o_ref, arrived):
    pltpu.make_async_copy(x_ref.at[pl.ds(i_ref[0], 8)], o_ref, arrived).start()


def numbered(o_ref):
    o_ref[0] = pl.program_id(0)


def unpacked(x):
    types = dict(packed_dtype=jnp.int4, unpacked_dtype=jnp.int32)
    return pltpu.unpack_elementwise(x[...], index=0, **types)


# What a TPU's compiler, or its front end, refuses.
COMPILED = {
    "block-shape": rows((5, 512), 100, 512),
    "block-rank": call(copy, F32(64, 512), in_specs=[pl.BlockSpec((8,), lambda: (0,))]),
    "vmem": rows((8728, 128), 17456, 128),
    "vmem-chip": call(copy, LARGE, out=LARGE),
    "hbm": (lambda x: jnp.sort(x) + 1, (F32(1 << 17, 1 << 15),)),
    "e2003": call(sliced, I32(1), F32(8, 512), in_specs=[SMEM, VMEM]),
    "dma-tile": call(copied, I32(1), INT8, out=shape(8, 128, dtype="int8"),
        in_specs=[SMEM, ANY], scratch_shapes=[pltpu.SemaphoreType.DMA]),
    "acc-32-bit": stores(jnp.dot, shape(128, 128), shape(128, 128)),
    "primitive": stores(lambda x: jnp.cumsum(x, -1), WHOLE),
    "gather": stores(lambda x, i: jnp.take(x, i[0], 1), WHOLE, I32(8, 128)),
    "float16": stores(lambda x: x + x, shape(16, 128, dtype="float16")),
    "bfloat16-only": stores(lambda x: jnp.argmax(x, -1, keepdims=True).astype(jnp.int32),
        shape(16, 128), out=I32(16, 1)),
    "narrow-arithmetic": stores(lambda x: x * x, INT8),
    "narrow-shift": stores(lambda x: x >> 4, INT8),
    "shape-cast": stores(lambda: (jnp.arange(32) < 20)[:, None].astype(float) * jnp.ones((1, 16)),
        out=F32(32, 16)),
    "scalar-to-vmem": call(numbered, out=I32(1), out_specs=VMEM, grid=(1,)),
    "vector-from-smem": call(copy, WHOLE, in_specs=[SMEM]),
    "load-from-hbm": call(copy, WHOLE, in_specs=[ANY]),
    "captures-constants": stores(lambda x: x + CONSTANT, WHOLE),
}  # fmt: skip
WIDE = {"x64-index-map": rows((8, 128), 64, 128)}  # under jax_enable_x64
CHIP = {"vmem-chip": "v5p"}


def interpreted(body=copy, x=X, interpret=True, **options):
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, out_shape=out, interpret=interpret, **options)(x)


def stored(value, x=X):
    return interpreted(lambda x_ref, o_ref: o_ref.__setitem__(..., value(x_ref)), x)


def looping(x_ref, o_ref):
    def step(value):
        o_ref[0, 0] = 1.0 * pl.program_id(0)
        return value + 1

    jax.lax.while_loop(lambda value: value < x_ref[0, 0], step, 0.0)


def donated():
    x = jnp.ones((8, 128))
    alias = lambda x: interpreted(x=x, input_output_aliases={0: 0})
    jax.jit(alias, donate_argnums=0)(x)
    return x + 1


def on_a_mesh():
    spread = jax.NamedSharding(jax.make_mesh((1,), "x"), jax.P("x"))
    x = jax.ShapeDtypeStruct(WHOLE.shape, WHOLE.dtype, sharding=spread)
    jax.jit(call(copy)[0]).trace(x).lower(lowering_platforms=("tpu",))


def by_elements():
    """Whether the first and the last block are right, where a map counts elements."""
    spec = pl.BlockSpec((8, 128), lambda i: (0, i * 128))
    z = interpreted(x=jnp.ones((8, 512)), grid=(4,), in_specs=[spec], out_specs=spec)
    return np.isnan(z[0, ::128]).tolist() == [False, True, True, False]


def rounded():
    """Whether factors that are rounded as on a TPU cost a product what the page says."""
    x, y = np.random.default_rng(0).standard_normal((2, 256, 256))
    narrow = lambda a: a.astype(jnp.bfloat16).astype(np.float32)
    off = lambda a, b: np.abs(a @ b - x @ y).max() / np.abs(x @ y).max()
    return bool(off(narrow(x), narrow(y)) > 1e-3 > 1e-5 > off(np.float32(x), np.float32(y)))


TRITON = {"compiler_params": pltriton.CompilerParams()}
# What anything else says: an error, or the words that it gives back; True for a symptom in words.
SAID = {
    "gone-compiler-params": lambda: pltpu.TPUCompilerParams,
    "gone-load": lambda: pl.load,
    "only-interpret": lambda: interpreted(interpret=False),
    "device-kind": pltpu.get_tpu_info,
    "traced-bool": lambda: stored(lambda x: x[...] if x[0, 0] > 0 else -x[...]),
    "concrete-shape": lambda: stored(lambda x: jnp.ones((x[0, 0].astype(int), 128))),
    "ref-without-index": lambda: stored(lambda x: x + 1),
    "store-dtype": lambda: stored(lambda x: x[...].astype("float32"), X.astype(jnp.bfloat16)),
    "int4-unpack": lambda: stored(unpacked, jnp.ones((32, 128), jnp.int8)),
    "no-gradient": lambda: jax.grad(lambda x: interpreted(x=x).sum())(X),
    "mesh-axes": on_a_mesh,
    "unbound-axis": lambda: jax.lax.axis_index("x"),
    "deleted": donated,
    "program-id-loop": lambda: interpreted(looping, grid=(1,)),
    "compile-timeout": lambda: tpu.compile(lambda x: x @ x, shape(512, 512), timeout=0.01),
    "not-run": lambda: str(Report((ProblemResult("k", "interpret", "", SKIPPED, "x"),))),
    "not-done": lambda: proving._late(1),
    "nan-middle": by_elements,
    "product-rounded": rounded,
}
to_mosaic = functools.partial(matmul, implementation="mosaic_gpu")
ON_GPU = {
    "power-of-two": (*call(copy, F32(96, 64), out=F32(96, 64), **TRITON), "h100"),
    "warpgroup-copy": (*call(copy, F32(8), out=F32(8)), "h100"),
    "shared-memory": (*call(copy, F32(1024, 256), out=F32(1024, 256)), "h100"),
    "wgmma": (to_mosaic, [shape(256, 256)] * 2, "a100"),
}
# What JAX 0.12 and its compilers say instead, which entries quote; None: they take the program.
NEWER = {
    "bfloat16-only": "Operation not supported: kVectorMaxIndexReduceBf16",
    "narrow-shift": None,
    "shape-cast": "Check failed: rem == 0",
    "warpgroup-copy": None,
    "shared-memory": None,
    "wgmma": "Cannot select: intrinsic %llvm.nvvm.elect.sync",
}
# Of the bug gallery, whose own test climbs with each: the rung that it says, and its words.
BUGS = {
    "halts": ("one_program_too_many", "simulate"),
    "nan-everywhere": ("missing_init", "interpret"),
    "ragged-sum": ("unmasked_tail", "interpret"),
    "wrong-on-chip": ("parallel_reduction", "simulate"),
    "narrow-sum": ("narrow_accumulator", "interpret"),
    "nki-unwritten": ("nki_uninitialised", "simulate"),
    "nki-partition": ("nki_start_partition", "simulate"),
    "nki-wide": ("nki_partitions", "simulate"),
    "taichi-bounds": ("early_read", "simulate"),
}
# What the compiler was heard to say, of a chip and in a process that are not tried here.
RECORDED = {"e2001": "v3_bf16", "x64-arrays": "f64"}
# What takes hardware, hours or another version; None where no thread says it.
ELSEWHERE = {
    "e2002": "sglang-jax/issues/1546",
    "tpu-in-use": "jax/issues/10192",
    "hang": None,
    "wrong-in-interpreter": "jax/issues/39179",
    "zeros": "jax/issues/39744",
    "zero-ms": "tritonbench/pull/1192",
    "tuner-hours": "helion/issues/1274",
    "zero-utilisation": "xprof/issues/3013",
    "nki-device": "aws-neuron-sdk/issues/1051",
    "taichi-python": "taichi/issues/8664",
    "torch-layout": "xla/issues/8732",
}


def quoted(anchor):
    """The message that a heading is; "" where it is a symptom in words."""
    message = re.fullmatch(r"(`+)(.+?)\1", ENTRIES[anchor][0])
    return message[2] if message else ""


def said_today(anchor):
    """The heading's message, or what the newer versions say in its place; None where nothing."""
    newer = NEWER if jax.__version_info__ >= (0, 12) else {}
    return newer.get(anchor, quoted(anchor))


def holds(text, message):
    """Whether a text says a message, of which … stands for anything."""
    parts = [re.escape(part) for part in " ".join(message.split()).split("…")]
    return re.search(".*".join(parts), " ".join(text.split())) is not None


@pytest.fixture(scope="module")
def refusals():
    """What a TPU's compiler says to each, in one child or two."""
    said, programs = {}, {}

    def lower(anchor, function, arrays):
        try:
            programs[anchor] = export(function, *arrays, chip=CHIP.get(anchor, "v5e"))
        except tpu.TpuCompileError as error:
            said[anchor] = error

    for anchor, (function, arrays) in COMPILED.items():
        lower(anchor, function, arrays)
    with jax.enable_x64(True):
        for anchor, (function, arrays) in WIDE.items():
            lower(anchor, function, arrays)
    if available("libtpu"):
        said |= zip(programs, pool.compile_all([*programs.values()]))
    return said


@pytest.mark.slow
@pytest.mark.parametrize("anchor", [*COMPILED, *WIDE])
def test_the_tpu_compiler_says_it(anchor, refusals):
    if anchor not in refusals:
        pytest.skip("libtpu is not installed: pip install 'jax[tpu]'")
    error, message = refusals[anchor], said_today(anchor)
    if message is None:
        assert isinstance(error, tpu.TpuProgram)
        return
    assert holds(error.original, message), error.original
    link = f" (see book/symptoms.md#{anchor})"
    if anchor in dict(ANCHORS).values() and message == quoted(anchor):
        assert see(error.original) == link
        assert see(str(error)) in (link, " (see book/symptoms.md#vmem)")


def check(anchor, run):
    try:
        said = run()
    except Exception as error:  # and the compiler's own words of it
        said = f"{error}\n{getattr(error, 'original', '')}"
    if message := said_today(anchor):
        said = holds(said, message) or said
    assert said is True or (message is None and isinstance(said, gpu.GpuProgram)), said


@pytest.mark.parametrize("anchor", SAID)
def test_it_is_said(anchor):
    if anchor == "compile-timeout" and not available("libtpu"):
        pytest.skip("libtpu is not installed: pip install 'jax[tpu]'")
    check(anchor, SAID[anchor])


@pytest.mark.slow
@pytest.mark.parametrize("anchor", ON_GPU)
@pytest.mark.skipif(not toolchain.available(), reason="make venv EXTRAS=gpu")
def test_the_gpu_compiler_says_it(anchor):
    function, arrays, chip = ON_GPU[anchor]
    check(anchor, lambda: gpu.compile(function, *arrays, chip=chip, passes=False))


@pytest.mark.parametrize("anchor", BUGS)
def test_the_gallery_has_it(anchor):
    name, rung = BUGS[anchor]
    bug = gallery.bugs()[name]
    assert bug.caught_by == rung
    if message := quoted(anchor) or (anchor == "halts" and "Out-of-bounds block index"):
        assert message in bug.says or bug.says in message
    if anchor == "wrong-on-chip":
        assert bug.says == "race"


def test_every_entry_is_made_to_happen_or_has_a_thread():
    errors = json.loads((ROOT / "tests/machines/tpu/data/errors.json").read_text())
    assert all(holds(errors[name][2], quoted(anchor)) for anchor, name in RECORDED.items())
    tables = (COMPILED, WIDE, SAID, ON_GPU, BUGS, RECORDED, ELSEWHERE)
    assert sorted(ENTRIES) == sorted(anchor for table in tables for anchor in table)
    assert len(ENTRIES) >= 40 and len(ENTRIES) == len(re.findall("^### ", PAGE, re.M))
    assert all((words or "JAX 0.12") in ENTRIES[anchor][1] for anchor, words in NEWER.items())
    for anchor, thread in ELSEWHERE.items():
        assert thread is None or re.search(thread, ENTRIES[anchor][1]), anchor


def test_what_sends_to_the_page_sends_to_an_entry():
    assert not holds("size 17.05M", "size … and limit") and not holds("", "x")
    assert {anchor for _, anchor in ANCHORS} <= set(ENTRIES)
    assert not see("the reference 1, got 2")
    failed = ProblemResult("k", "compile", "", "failed", "Cannot store scalars to VMEM")
    assert failed.words.endswith("(see book/symptoms.md#scalar-to-vmem)")


@pytest.mark.parametrize("anchor", ENTRIES)
def test_an_entry_is_short_and_leads_to_a_chapter(anchor):
    text = ENTRIES[anchor][1]
    assert len(text.split()) < 80
    links = re.findall(r"\[([^]]+)\]\(\.\./notebooks/(\w+)\.ipynb", text)
    assert links
    for title, stem in links:
        first = (ROOT / "notebooks/text" / f"{stem}.md").read_text(encoding="utf-8")
        assert f"\n# {title}\n" in first, title
