LONGER = {
    """nisa.scalar_tensor_tensor(
        dst=iou, data=share, op0=nl.subtract, operand0=1.0, op1=nl.add, operand1=iou
    )""": """\
nisa.tensor_scalar(dst=share, data=share, op0=nl.subtract, operand0=1.0)
    nisa.tensor_tensor(dst=iou, data1=share, data2=iou, op=nl.add)"""
}
ROWS = "range(0, samples, 128):\n        last = min(first + 128, samples)\n        total"
ALL_ROWS = "range(1):\n        last = samples\n        total"
ONE = "nl.ndarray((last - first, n), dtype=nl.float32, buffer=nl.sbuf)\n            nisa.dma_copy"
ONE_OF_A_LIST = ONE.replace("nl.nd", "[nl.nd", 1).replace("sbuf)", "sbuf) for _ in range(1)][0]")
FETCH = "nisa.dma_copy(dst=tile, src=boxes[first:last])"
ADD = "\n        nisa.tensor_scalar(dst=b, data=b, op0=nl.add, operand0=float(i))"
BY_VECTOR = {"union, True)": "union, False)", "enclosing, True)": "enclosing, False)"}
ZEROS = {"nisa.dma_copy(dst=out": "nisa.memset(dst=b, value=0.0); nisa.dma_copy(dst=out"}

WRONG = (
    ("nki_shorter", LONGER, "simulate", "has 22 instructions for a tile, not 21"),
    ("nki_sum", {"nisa.memset(dst=total, value=0.0)": ""}, "simulate", "that were never written"),
    ("nki_sum", {ROWS: ALL_ROWS}, "simulate", "at most 128"),
    ("nki_sum", {ONE: ONE_OF_A_LIST}, "compile", "a list comprehension"),
    ("nki_carried", ZEROS, "interpret", "in another order it gives the same"),
    ("nki_carried", {ADD: ""}, "interpret", "no turn needs the one before"),
    ("nki_once", {FETCH: f"{FETCH}; {FETCH}"}, "simulate", "are enough"),
    ("nki_fast", BY_VECTOR, "speed", "the bar is 22.0"),
)  # fmt: skip
