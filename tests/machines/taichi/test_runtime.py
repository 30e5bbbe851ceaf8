"""Taichi in this process, and in children: started once, silent, and asked only for what is safe.

The kernels are in taichi_samples.py. What needs a fresh process is run in one; what a notebook
defines, as text, runs in a process that cannot import it.
"""

import functools
import os
import pickle
import sys
import textwrap
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from commands import process, weekly
from refused import refuses

from kernels import optional, taichi
from kernels.machines.taichi import child, runtime

ROOT = Path(__file__).resolve().parents[3]
INSTALLED = [name for name in taichi.MODULES if optional.available(name)]
if not INSTALLED:
    pytest.skip("taichi is not installed: pip install taichi", allow_module_level=True)

import taichi_samples as samples  # noqa: E402


def python(code, **env):
    """Run code in a fresh process, which finds the samples; what it printed."""
    env |= {"PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    program = sys.executable, "-c", textwrap.dedent(code)
    done = process(*program, cwd=ROOT, env=os.environ | env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


X = np.arange(1, 8, dtype=np.float32)


@pytest.mark.parametrize("dtype", taichi.DTYPES)
def test_arrays_of_every_dtype_are_written_in_place(dtype):
    x = X.astype(dtype)
    np.testing.assert_array_equal(samples.doubled(x), 2 * x)


def launch(x, out, **more):
    taichi.launch(samples.double, x, out, **more)


test_what_is_refused_before_the_launch = refuses(
    launch,
    (X, [0.0] * 7, "out is a list; accepted: a number, a NumPy array or a torch tensor"),
    (X > 0, X.copy(), "x.dtype is 'bool'; accepted: int8"),
    (X.astype(np.complex64), X.copy(), "x.dtype is 'complex64'"),
    (X[::2], X.copy(), "x is not contiguous; accepted: a contiguous array"),
    (X[:0], X.copy(), r"x.shape is \(0,\); accepted: 1 to 2³¹ - 1 elements"),
)


def test_a_wrong_shape_is_refused_by_its_name():
    before = np.zeros(5, np.float32)
    with pytest.raises(ValueError, match=r"out.shape is \(5,\); accepted: \(7,\)"):
        launch(X, before, shapes={"out": X.shape})
    assert not before.any()


def test_a_tensor_that_requires_grad_is_refused_where_autograd_is_on():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X.copy()).requires_grad_()
    out = torch.zeros(7)
    with pytest.raises(ValueError, match=r"x.requires_grad is True; accepted: False"):
        launch(x, out)
    with torch.no_grad():
        launch(x, out)
    assert x.grad is None and torch.equal(out, 2 * x.detach())
    assert torch.equal(samples.doubled(x.detach()), out)


def test_bfloat16_and_other_devices_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"x.dtype is 'bfloat16'"):
        launch(torch.zeros(7, dtype=torch.bfloat16), torch.zeros(7))
    with pytest.raises(ValueError, match=r"out.device is 'meta'|out.device is meta"):
        launch(torch.zeros(7), torch.zeros(7, device="meta"))


def test_its_own_source_warns_nobody(monkeypatch, recwarn):
    """Its strings hold backslashes that Python 3.12 and newer warn of when they compile them."""
    warn = functools.partial(warnings.warn, "invalid escape sequence", SyntaxWarning)
    monkeypatch.setattr(runtime, "require", lambda *names: warn())
    taichi.module.__wrapped__()
    assert not recwarn.list


