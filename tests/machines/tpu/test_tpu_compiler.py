"""Compiling without a TPU: what comes back, and every way in which it can fail."""

import contextlib
import errno
import functools
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from commands import wait
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from pallas_samples import blockwise, shape

from kernels import optional, tpu
from kernels.machines import cache, child
from kernels.machines.compat import libtpu
from kernels.machines.tpu import TpuCompileError, pool
from kernels.machines.tpu.diagnose import translate
from kernels.machines.tpu.export import export
from kernels.matmul import matmul

BF16 = shape(256, 256)
multiply = functools.partial(matmul, interpret=False)


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """Nothing is known from before: these tests ask what the children do."""
    monkeypatch.setattr(cache.TPU, "get", lambda key: None)


@pytest.fixture
def started(monkeypatch):
    """The processes of the children that a test starts."""
    found = []
    start = child.Child.__init__

    def remember(self, *args, **options):
        start(self, *args, **options)
        found.append(self.process)

    monkeypatch.setattr(child.Child, "__init__", remember)
    monkeypatch.setenv(pool.CHILDREN, "1")
    pool.close()
    return found


# What JAX itself refuses needs no libtpu.


def test_export_names_the_line_of_an_unsupported_operation():
    def body(x_ref, o_ref):
        o_ref[...] = jnp.sort(x_ref[...], axis=-1)

    line = body.__code__.co_firstlineno + 1
    function, arg = blockwise((8, 128), (8, 128), body=body)
    with pytest.raises(TpuCompileError, match="no `sort`") as caught:
        export(function, arg)
    assert caught.value.source == f"test_tpu_compiler.py:{line}"


def test_missing_libtpu(monkeypatch):
    available = optional.available
    monkeypatch.setattr(optional, "available", lambda m: m != "libtpu" and available(m))
    for function in (tpu.compile, tpu.schedule, tpu.estimate):
        with pytest.raises(optional.MissingPackage, match=r"pip install .*\[tpu\]"):
            function(multiply, BF16, BF16)


# What follows needs the compiler.


@pytest.mark.parametrize("chip", tpu.CHIPS)
def test_compile(chip, scratch, capfd):
    done = tpu.compile(multiply, BF16, BF16, chip=chip)
    assert done.memory.arguments == 2 * 256 * 256 * 2 and done.memory.results == 256 * 256 * 2
    assert "tpu_custom_call" in done.hlo and done.executable and done.seconds > 0
    assert done.chip == chip and done.libtpu[0].isdigit()
    assert done.optimal_seconds is None  # the kernel has no cost estimate
    assert capfd.readouterr() == ("", "")


OVERFLOWS = blockwise((8192, 1024), (4096, 1024))


def test_too_much_vmem_is_refused_by_what_the_chips_grant(scratch):
    programs = [export(*OVERFLOWS, chip=name) for name in tpu.CHIPS]
    errors = dict(zip(tpu.CHIPS, pool.compile_all(programs)))
    for name, error in errors.items():
        assert error.kind == "vmem"
        assert error.limit_bytes == pytest.approx(tpu.CHIPS[name].vmem_limit_bytes, rel=0.01)
    error = errors["v5e"]
    assert error.limit_bytes == 16 << 20 and error.asked_bytes >= 4 * (16 << 20)
    assert dict(error.buffers)["input x (2 buffers)"] == 32 << 20
    assert "Scoped allocation" in error.original and error.seconds > 0


def test_timeout(scratch):
    with pytest.raises(TpuCompileError, match=r"not finished .* after 0\.01 s") as caught:
        tpu.compile(multiply, BF16, BF16, timeout=0.01)
    assert caught.value.kind == "timeout"
    assert tpu.compile(multiply, BF16, BF16).hlo  # and the caller goes on


@pytest.mark.parametrize(
    ("past", "worked", "late"),
    [
        (-1.0, 99.0, False),  # before its deadline
        (0.1, 10.5, True),  # it had its ten seconds
        (5.0, 6.0, False),  # others have the processor
        (19.0, 9.9, False),
        (20.5, 9.9, True),  # but not for ever
        (0.5, 0.2, True),  # it does nothing: it hangs
        (0.1, None, True),  # nobody says how much it worked
    ],
)
def test_a_limit_is_one_of_processor_time_on_a_busy_machine(past, worked, late):
    child = SimpleNamespace(worked=lambda: None if worked is None else 100.0 + worked)
    times = {"deadline": time.monotonic() - past, "before": 100.0}
    of = SimpleNamespace(job=0, child=child, **times)
    made = SimpleNamespace(_limit=lambda index: 10.0)
    assert pool._Pool._is_late(made, of) is late
    of.job = None
    assert pool._Pool._is_late(made, of) is False


def test_what_a_child_has_worked():
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    made = child.Child([sys.executable, "-c", code + "\ninput()"])
    try:
        wait(lambda: sys.platform != "linux" or 0.3 <= (made.worked() or 0) < 3)
    finally:
        made.close()


