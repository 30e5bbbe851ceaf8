"""Taichi in this process: started once, when the first kernel is launched, and never again.

Taichi takes any array that its kernel can be given, and reads and writes where the kernel says: a
wrong shape is an access out of bounds, a tensor that requires grad leaves autograd without a word.
So `launch` looks at every argument first. Arrays only: a second start would invalidate fields.
"""

import contextlib
import functools
import inspect
import io
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from kernels.machines.checks import fail, one_of, positive_int
from kernels.machines.compat import taichi as compat
from kernels.machines.optional import available, require

MODULES = ("taichi", "quadrants")  # the package, and the fork that Genesis maintains
ARCHS = ("cpu", "cuda")
DTYPES = (
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
MOST = 2**31 - 1  # elements of an array: Taichi counts them in 32 bits

# Before the import: no question to a server about newer versions, no banner, errors only.
QUIET = {
    "TI_SKIP_VERSION_CHECK": "ON",
    "TI_LOG_LEVEL": "error",
    "QD_LOG_LEVEL": "error",
    "ENABLE_TAICHI_HEADER_PRINT": "False",
    "ENABLE_QUADRANTS_HEADER_PRINT": "False",
}


@dataclass(frozen=True)
class Running:
    """How Taichi was started in this process."""

    device: str
    threads: int
    debug: bool


_running: Running | None = None
_forked = False
_lock = threading.RLock()


def name() -> str:
    """Which of MODULES this process uses: the one that the environment variable KERNELS_TAICHI
    names, or the first that is installed."""
    wanted = os.environ.get("KERNELS_TAICHI")
    if wanted is None:
        return next(filter(available, MODULES), MODULES[0])
    one_of("KERNELS_TAICHI", wanted, MODULES)
    return wanted


def check() -> None:
    """MissingPackage where the one that this process uses is not installed; nothing is imported."""
    if not available(name()):
        require(name(), "kernels in Taichi")


@functools.cache
def module() -> ModuleType:
    """The package to write kernels with; imported once, and silent, with no word to a server.

    Raises MissingPackage where it is not installed, ValueError for another KERNELS_TAICHI.
    """
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # its own, where Python compiles it first
        return require(name(), "kernels in Taichi")


def threads() -> int:
    """The CPU threads that kernels run on: KERNELS_TAICHI_THREADS, or the cores we may use."""
    if _running:
        return _running.threads
    wanted = os.environ.get("KERNELS_TAICHI_THREADS")
    if wanted is None:
        allowed = getattr(os, "sched_getaffinity", None)
        return len(allowed(0)) if allowed else os.cpu_count() or 1
    if not wanted.isdecimal() or not int(wanted):
        fail("KERNELS_TAICHI_THREADS", repr(wanted), "a whole number of at least 1")
    return int(wanted)


def start(device: str = "cpu", *, threads: int | None = None, debug: bool = False) -> Running:
    """Start Taichi in this process; where it runs already, do nothing.

    `launch` calls this by itself.

    Args:
        device: "cpu" or "cuda".
        threads: of the CPU; None is `threads()`.
        debug: check every access to an array, and fill new arrays with what nobody takes for a
            result.

    Raises:
        RuntimeError: Taichi runs already but otherwise, or in the process that this one was forked
            off.
    """
    global _running
    one_of("device", device, ARCHS)
    if threads is not None:
        positive_int("threads", threads)
    if _forked:
        raise RuntimeError(
            "this process was forked off one in which Taichi runs, and a kernel would never end "
            "here; start processes with multiprocessing.get_context('spawn')"
        )
    with _lock:
        ti = module()
        if _running is None and compat.is_started(ti):
            # By the reader himself: a second ti.init would end what he made after it.
            device_of_his = "cuda" if ti.cfg.arch == ti.cuda else "cpu"
            _running = Running(device_of_his, ti.cfg.cpu_max_num_threads, ti.cfg.debug)
        if _running is None:
            wanted = Running(device, threads or _threads(), debug)
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what it starts on
                ti.init(
                    arch=getattr(ti, device),
                    cpu_max_num_threads=wanted.threads,
                    debug=debug,
                    enable_fallback=False,
                    log_level=ti.ERROR,
                )
            _running = wanted
    has = _running
    if (device, threads or has.threads, debug or has.debug) != (has.device, has.threads, has.debug):
        raise RuntimeError(
            f"Taichi runs on {has.device}, threads={has.threads}, debug={has.debug}, and is "
            "started once in a process; kernels.taichi.run starts another process"
        )
    return has


_threads = threads  # `start` has an argument of that name


def _after_fork() -> None:
    global _forked
    _forked = _running is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def empty(shape: tuple[int, ...], like: Any, dtype: Any = None) -> Any:
    """A new array for a kernel to write: a NumPy array or a torch tensor, as `like` is.

    In a debug run every byte of it is 255, which is NaN in a float, so that an element which no
    kernel wrote is seen.

    Args:
        shape: of the new array.
        like: a NumPy array or a torch tensor, on whose device it is made.
        dtype: by default that of `like`.
    """
    if isinstance(like, np.ndarray):
        array = np.empty(shape, dtype or like.dtype)
        if _running and _running.debug:
            array.reshape(-1).view(np.uint8)[...] = 255
        return array
    array = like.new_empty(shape, dtype=dtype or like.dtype)
    if _running and _running.debug:
        array.view(-1).view(require("torch", "tensors").uint8).fill_(255)
    return array


def launch(
    kernel: Callable[..., None],
    *arguments: Any,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Run a Taichi kernel; it has finished, or is queued on its GPU, when this returns.

    Args:
        kernel: one that `ti.kernel` made.
        *arguments: those of the kernel, in order: numbers, NumPy arrays and torch tensors, none
            copied. All arrays must be on one device, the CPU or the first GPU; contiguous, of one
            of DTYPES and of less than 2³¹ elements; and without gradients, unless autograd is off,
            as it is in the forward pass of a torch.autograd.Function.
        shapes: what the shape of a named argument must be.

    Raises:
        ValueError: before anything runs, with the name that the kernel gives the argument.
    """
    by_name = dict(zip(_names(kernel), arguments, strict=True))
    devices = {}
    for key, value in by_name.items():
        if isinstance(value, (bool, int, float, np.integer, np.floating)):
            continue
        devices[key] = _check(key, value)
        by_name[key] = value.detach() if getattr(value, "requires_grad", False) else value
    for key, shape in (shapes or {}).items():
        if tuple(by_name[key].shape) != tuple(shape):
            fail(f"{key}.shape", tuple(by_name[key].shape), str(tuple(shape)))
    first, device = next(iter(devices.items()), ("", "cpu"))
    for key, other in devices.items():
        if other != device:
            fail(f"{key}.device", other, f"{device}, where {first} is")
    if device != "cuda:0":
        start("cpu")
        kernel(*by_name.values())
        return
    start("cuda")
    with _in_order():
        kernel(*by_name.values())


@functools.cache
def _names(kernel: Callable[..., None]) -> tuple[str, ...]:
    return tuple(inspect.signature(kernel).parameters)


def _check(name: str, value: Any) -> str:
    """Refuse what Taichi would misread; the device that the array is on."""
    if isinstance(value, np.ndarray):
        device, dtype, size = "cpu", str(value.dtype), value.size
        contiguous = value.flags.c_contiguous
    elif type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "is_contiguous"):
        device, dtype = str(value.device), str(value.dtype).removeprefix("torch.")
        size, contiguous = value.numel(), value.is_contiguous()
        if value.requires_grad and require("torch", "tensors").is_grad_enabled():
            accepted = "False: Taichi knows nothing of autograd; detach the tensor"
            fail(f"{name}.requires_grad", True, accepted)
    else:
        fail(name, f"a {type(value).__name__}", "a number, a NumPy array or a torch tensor")
    one_of(f"{name}.dtype", dtype, DTYPES)
    if device not in ("cpu", "cuda:0"):
        fail(f"{name}.device", device, "cpu, cuda:0")
    if not contiguous:
        fail(name, "not contiguous", "a contiguous array")
    if not 0 < size <= MOST:
        fail(f"{name}.shape", tuple(value.shape), "1 to 2³¹ - 1 elements")
    return device


@contextlib.contextmanager
def _in_order():
    """Taichi launches on CUDA's default stream; where torch uses another, wait before and after."""
    stream = require("torch", "tensors").cuda.current_stream()
    if stream.cuda_stream == 0:
        yield
        return
    stream.synchronize()
    yield
    module().sync()
