VARIANCE = "variance = (centred * centred).mean(-1, keepdims=True)"
CANCELLING = """\
x = x_ref[...]
        variance = (x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2"""

WRONG = (
    ("own_sums", {'"arbitrary")': '"parallel")'}, "interpret", "simulate, "),
    ("own_sums", {'("parallel", "arb': '("arbitrary", "arb'}, "interpret", "no dimension of"),
    ("own_standardise", {VARIANCE: CANCELLING}, "interpret",
        "kernels.prove, interpret, large mean of x"),
    ("own_standardise", {"block=256": "block=8"}, "speed", "µs, estimated for a v6e; the bar is"),
)  # fmt: skip