def _pretend(monkeypatch, tmp_path, body):
    """Let children run `body` in the place of the worker, for its first job."""
    script = tmp_path / "pretender.py"
    script.write_text(
        "import os, signal\nfrom kernels.machines import child\n"
        f"def answer(question):\n    {body}\n"
        "child.serve(lambda: answer)\n"
    )
    monkeypatch.setattr(pool, "WORKER", str(script))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "ran out of memory"),
        ("os.abort()", "SIGABRT"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_a_child_that_dies(body, words, scratch, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        _pretend(patch, tmp_path, body)
        with pytest.raises(TpuCompileError, match=words) as caught:
            tpu.compile(multiply, BF16, BF16)
        assert caught.value.kind == "crashed"
    assert tpu.compile(multiply, BF16, BF16).hlo


def test_a_full_disk(scratch, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    pool.close()
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", full)
        with pytest.raises(TpuCompileError, match="no space left in") as caught:
            tpu.compile(multiply, BF16, BF16)
        assert caught.value.kind == "disk"
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", full)
        with pytest.raises(TpuCompileError, match="no space left in"):
            tpu.schedule(multiply, BF16, BF16)


@pytest.mark.libtpu
def test_a_disk_that_fills_up_while_the_compiler_dumps(tmp_path, monkeypatch):
    """On a real file system of 200 KiB, where this machine lets us mount one."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system here")
    try:
        pool.close()
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        with pytest.raises(TpuCompileError, match="no space left in") as caught:
            tpu.schedule(multiply, shape(1024, 1024), shape(1024, 1024))
        assert caught.value.kind == "disk" and not list(small.iterdir())
    finally:
        pool.close()
        subprocess.run(["umount", str(small)], check=True)


def test_an_interrupt_leaves_nothing_behind(scratch, monkeypatch):
    def interrupt(self, compiler, index, answer):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool._Pool, "_collect", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tpu.compile(multiply, BF16, BF16)
    pool.close()
    assert not list(scratch.iterdir())


@pytest.mark.libtpu
def test_a_compiler_whose_caller_is_killed_ends_and_cleans_up(tmp_path):
    """test_child.py kills callers in every other way, of children that wait too."""
    script = tmp_path / "caller.py"
    script.write_text(
        "import jax, jax.numpy as jnp\n"
        "from kernels.machines.tpu import pool\n"
        "from kernels.machines.tpu.export import export\n"
        "x = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)\n"
        "program = export(lambda x: x @ x, x)\n"
        "print('ready', flush=True)\n"
        "pool.compile_all([program], purposes=('profile',))\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    env = dict(os.environ, TMPDIR=str(folder), JAX_PLATFORMS="cpu")
    env[cache.FOLDER] = str(tmp_path / "cache")  # what is known already starts no compiler
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, script], env=env, **pipes) as caller:
        caller.stdout.readline()
        # The caller, its guard and the compiler, at work: so the guard has heard of it.
        wait(lambda: len(_processes(folder)) == 3 and list(folder.glob("kernels-tpu-*/*/*")))
        caller.kill()
    wait(lambda: not _processes(folder) and not list(folder.iterdir()))


def _processes(folder):
    """Those that were started with this folder for their temporary files."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={folder}".encode() in path.read_bytes():
                found.append(path)
    return found


@pytest.mark.parametrize("sizes", [(256,), (256, 128)], ids=["one child", "two children"])
def test_a_flag_that_libtpu_has_not(sizes, scratch, monkeypatch):
    monkeypatch.setattr(pool, "_dropped", set())
    monkeypatch.setenv(pool.CHILDREN, "2")
    monkeypatch.setitem(libtpu.FLAGS, "profile", ("xla_jf_dump_bogus={}",))
    programs = [export(multiply, shape(n, n), shape(n, n)) for n in sizes]
    for done in pool.compile_all(programs, purposes=("profile",)):
        assert isinstance(done, pool.TpuProgram) and done.hlo, done
    assert pool.dropped() == {"xla_jf_dump_bogus"}


def test_nothing_is_left_in_the_readers_folders(started, scratch, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    monkeypatch.setenv("TPU_LOG_DIR", str(tmp_path / "logs"))
    assert tpu.compile(multiply, BF16, BF16).hlo
    children = [str(process.pid) for process in started]
    logs = [*Path("/tmp/tpu_logs").glob("*"), *(tmp_path / "logs").glob("*")]
    assert children and not [f for f in logs if f.name.rpartition(".")[2] in children]
    assert not cache.exists() or not list(cache.iterdir())


def test_a_caller_that_loses_interest(scratch):
    program = export(multiply, BF16, BF16)
    with contextlib.closing(pool.compile_each([program] * 5)) as results:
        next(results)


def test_a_compiler_waits_for_the_next_program_of_its_kind(started, scratch):
    first = tpu.compile(multiply, BF16, BF16)
    schedule = tpu.schedule(multiply, BF16, BF16)
    larger = shape(512, 512)
    tpu.compile(multiply, larger, larger)
    tpu.schedule(multiply, larger, larger)
    # What came between leaves no trace.
    assert tpu.compile(multiply, BF16, BF16).hlo == first.hlo
    again = tpu.schedule(multiply, BF16, BF16)
    assert [k.bundles for k in again.kernels] == [k.bundles for k in schedule.kernels]
    assert len(started) == 2 and all(process.poll() is None for process in started)
    pool.close()
    assert all(process.poll() is not None for process in started)
    assert not list(scratch.iterdir())


def test_one_that_was_refused_a_program_takes_the_next(started, scratch):
    with pytest.raises(TpuCompileError, match="of VMEM"):
        tpu.compile(*OVERFLOWS)
    assert tpu.compile(multiply, BF16, BF16).hlo and len(started) == 1


def test_one_that_died_waiting_is_replaced(started, scratch, monkeypatch):
    assert tpu.compile(multiply, BF16, BF16).hlo
    started[0].kill()
    started[0].wait()
    assert tpu.compile(multiply, BF16, BF16).hlo and len(started) == 2
    # It may die just when it is given a program, which is not the program's fault.
    take = child.Spares.take

    def take_and_kill(self, kind):
        if found := take(self, kind):
            found.process.kill()
            found.process.wait()
        return found

    monkeypatch.setattr(child.Spares, "take", take_and_kill)
    assert tpu.compile(multiply, BF16, BF16).hlo and len(started) == 3


def test_one_with_other_settings_does_not_serve(started, scratch, monkeypatch):
    assert tpu.compile(multiply, BF16, BF16).hlo
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert tpu.compile(multiply, BF16, BF16).hlo and len(started) == 2


def test_a_hopeless_program_does_not_keep_us_waiting(scratch, monkeypatch):
    """The compiler searches for minutes where a float32 matmul's blocks do not fit."""
    monkeypatch.setattr(pool, "HOPELESS", 1.0)

    def body(x_ref, y_ref, z_ref, acc_ref):
        acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = acc_ref[...]

    large, block = shape(4096, 4096, dtype=jnp.float32), (2048, 2048)
    left, right, out = (
        pl.BlockSpec(block, index)
        for index in (lambda i, j, s: (i, s), lambda i, j, s: (s, j), lambda i, j, s: (i, j))
    )
    options = {"grid": (2, 2, 2), "scratch_shapes": [pltpu.VMEM(block, jnp.float32)]}
    hopeless = pl.pallas_call(
        body, in_specs=[left, right], out_specs=out, out_shape=large, **options
    )
    with pytest.raises(TpuCompileError, match="asks for at least") as caught:
        tpu.compile(hopeless, large, large)
    error = caught.value
    assert error.kind == "vmem" and error.limit_bytes == 16 << 20
    assert error.asked_bytes == sum(size for _, size in error.buffers) == 7 * (16 << 20)
    assert "not finished" in str(error)


MIB = 1 << 20
# name → the kind, words of the message, and what the compiler said.
SAID = json.loads(Path(__file__).with_name("data").joinpath("errors.json").read_text())


@pytest.mark.parametrize("name", SAID)
def test_recorded_texts(name):
    kind, words, text = SAID[name]
    error = translate(text)
    assert error.kind == kind and words in str(error) and error.original == text
    assert "/" not in (error.source or "") and (kind != "block" or error.operand == "args[0]")


def test_vmem_says_how_much_and_what():
    buffers = ("input x", 64 * MIB), ("output o", 64 * MIB)
    error = translate(SAID["vmem"][-1], buffers=[*buffers])
    assert (error.asked_bytes, error.limit_bytes) == (128 * MIB, 16 * MIB)
    assert error.buffers == buffers and "input x 64.00 MiB" in str(error)
    error = translate(SAID["vmem_v5p"][-1])  # where the compiler itself lists them
    assert error.buffers == (("input 0", 32 * MIB), ("output 0", 32 * MIB))


def test_block_says_which_operand_and_what_would_be_legal_and_travels():
    error = translate(SAID["block8"][-1])
    assert error.operand == "args[0]" and error.source == "kernel.py:12"
    assert "multiple of 8 or all 100" in error.accepted
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.operand, again.original) == (str(error), "args[0]", error.original)
    assert len({error, again}) == 2


def test_an_unknown_text_is_kept():
    error = translate("INTERNAL: the cat walked over /home/me/x/kernel.py\nmore")
    assert error.kind == "other" and str(error) == "INTERNAL: the cat walked over kernel.py"
    assert error.original.endswith("more")
    assert isinstance(error, RuntimeError) and isinstance(error, TpuCompileError)
