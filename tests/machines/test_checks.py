"""Bad arguments are named, with what they were and what is accepted."""

import jax
import numpy as np
import pytest
from refused import refuses

from kernels import checks, explain, gpu, optional, tpu
from kernels.matmul import matmul

ROWS = np.zeros((8, 128), np.float32)


test_a_wrong_call_is_a_value_error = pytest.mark.skipif(
    not optional.available("libtpu"), reason="libtpu is not installed"
)(
    refuses(
        lambda call: call(),
        (lambda: tpu.compile("x"), "function is 'x'; accepted: a function"),
        (lambda: gpu.export(3, ROWS), "function is 3; accepted: a function"),
        (lambda: tpu.compile(np.dot, ROWS, mesh=3), "mesh is 3; accepted: axis name"),
        (lambda: gpu.export(lambda x, y: x, ROWS), r"args is a list of 1 \(.*'y'\); accepted: "),
        (lambda: tpu.compile(lambda x: x, "abc"), "args is 'abc'; accepted: arrays"),
        (lambda: gpu.estimate(lambda x: x, ROWS, timeout=-1), "timeout is -1; accepted: a number"),
        (lambda: tpu.estimate(lambda x: x, ROWS, timeout=-1), "timeout is -1; accepted: a number"),
        (lambda: explain(lambda x: x, ROWS, x=ROWS), "args is 'x'; accepted: no name, by "),
        (lambda: explain(np.dot, ROWS, ROWS.T, chip="v9"), "chip is 'v9'; accepted: v5e"),
        (lambda: matmul(ROWS, ROWS.T, transpose_rhs="yes"), "transpose_rhs is 'yes'; accepted"),
        (lambda: checks.fail("bm", 7, "a multiple of 8"), "^bm is 7; accepted: a multiple of 8$"),
        (lambda: checks.fail("activation", jax.nn.relu, "None"), "activation is relu; accepted"),
    )
)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3", None])
def test_positive_int_refuses(value):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        checks.positive_int("n", value)
    checks.positive_int("n", np.int32(4))


EMPTY = np.ones((0,), np.float32)


checks.array("x", EMPTY, rank=1, dtypes=("float32",), empty=True)
test_array_refuses = refuses(
    lambda value, more: checks.array("x", value, **{"rank": 1, "dtypes": ("float32",)} | more),
    ([1, 2], {}, "x is a list"),
    (np.ones((2, 2), np.float32), {}, r"x.shape is \(2, 2\)"),
    (EMPTY, {}, r"x.shape is \(0,\)"),
    (EMPTY, {"rank": 2, "empty": True}, r"x\.shape is"),
    (np.ones((2,), np.float64), {}, "x.dtype is 'float64'"),
)


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    assert optional.require("matplotlib", "plots").__name__ == "matplotlib"
    monkeypatch.setattr(optional, "available", lambda module: False)
    with pytest.raises(ImportError, match=r"taichi is needed for padding.*\.\[taichi\]") as error:
        optional.require("taichi", "padding")
    assert error.value.name == "taichi"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("libX11.so.6: cannot open shared object file: No such file", "apt install libx11-6"),
        ("libodd.so.1: cannot open shared object file: No such file", "lacks the library libodd"),
        ("cannot import name 'kernel'", None),
    ],
)
def test_a_package_that_lacks_a_library_is_missing_and_no_other_fault_is(
    monkeypatch, tmp_path, words, says
):
    (tmp_path / "brittle_package.py").write_text(f"raise ImportError({words!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as error:
        optional.require("brittle_package", "padding")
    assert isinstance(error.value, optional.MissingPackage) == bool(says)
    assert (says or words) in str(error.value)
