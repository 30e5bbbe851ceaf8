"""Commands as a reader types them: the package's in this process, others in one of their own."""

import contextlib
import os
import resource
import subprocess
import sys
import time

import psutil
import pytest
from typer.testing import CliRunner
from xla_flags import quick_to_compile

from kernels.cli import app, terminal
from kernels.machines.optional import available


def weekly(*values, **options):
    """A case that only the tier full runs."""
    return pytest.param(*values, marks=pytest.mark.full, **options)


needs_libtpu = pytest.mark.skipif(not available("libtpu"), reason="libtpu is not installed")


def run(*words, columns=120):
    """What a command of the package says, and its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal.console, "width", columns)  # a dumb terminal has 80 whatever it says
        return CliRunner().invoke(app, [*map(str, words)], env={"NO_COLOR": "1"})


@contextlib.contextmanager
def quick_children():
    """Within it XLA compiles for the CPU as quickly in the processes that are started as here. Not
    for what a TPU's compiler does too, which reads the same flags."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("TESTS_OPTIMISED"):
            flags = f"{quick_to_compile()} {os.environ.get('XLA_FLAGS', '')}"
            patch.setenv("XLA_FLAGS", flags)
        yield


def process(*words, **options):
    """A process that has ended, with what it printed as text."""
    return subprocess.run(words, capture_output=True, text=True, **options)


def processor():
    """Processor seconds of this process and of its children, those that ended included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = time.process_time() + ended.ru_utime + ended.ru_stime
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += sum(each.cpu_times()[:2])
    return found


def lives(process):
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


def wait(condition, seconds=90.0):
    """Until a condition holds, which it does before the time is over."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def python(*words, **options):
    """The same of this environment's Python."""
    return process(sys.executable, *words, **options)
