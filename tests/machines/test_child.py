"""Children: what they answer, how they die, who is left when their parent dies."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import lives, wait

from kernels.machines import child
from kernels.machines.child import Child, ChildDied, ChildError, ChildLate, Spares

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = """
import os, signal, subprocess, sys, time
from kernels.machines import child

def answer(question):
    what, value = question
    if what == "say":
        print(value)  # to stderr, not among the answers
        os.system(f"echo {value} in C")
    elif what == "die":
        print("these are its last words", flush=True)
        os.kill(os.getpid(), value)
    elif what == "exit":
        sys.exit(value)
    elif what == "raise":
        raise KeyError(value)
    elif what == "sleep":
        time.sleep(value)
    elif what == "unpicklable":
        return lambda: value
    elif what == "start":  # somebody who outlives it
        return subprocess.Popen(["sleep", "600"]).pid
    elif what == "hold":
        answer.held = bytearray(value)
    elif what == "read":
        return sys.stdin.read()
    return os.getpid(), value

child.serve(lambda: answer)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "answers.py"
    path.write_text(ANSWERS)
    return child.python(str(path))


@pytest.fixture
def one(script):
    made = Child(script)
    yield made
    made.close()


def test_it_answers_one_question_after_another(one):
    assert [one.ask(("", n), 30) for n in range(3)] == [(one.process.pid, n) for n in range(3)]
    assert one.ask(("", b"x" * 3_000_000), 30)[1] == b"x" * 3_000_000  # more than a pipe holds
    assert one.ask(("read", None), 30) == ""  # it has no input but its questions


def test_what_it_prints_is_kept_apart_from_what_it_answers(one):
    one.ask(("say", "first"), 30)
    assert one.ask(("say", "second"), 30) == (one.process.pid, "second")
    assert one.stderr().split("\n")[:2] in (["second", "second in C"], ["second in C", ""])
    assert "first" not in one.stderr()


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (("die", signal.SIGABRT), "died of SIGABRT: these are its last words$"),
        (("die", signal.SIGKILL), "died of SIGKILL: these are its last words$"),
        (("exit", 3), "died of exit code 3$"),
        (("raise", "why"), "died of exit code 1: KeyError: 'why'$"),
    ],
)
def test_its_death_is_told_with_its_last_words(one, question, says):
    with pytest.raises(ChildDied, match=says) as caught:
        one.ask(question, 30)
    assert caught.value.status and not lives(one.process.pid)


