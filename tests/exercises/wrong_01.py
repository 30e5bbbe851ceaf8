"""Wrong answers to the exercises of this chapter, and what is said of each."""


def forgets_y(a_ref, x_ref, y_ref, o_ref):
    o_ref[...] = a_ref[0] * x_ref[...]


def writes_nothing(a_ref, x_ref, y_ref, o_ref):
    y_ref[...]


def writes_half(a_ref, x_ref, y_ref, o_ref):
    half = o_ref.shape[0] // 2 or 1
    o_ref[:half] = a_ref[0] * x_ref[:half] + y_ref[:half]


WRONG = (
    ("axpy", forgets_y, "interpret", "element ["),
    ("axpy", writes_nothing, "interpret", "is this element ever written?"),
    ("axpy", writes_half, "interpret", "is this element ever written?"),
    ("axpy", lambda *refs: None, "interpret", "is nan"),
)
