"""The problems that ring attention is proven on: n tokens of each device."""

from kernels.proof.workload import Workload, Workloads, cases, values

SIZES = "devices b h n d"
CAUSAL, BF16 = {"options": {"causal": True}}, {"dtype": "bfloat16"}


def make(workload, rng):
    """q, k and v of each device."""
    shape = tuple(workload.sizes[name] for name in SIZES.split())
    kinds = ("normal", "normal", workload.values)
    return tuple(values(kind, shape, workload.dtype, rng) for kind in kinds)


def draw(rng):
    """Two devices, any even number of tokens, one head or more."""
    heads, half, d = rng.integers(1, 4), rng.integers(1, 20), rng.choice((1, 16, 65, 128))
    sizes = {"devices": 2, "b": 1, "h": int(heads), "n": 2 * int(half), "d": int(d)}
    options = {"causal": bool(rng.integers(2))}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])), options=options)


def work(workload, gradient):
    """Of all devices: two products forward and four backward; q, k, v and the result, each once."""
    devices, b, h, n, d = (workload.sizes[name] for name in SIZES.split())
    tokens = devices * n
    pairs = tokens * (tokens + 1) // 2 if workload.options.get("causal") else tokens**2
    products, arrays = (6, 8) if gradient else (2, 4)
    return 2 * products * b * h * pairs * d, arrays * b * h * tokens * d * workload.itemsize


ring_attention = Workloads(
    make=make,
    draw=draw,
    work=work,
    named=cases(
        SIZES,
        one=(1, 1, 1, 8, 16, "a ring of one sends nothing", CAUSAL),
        two=(2, 1, 2, 16, 128, "both neighbours are the same device"),
        two_causal=(2, 2, 1, 2, 1, "pieces of one token, heads of one number", CAUSAL),
        three=(3, 1, 1, 10, 7, "an odd ring, one head: one way round", CAUSAL),
        four=(4, 1, 3, 16, 64, "one head more in one direction", CAUSAL, BF16),
        seven=(7, 1, 1, 3, 16, "slots are used three times and more"),
        eight=(8, 1, 2, 4, 32, "many parts of one softmax", CAUSAL),
        blocks=(2, 1, 1, 2052, 16, "padded pieces of several blocks", CAUSAL),
        blocks_bf16=(2, 1, 1, 1030, 128, "each part padded", BF16),
        cancelling=(2, 1, 1, 24, 64, "v near ±1000", {"values": "cancelling"}),
        scale=(2, 1, 1, 8, 8, "any scale", {"options": {"scale": -0.5}}),
    ),
)
