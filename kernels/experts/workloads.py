"""The problems that experts is proven on."""

import numpy as np

from kernels.proof.workload import Workload, Workloads, cases, size, values


def _make(workload, rng):
    t, d, f, e = (workload.sizes[name] for name in "tdfe")
    dtype = workload.dtype

    def drawn(*shape):
        """Scaled by what is summed over, so that what silu is taken of is neither tiny nor huge."""
        array = values(workload.values, shape, dtype, rng)
        return (array.astype(np.float32) / shape[-2] ** 0.5).astype(array.dtype)

    x, router = values(workload.values, (t, d), dtype, rng), drawn(d, e)
    if workload.name == "one_expert":
        router = router * np.where(np.arange(e) == e - 1, 1, 0).astype(router.dtype)
        x, router = abs(x), abs(router)  # its logits alone are above zero
    if workload.name == "ties":
        router = router * np.zeros(1, router.dtype)
    return x, router, drawn(e, d, f), drawn(e, d, f), drawn(e, f, d)


def _draw(rng):
    e = int(rng.choice([1, 2, 3, 8]))
    sizes = {"t": size(rng), "d": size(rng), "f": size(rng), "e": e}
    top_k = int(rng.integers(1, min(e, 4) + 1))
    return Workload(
        "random", sizes, str(rng.choice(["float32", "bfloat16"])), options={"top_k": top_k}
    )


def _work(workload, gradient):
    t, d, f, e = (workload.sizes[name] for name in "tdfe")
    rows = t * workload.options["top_k"]
    moved = workload.itemsize * (2 * t * d + d * e + 3 * min(e, rows) * d * f)
    operations = 2 * t * d * e + 6 * rows * d * f
    return operations * (3 if gradient else 1), moved * (2 if gradient else 1)


def _top(k):
    return {"options": {"top_k": k}}


_BF16 = {"dtype": "bfloat16"}

experts = Workloads(
    make=_make,
    draw=_draw,
    work=_work,
    figures=cases(
        "t d f e",
        dtype="bfloat16",
        mixtral=(4096, 4096, 1792, 8, "2 of 8 experts, an eighth of their width", _top(2)),
        mixtral_decode=(64, 4096, 1792, 8, "64 tokens in decoding", _top(2)),
    ),
    named=cases(
        "t d f e",
        small=(64, 64, 96, 4, "2 of 4 experts", _top(2)),
        one=(1, 1, 1, 1, "the smallest there is", _top(1)),
        mixtral_small=(96, 128, 128, 8, _BF16, _top(2)),
        all=(33, 65, 40, 3, "every expert: nothing to choose", _top(3)),
        one_expert=(70, 64, 33, 5, "all tokens go to one", _top(1)),
        ties=(48, 33, 64, 6, "equal logits: the lower numbers", _top(2)),
        single_token=(1, 129, 65, 16, "most experts are empty", _top(4)),
    ),
)
