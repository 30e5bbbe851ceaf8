"""How much there is to do."""

from kernels.machines import checks


def flops(b: int, c: int, t: int) -> int:
    """Operations of the sums as they are written, a product and an addition each: B·C·T·(T+1).

    Args:
        b: rows.
        c: channels.
        t: steps.

    Raises:
        ValueError: for what is no whole number of at least 1.
    """
    for name, value in (("b", b), ("c", c), ("t", t)):
        checks.positive_int(name, value)
    return b * c * t * (t + 1)
