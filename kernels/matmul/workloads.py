"""The problems that matmul and block_sparse_matmul are proven on."""

import jax
import jax.numpy as jnp
import numpy as np

from kernels.machines.tpu.chips import CHIPS, here
from kernels.matmul import narrow
from kernels.matmul.blocks import LANES, BlockSizes, candidates, nearest
from kernels.matmul.quantized import WEIGHTS
from kernels.proof.workload import Workload, Workloads, cases, size, values


def _make(workload, rng):
    m, k, n = (workload.sizes[name] for name in "mkn")
    y_shape = (n, k) if workload.options.get("transpose_rhs") else (k, n)
    kind, dtype = workload.values, workload.dtype
    x = values(kind, (m, k), dtype, rng)
    # A NaN or an infinity in x spoils its row; with one in y too, every element would be spoilt.
    return x, values("normal" if kind == "nonfinite" else kind, y_shape, dtype, rng)


def _draw(rng):
    dtype = str(rng.choice(["float32", "bfloat16", "int8"]))
    options = {"transpose_rhs": True} if rng.integers(2) else {}
    if dtype != "int8" and rng.integers(2):
        options["activation"] = jax.nn.relu
    if dtype != "int8" and rng.integers(2):
        options["prologue"] = jnp.tanh
    return Workload("random", {name: size(rng) for name in "mkn"}, dtype, options=options)


def _candidates(workload, vmem_bytes):
    sizes = (workload.sizes[name] for name in "mkn")
    return [{"block": block} for block in candidates(*sizes, workload.dtype, vmem_bytes)]


def _choice(workload):
    sizes = [workload.sizes[name] for name in "mkn"]
    chip = CHIPS[here()]
    block = BlockSizes.default(*sizes, workload.dtype, chip)
    record, best = nearest(*sizes, workload.dtype, chip)
    shape = "×".join(map(str, record))
    cut = "" if block == best else f", made to fit: {block}"
    return (
        f"blocks {best}, the tuner's best for the nearest shape it has records of, {shape}{cut}; "
        f"{block.arithmetic(workload.dtype)}"
    )


def _work(workload, gradient):
    m, k, n = (workload.sizes[name] for name in "mkn")
    out = 4 if workload.itemsize == 1 else workload.itemsize
    moved = (m * k + k * n) * workload.itemsize + m * n * out
    # The gradients are two more products; they read the cotangent and write two matrices.
    return 2 * m * k * n * (3 if gradient else 1), moved * (2 if gradient else 1)


def _work_quantized(workload, gradient):
    m, k, n = (workload.sizes[name] for name in "mkn")
    if workload.dtype == "int8":
        out = 2 if workload.options.get("out_dtype") == "bfloat16" else 4
        return 2 * m * k * n, m * k + k * n + 4 * (m + 2 * n) + out * m * n
    stored = k * n // 2 if workload.options.get("weights") == "int4" else k * n
    weights = stored + 4 * n * (workload.sizes.get("groups", 1) + 1)
    rows = workload.itemsize * m * (k + n)
    # The gradient in x is one more product; it reads the weights and the cotangent, and writes x's.
    return 2 * m * k * n * (1 + gradient), (weights + rows) * (1 + gradient)


def _work_sparse(workload, gradient):
    """Of each block at least what a block at the edges has of x, and of y nothing: which of its
    rows are met the sizes do not say."""
    k, n, bm, bk, blocks = (workload.sizes[name] for name in ("k", "n", "bm", "bk", "blocks"))
    m = workload.options.get("m", k)
    elements = blocks * (m % bm or bm) * (k % bk or bk)
    moved = elements * workload.itemsize + m * n * (
        4 if workload.itemsize == 1 else workload.itemsize
    )
    return 2 * elements * n * (3 if gradient else 1), moved * (2 if gradient else 1)


_BF16, _INT8 = {"dtype": "bfloat16"}, {"dtype": "int8"}
_STRIPS = {"tuning": {"bn": 128}}
_BLOCKS = {"tuning": {"block": BlockSizes(128, 128, 128)}}
_LONG_SUM = "32 steps of accumulation, which bfloat16 would not survive"

_FIGURES = tuple(
    Workload(f"cube_{n}_{short}", dict.fromkeys("mkn", n), dtype, why="the published table's")
    for dtype, short in (("bfloat16", "bf16"), ("int8", "int8"))
    for n in (1024, 4096, 8192)
)


def _with(**options):
    return {"options": options}


_EXP = _BF16 | _BLOCKS | _with(prologue=jnp.exp, transpose_rhs=True)