def test_a_program_that_cannot_start_says_why(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import nosuchmodule")
    with pytest.raises(ChildDied, match=r"exit code 1: ModuleNotFoundError: .*nosuchmodule"):
        Child(child.python(str(path))).ask("anything", 30)


def test_what_takes_too_long_is_ended(one):
    with pytest.raises(ChildLate, match=r"no answer in 0\.5 s"):
        one.ask(("sleep", 100), 0.5)
    assert not lives(one.process.pid)


def test_what_cannot_be_pickled_is_told_and_it_goes_on(one):
    with pytest.raises(ChildError, match=r"the result: .*lambda"):
        one.ask(("unpicklable", 1), 30)
    with pytest.raises(ChildError, match="the question: AssertionError"):
        one.ask(("", Unknown()), 30)
    assert one.ask(("", 1), 30)[1] == 1


def test_what_a_stranger_answers_runs_no_code(script):
    stranger = Child(script, plain=True)
    with pytest.raises(ChildError, match=r"the answer: it is no plain data, but of pathlib"):
        stranger.ask(("", Path("x")), 30)
    assert stranger.ask(("", {"x": [1.5, "y"]}), 30)[1] == {"x": [1.5, "y"]}
    stranger.close()


class Unknown:
    """Can be pickled, and cannot be read again."""

    def __reduce__(self):
        return Unknown.named, ()

    @staticmethod
    def named():
        raise AssertionError


def test_whoever_it_started_ends_with_it(script):
    parent = Child(script)
    other = parent.ask(("start", None), 30)
    assert lives(other)
    parent.close()
    wait(lambda: not lives(other))
    parent = Child(script)
    other = parent.ask(("start", None), 30)
    with pytest.raises(ChildDied):
        parent.ask(("die", signal.SIGSEGV), 30)
    wait(lambda: not lives(other))


def test_its_folder_goes_with_it(script, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "file").touch()
    Child(script, folder=folder).close()
    assert not folder.exists()


SECRETS = {"GIT_TOKEN": "a", "AWS_REGION": "b", "Api_Key": "c", "PROXY": "https://me:d@host"}


def test_its_environment_is_what_it_is_given_without_secrets(tmp_path):
    path = tmp_path / "tells.py"
    path.write_text(
        "import os\nfrom kernels.machines import child\n"
        "child.serve(lambda: lambda name: os.environ.get(name))\n"
    )
    known = {"KERNELS_TEST": "yes", "JAX_LEGACY_PRNG_KEY": "warn", "HOME": "https://host:1/a@b"}
    made = Child(child.python(str(path)), environment={**os.environ, **known, **SECRETS})
    assert {name: made.ask(name, 30) for name in known} == known
    assert not [name for name in SECRETS if made.ask(name, 30)]
    made.close()
    shown = child.run(["env"], seconds=30, environment=known | SECRETS).stdout
    assert sorted(shown.splitlines()) == sorted("=".join(pair) for pair in known.items())


def ready(script):
    made = Child(script)
    made.ask(("", 0), 30)
    return made


class TestSpares:
    @pytest.fixture
    def spares(self):
        made = Spares(most=2, seconds=60)
        yield made
        made.close()

    def test_a_spare_goes_to_whoever_asks_for_its_kind(self, spares, script):
        first = ready(script)
        spares.keep("a", first)
        assert spares.take("b") is None
        assert spares.take("a") is first and spares.take("a") is None
        assert first.ask(("", 1), 30) == (first.process.pid, 1)
        first.close()

    def test_no_more_are_kept_than_that(self, spares, script):
        three = [ready(script) for _ in range(3)]
        for each in three:
            spares.keep("a", each)
        assert [lives(each.process.pid) for each in three] == [False, True, True]
        spares.close()
        assert not any(lives(each.process.pid) for each in three)

    @pytest.mark.parametrize("seconds", [60, 0.2])
    def test_nobody_waits_forever_and_one_that_died_is_not_given_away(self, script, seconds):
        spares, one = Spares(seconds=seconds), ready(script)
        spares.keep("a", one)
        if seconds == 60:
            os.kill(one.process.pid, signal.SIGKILL)
        wait(lambda: not lives(one.process.pid))
        assert spares.take("a") is None

    def test_one_that_is_busy_large_or_old_is_ended(self, spares, script, monkeypatch):
        busy = Child(script)
        busy.send(("sleep", 60))
        monkeypatch.setattr(child, "LARGEST", 100 << 20)
        large = Child(script)
        large.ask(("hold", 200 << 20), 30)
        old = Child(script)
        monkeypatch.setattr(child, "OLDEST", 3)
        for _ in range(3):
            old.ask(("", 0), 30)
        for each in (busy, large, old):
            spares.keep("a", each)
            assert not lives(each.process.pid)
        assert spares.take("a") is None


class TestRun:
    def test_a_program_that_ends(self):
        done = child.run(["sh", "-c", "echo out; echo err >&2; exit 3"], seconds=30)
        assert (done.status, done.stdout, done.stderr) == (3, "out\n", "err\n")

    @pytest.mark.parametrize(
        ("command", "seconds"),
        [("sleep 60 & echo $! > {}; wait", 1), ("sleep 60 >/dev/null 2>&1 & echo $! > {}", 30)],
        ids=["it has not ended", "it has ended"],
    )
    def test_what_it_started_ends_with_it(self, command, seconds, tmp_path):
        number, late = tmp_path / "number", pytest.raises(ChildLate, match="sh had not ended after")
        with late if seconds == 1 else contextlib.nullcontext():
            child.run(["sh", "-c", command.format(number)], seconds=seconds)
        wait(lambda: not lives(int(number.read_text())))


PARENT = """
import os, signal, sys, time
from kernels.machines import child
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run behind `&`
command, folder, then = child.python(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
busy, idle = child.Child(command, folder=folder), child.Child(command)
idle.ask(("", 0), 60)
spares = child.Spares()
spares.keep("a", idle)
busy.ask(("", 0), 60)
other = busy.ask(("start", None), 60)
if then == "guard":  # somebody kills the guard: the next child brings a new one
    child._guard.kill()
    child._guard.wait()
    child.run(["true"], seconds=10)
if then == "fork":
    forked = os.fork()
    if not forked:
        child.Child(command).ask(("", 0), 60)
        sys.exit()
    os.waitpid(forked, 0)
    assert busy.ask(("", 1), 60) == (busy.process.pid, 1), "the forked process ended it"
print(os.getpid(), busy.process.pid, idle.process.pid, other, child._guard.pid, flush=True)
if then == "exit":
    sys.exit()
busy.ask(("sleep", 600), 600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "how"),
    [("wait", signal.SIGTERM), ("wait", signal.SIGINT), ("exit", None)]
    + [(then, signal.SIGKILL) for then in ("wait", "guard", "fork")],
)
def test_nobody_and_nothing_outlives_the_parent(then, how, script, tmp_path):
    path = tmp_path / "parent.py"
    path.write_text(PARENT)
    folder = tmp_path / "own"
    folder.mkdir()
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, str(path), script[-1], str(folder), then]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, **pipes) as parent:
        processes = [int(word) for word in parent.stdout.readline().split()]
        try:
            if how is not None:
                assert len(processes) == 5 and all(map(lives, processes)), parent.stderr.read()
                time.sleep(0.2)
                parent.send_signal(how)
            parent.wait(30)
        finally:
            parent.kill()
    wait(lambda: not any(map(lives, processes)) and not folder.exists())


INTERRUPTED = """
import signal, subprocess, sys
from kernels.machines import child

def start(*arguments, **options):
    process = begin(*arguments, **options)
    print(process.pid, flush=True)
    next(others, None) or signal.raise_signal(signal.SIGINT)
    return process

signal.signal(signal.SIGINT, signal.default_int_handler)
others, begin, subprocess.Popen = iter(sys.argv[1]), subprocess.Popen, start
try:
    kept = child.Child(["sleep", "600"])
    child.run(["sleep", "600"], seconds=600)
except KeyboardInterrupt:
    pass
"""


@pytest.mark.parametrize("before", ["", "1", "12"], ids=["a child", "the guard", "a program"])
def test_ctrl_c_leaves_nobody_who_was_about_to_start(before):
    command = [sys.executable, "-c", INTERRUPTED, before]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    processes = [int(word) for word in done.stdout.split()]
    assert len(processes) > len(before), done.stderr
    wait(lambda: not any(map(lives, processes)), seconds=10)


def test_the_guard_is_one_for_all_and_costs_little(script):
    children = [Child(script) for _ in range(3)]
    guard = child._guard.pid
    pages = int(Path(f"/proc/{guard}/statm").read_text().split()[1])
    assert lives(guard) and pages * os.sysconf("SC_PAGE_SIZE") < 32 << 20
    children.append(Child(script))
    assert child._guard.pid == guard
    for one in children:
        one.close()
    assert not set(child._watched) & {one.process.pid for one in children}