def test_it_is_started_once():
    samples.doubled(X)
    assert taichi.start() is taichi.start()
    for other in ({"threads": taichi.threads() + 1}, {"debug": True}):
        with pytest.raises(RuntimeError, match="is started once in a process"):
            taichi.start(**other)
    with pytest.raises(ValueError, match="device is 'tpu'; accepted: cpu, cuda"):
        taichi.start("tpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "uint64", "uint16", "float16", "int8", "bool"])
def test_what_goes_to_a_gpu_and_comes_back_keeps_dtype_and_bits(dtype):
    pytest.importorskip("torch")
    array = np.arange(-3, 3).reshape(2, 3).astype(getattr(ml_dtypes, dtype, dtype))
    tensor = child.to_torch(array)
    assert str(tensor.dtype) == f"torch.{dtype}" and tensor.shape == array.shape
    back = pickle.loads(pickle.dumps(child.to_numpy(tensor)))
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", taichi.MODULES)
def test_either_package_by_one_setting_and_without_a_network(name):
    if name not in INSTALLED:
        pytest.skip(f"{name} is not installed: pip install {name}")
    said = python(
        """
        import socket, sys

        def refuse(*a, **k):
            raise AssertionError("a connection was tried")

        socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
        import threading
        threading.excepthook = lambda failed: sys.exit(f"in a thread: {failed.exc_value}")
        from kernels import taichi
        assert not {"taichi", "quadrants"} & set(sys.modules)
        import numpy as np, taichi_samples
        assert taichi_samples.doubled(np.float32([1, 2])).tolist() == [2, 4]
        print(*({"taichi", "quadrants"} & set(sys.modules)), taichi.threads())
        assert threading.active_count() == 1, threading.enumerate()
        """,
        KERNELS_TAICHI=name,
        KERNELS_TAICHI_THREADS="2",
    )
    assert said == f"{name} 2\n"


@pytest.mark.parametrize(
    ("name", "value", "ask", "accepted"),
    [
        ("KERNELS_TAICHI", "tachi", "module", "taichi, quadrants"),
        ("KERNELS_TAICHI_THREADS", "many", "threads", "a whole number of at least 1"),
    ],
)
def test_another_setting_is_refused_by_its_name(name, value, ask, accepted, monkeypatch):
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(runtime, "_running", None)
    ask = getattr(taichi, ask)
    with pytest.raises(ValueError, match=f"^{name} is {value!r}; accepted: {accepted}$"):
        getattr(ask, "__wrapped__", ask)()


def test_a_forked_process_is_told_instead_of_hanging():
    said = python(
        """
        import os, numpy as np, taichi_samples
        taichi_samples.doubled(np.float32([1]))
        if pid := os.fork():
            os.waitpid(pid, 0)
        else:
            try:
                taichi_samples.doubled(np.float32([1]))
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        """
    )
    assert "forked" in said and "spawn" in said


def test_what_the_reader_started_by_hand_is_kept():
    python(
        """
        import numpy as np, taichi_samples
        from kernels import taichi
        ti = taichi.module()
        ti.init(arch=ti.cpu, cpu_max_num_threads=1)
        kept = ti.field(ti.i32, 3)
        kept.fill(5)
        taichi_samples.doubled(np.float32([1]))
        assert kept[2] == 5 and taichi.threads() == 1
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [taichi.MODULES[0], weekly(taichi.MODULES[1])])
def test_a_debug_run_checks_every_access_and_the_caller_lives(name, monkeypatch):
    if name not in INSTALLED:
        pytest.skip(f"{name} is not installed: pip install {name}")
    monkeypatch.setenv("KERNELS_TAICHI", name)
    np.testing.assert_array_equal(taichi.simulate(samples.doubled, X), 2 * X)
    with pytest.raises(taichi.TaichiError, match=r"Out of bound access.*indices \[7\]"):
        taichi.simulate(samples.too_far, X)
    np.testing.assert_array_equal(taichi.simulate(samples.doubled, X), 2 * X)


def test_a_debug_run_shows_what_nobody_wrote():
    assert np.isnan(taichi.simulate(samples.unwritten, X)).all()
    assert (taichi.simulate(samples.unwritten, X.astype(np.uint8)) == 255).all()


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (samples.dies, taichi.TaichiError, "died of signal 6.*: these are its last words$"),
        (samples.sleeps, taichi.TaichiError, "no answer in 1 s"),
        (samples.refuses, ValueError, "^x is wrong; accepted: what is right$"),
    ],
)
def test_what_comes_of_a_child_is_told(function, error, says):
    with pytest.raises(error, match=says):
        taichi.simulate(function, X, seconds=1 if function is samples.sleeps else 60)


def test_a_function_that_the_child_cannot_import_is_refused():
    def inner(x):
        return x

    inner.__module__ = "__main__"
    with pytest.raises(ValueError, match="accepted: a function of a module"):
        taichi.simulate(inner, X)


def test_the_child_runs_as_it_is_told():
    assert taichi.simulate(samples.told, X, threads=3).tolist() == [3, 1]
    assert taichi.run(samples.told, X, threads=2).tolist() == [2, 0]


def launched(kernel, x):
    out = taichi.empty(x.shape, x)
    taichi.launch(kernel.made(), x, out)
    return out


def test_what_was_written_is_made_once_and_runs_here_and_in_a_child():
    written = taichi.KernelSource.of(samples.double)
    assert written == taichi.KernelSource.of(samples.double) and written.made() is written.made()
    assert written.made() is not samples.double
    x = np.arange(4, dtype=np.float32)
    assert launched(written, x).tolist() == [0, 2, 4, 6]
    assert taichi.simulate(launched, written, x).tolist() == [0, 2, 4, 6]


def test_it_sees_its_arguments_and_no_more():
    knows = taichi.KernelSource(
        "knows", "def knows():\n    return float(np.float32(ti is not None))\n"
    )
    asks = taichi.KernelSource("asks", "def asks():\n    return launched\n")
    assert knows.made()() == 1
    with pytest.raises(NameError, match="launched"):
        asks.made()()