matmul = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    choice=_choice,
    work=_work,
    figures=_FIGURES,
    named=cases(
        "m k n",
        one=(1, 1, 1, "the smallest there is"),
        tiny=(8, 128, 128, "one register tile of float32"),
        square=(512, 512, 512, "four blocks in every direction"),
        square_bf16=(512, 512, 512, "what the MXU is built for", _BF16),
        ragged=(257, 129, 63, "one above, one above, one below a tile"),
        odd=(5, 123, 123, "nothing divides anything", _BF16),
        ragged_k=(64, 509, 128, "a last block of k cut short", _BLOCKS),
        ragged_k_bf16=(64, 509, 128, "the same", _BF16, _BLOCKS),
        ragged_k_int8=(64, 509, 128, "the same", _INT8, _BLOCKS),
        long_k_bf16=(16, 4096, 128, _LONG_SUM, _BF16, _BLOCKS),
        relu=(96, 200, 65, "a kink", _with(activation=jax.nn.relu)),
        gelu=(65, 64, 200, _BF16, _with(activation=jax.nn.gelu)),
        prologue=(96, 257, 65, "x is read", _with(prologue=jnp.tanh)),
        prologue_ragged_k=(64, 300, 128, "f(0) is not 0, where k is cut short", _EXP),
        float8=(65, 200, 129, "added up in float32", {"dtype": "float8_e4m3fn"}),
        ragged_k_float8=(64, 509, 128, {"dtype": "float8_e5m2"}, _BLOCKS),
        transposed=(31, 129, 257, _with(transpose_rhs=True)),
        int8=(64, 384, 200, "exact, where int8 sums overflow", _INT8),
        wide=(63, 101, 65, "magnitudes from 2⁻³⁰ to 2³⁰", {"values": "wide"}),
        cancelling=(63, 128, 65, "sums that vanish", {"values": "cancelling"}),
        nonfinite=(16, 200, 65, "NaN stays in its row", {"values": "nonfinite"}),
    ),
)


def _make_quantized(workload, rng):
    if workload.dtype != "int8":
        return _make_narrow(workload, rng)
    x, y = _make(workload, rng)
    m, n = workload.sizes["m"], workload.sizes["n"]
    x_scale, y_scale = (2.0 ** rng.uniform(-12, 0, size) for size in (m, n))
    bias = rng.standard_normal(n) * (0 if workload.name == "no_bias" else 100)
    return x, y, *[a.astype(np.float32) for a in (x_scale, y_scale, bias)]


def _make_narrow(workload, rng):
    """Floats, weights as they are stored, and scales of very different sizes for their groups."""
    m, k, n = (workload.sizes[name] for name in "mkn")
    groups = workload.sizes.get("groups", 1)
    stored = workload.options.get("weights", "int8")
    x = values(workload.values, (m, k), workload.dtype, rng)
    rows = groups * -(-k // groups // 2) if stored == "int4" else k
    y = values("normal", (rows, n), "int8" if stored == "int4" else stored, rng)
    scale = (2.0 ** rng.uniform(-12, 0, (groups, n))).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    return x, y, None, scale if "groups" in workload.sizes else scale[0], bias


def _draw_quantized(rng):
    options = {"activation": jax.nn.relu} if rng.integers(2) else {}
    sizes = {name: size(rng) for name in "mkn"}
    dtype = str(rng.choice(["int8", "bfloat16", "float32"]))
    if dtype != "int8":
        options["weights"] = str(rng.choice(list(WEIGHTS)))
        sizes["groups"] = int(rng.choice([g for g in (1, 2, 3, 5, 8) if sizes["k"] % g == 0]))
    return Workload("random", sizes, dtype, options=options)


def _candidates_quantized(workload, vmem_bytes):
    if workload.dtype == "int8":
        return _candidates(workload, vmem_bytes)
    sizes = (workload.sizes[name] for name in "mkn")
    stored = workload.options.get("weights", "int8")
    blocks = narrow.candidates(*sizes, workload.dtype, stored, vmem_bytes)
    return [{"block": block} for block in blocks]


def _choice_quantized(workload):
    if workload.dtype == "int8":
        return _choice(workload)
    sizes = (workload.sizes[name] for name in "mkn")
    block = narrow.plan(*sizes, workload.dtype, workload.options.get("weights", "int8")).block
    return f"blocks {block}: all of k, and as many rows and columns of 512 and 1,024 as VMEM holds"


_INT4, _E4M3, _E5M2 = ({"weights": name} for name in ("int4", "float8_e4m3fn", "float8_e5m2"))


quantized_matmul = Workloads(
    make=_make_quantized,
    draw=_draw_quantized,
    candidates=_candidates_quantized,
    choice=_choice_quantized,
    work=_work_quantized,
    figures=(
        *_FIGURES[-2:],
        *cases(
            "m k n groups",
            dtype="bfloat16",
            decode_int8=(32, 4096, 14336, 32, "32 tokens: bytes bind"),
            decode_int4=(32, 4096, 14336, 32, {"options": _INT4}),
            decode_e4m3=(32, 4096, 14336, 32, {"options": _E4M3}),
            prefill_int8=(1024, 4096, 14336, 1, "the published shape"),
            prefill_int4=(1024, 4096, 14336, 32, "products bind", {"options": _INT4}),
        ),
    ),
    named=(
        *cases(
            "m k n",
            dtype="int8",
            one=(1, 1, 1, "the smallest there is"),
            tiny=(32, 128, 128, "one register tile"),
            odd=(5, 123, 123, "nothing divides anything"),
            ragged_k=(64, 509, 128, "k cut short", _BLOCKS),
            blocks=(300, 384, 200, "scales per block", _BLOCKS),
            no_bias=(33, 64, 257),
            gelu=(65, 200, 129, _with(activation=jax.nn.gelu)),
            bf16=(64, 384, 200, "rounded once", _with(out_dtype="bfloat16")),
        ),
        *cases(
            "m k n groups",
            dtype="bfloat16",
            narrow_one=(1, 1, 1, 1, "half a byte", {"options": _INT4}),
            w8a16=(8, 512, 200, 4, "scales of the sums"),
            w8a16_many=(200, 512, 200, 4, "scales of the weights: more rows than a group has"),
            w8a32=(9, 384, 129, 3, {"dtype": "float32"}),
            int4=(16, 512, 257, 4, {"options": _INT4}),
            int4_many=(257, 256, 129, 2, {"options": _INT4}),
            int4_odd=(5, 123, 65, 3, "an odd number of rows in a group", {"options": _INT4}),
            int4_short=(31, 200, 128, 5, "groups that lanes do not divide", {"options": _INT4}),
            int4_f32=(7, 129, 63, 1, {"options": _INT4, "dtype": "float32"}),
            many_groups=(3, 1040, 64, 65, "more than are unrolled", {"options": _INT4}),
            e4m3=(33, 256, 200, 2, {"options": _E4M3}),
            e5m2_odd=(7, 101, 123, 1, {"options": _E5M2}),
            narrow_gelu=(65, 256, 129, 2, {"options": {"activation": jax.nn.gelu} | _INT4}),
            narrow_blocks=(64, 256, 384, 2, {"tuning": {"block": BlockSizes(32, 256, 128)}}),
            narrow_cancelling=(33, 256, 65, 2, {"values": "cancelling"}),
            narrow_nonfinite=(16, 200, 65, 2, "NaN in its row", {"values": "nonfinite"}),
        ),
    ),
)


def _make_sparse(workload, rng):
    k, n, bm, bk = (workload.sizes[name] for name in ("k", "n", "bm", "bk"))
    rows, columns = -(-workload.options.get("m", k) // bm), -(-k // bk)
    places = rng.choice(rows * columns, min(workload.sizes["blocks"], rows * columns), False)
    row, column = np.divmod(np.sort(places).astype(np.int32), np.int32(columns))
    kind = workload.values
    # What the blocks hold beyond x is drawn too: nothing of it may reach the result.
    blocks = values(kind, (len(row), bm, bk), workload.dtype, rng)
    y = values("normal" if kind == "nonfinite" else kind, (k, n), workload.dtype, rng)
    return blocks, y, row, column


def _draw_sparse(rng):
    dtype = str(rng.choice(["float32", "bfloat16", "int8"]))
    bm, bk = (int(rng.choice([32, 64, 96, 128])) for _ in "mk")  # whole register tiles of any dtype
    m, k = size(rng), size(rng)
    blocks = int(rng.integers(1, 1 + min(12, -(-m // bm) * -(-k // bk))))
    sizes = {"k": k, "n": size(rng), "bm": bm, "bk": bk, "blocks": blocks}
    return Workload("random", sizes, dtype, options={"m": m})


def _candidates_sparse(workload, vmem_bytes):
    n, bm, bk = (workload.sizes[name] for name in ("n", "bm", "bk"))
    widths = [n, *(LANES << i for i in reversed(range(6)) if LANES << i < n)]
    fitting = (bn for bn in widths if BlockSizes(bm, bk, bn).fits(workload.dtype, vmem_bytes))
    return [{"bn": bn} for bn in fitting]


block_sparse_matmul = Workloads(
    make=_make_sparse,
    draw=_draw_sparse,
    candidates=_candidates_sparse,
    work=_work_sparse,
    named=cases(
        "k n bm bk blocks",
        one=(1, 1, 8, 8, 1, "the smallest there is"),
        tenth=(1280, 256, 128, 128, 10, "the chapter's example"),
        none=(256, 128, 64, 128, 0, "no block: all zeros", _INT8),
        all=(300, 65, 64, 128, 15, "nothing sparse", _with(m=257)),
        empty_rows=(256, 128, 8, 128, 5, "rows that no step writes"),
        ragged=(509, 63, 32, 128, 9, "cut everywhere", _with(m=101)),
        ragged_int8=(129, 200, 32, 64, 9, _INT8, _with(m=123)),
        wider=(5, 7, 32, 128, 1, "a block beyond it all", _with(m=3)),
        strips=(300, 300, 64, 128, 6, "y in three strips, the last one cut short", _BF16, _STRIPS),
        long_row=(4096, 128, 16, 128, 32, _LONG_SUM, _BF16, _with(m=16)),
        cancelling=(256, 64, 32, 128, 9, {"values": "cancelling"}),
        nonfinite=(200, 65, 32, 64, 12, {"values": "nonfinite"}),
    ),
)
