"""The installer finds a Python, takes uv or pip, and explains what goes wrong."""

import ast
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import install as installer
import pytest
import pythons
from commands import process, python
from packaging.requirements import Requirement
from test_environment import EXTRAS, MINORS, PROJECT, ROOT, applies, brought, pins

INSTALL = ROOT / "tools" / "install.py"


def checkout(tmp_path):
    """As much of the repository as the installer needs, in a folder with a space in its name."""
    root = tmp_path / "a book"
    (root / "tools").mkdir(parents=True)
    (root / "kernels").mkdir()
    (root / "kernels" / "__init__.py").touch()
    files = "pyproject.toml constraints.txt README.md LICENSE tools/install.py tools/pythons.py"
    for name in files.split():
        shutil.copy(ROOT / name, root / name)
    return root


def install(root, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    done = python(root / "tools" / "install.py", *arguments, env=clean | env, timeout=120)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return done.returncode, said


@pytest.fixture
def asked_of_pip(monkeypatch, tmp_path):
    """What an installation of two extras into an empty venv asks for, without fetching it."""
    asked, venv = [], tmp_path / ".venv"

    def fetch(venv, extras, log_path, newest_releases=False, into=None):
        asked.append((extras, into))
        if into:
            (into / "nvidia/x/include").mkdir(parents=True)

    monkeypatch.setattr(installer, "fetch", fetch)
    monkeypatch.setattr(installer, "make_venv", lambda *_, **__: venv.mkdir(exist_ok=True))
    monkeypatch.setattr(installer, "version_of", lambda python: "3.11.2")
    monkeypatch.setattr(installer, "python_in", lambda venv: sys.executable)

    def again():
        asked.clear()
        (venv / ".installed.json").unlink(missing_ok=True)
        installer.install(venv, ["dev", "gpu"], None)
        return list(asked), venv

    return again


def test_what_jax_would_load_gets_a_folder_of_its_own(asked_of_pip):
    asked, venv = asked_of_pip()
    apart = [(["gpu"], venv / "gpu")] if sys.platform == "linux" else []
    assert asked == [(["dev"], None), *apart]
    if apart:
        assert not (venv / "gpu/nvidia/x/include").exists(), "what nothing reads is removed"
        assert asked_of_pip()[0] == [(["dev"], None)], "it is not fetched again"
        (venv / "gpu" / ".installed").write_text("another version")
        assert asked_of_pip()[0] == asked


def test_an_old_python_can_read_the_installer_which_reads_the_extras_as_pip_does():
    for name in ("install", "pythons"):
        ast.parse(INSTALL.with_name(f"{name}.py").read_text(), feature_version=(3, 6))
    assert installer.project_extras() == EXTRAS
    for extra in installer.PRIVATE:
        assert all(Requirement(need).marker for need in EXTRAS[extra])


# A Python of any version, which runs what it is given all the same: sys.executable is its own path.
FAKE = """#!/bin/sh
case "$*" in
  *"sys.version_info[:3]"*) echo {version} ;;
  *"import venv, ensurepip"*) exit {without_venv} ;;
  *tools/install.py*) shift; exec "{real}" -c "import sys; sys.executable = '$0'
sys.path.insert(0, 'tools')
import pythons
try: print('TAKEN', *pythons.find_python(sys.argv[1] if len(sys.argv) > 1 else None))
except pythons.Stop as stop: sys.exit(str(stop))" $(echo "$*" | sed -n 's/.*--python //p') ;;
  *sys.exit*) exit {too_old} ;;
esac
"""


def make_with(tmp_path, pythons, *arguments, **env):
    """What `make venv` says where these Pythons are, and no other: path → version."""
    root = checkout(tmp_path)
    shutil.copy(ROOT / "Makefile", root)
    for name, version in pythons.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        number, *flaws = version.split()
        exits = {"without_venv": int("without-venv" in flaws), "too_old": int(number[0] == "2")}
        path.write_text(FAKE.format(version=number, real=sys.executable, **exits))
        path.chmod(0o755)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("make", "sh", "sed", "awk"):
        (tools / name).symlink_to(shutil.which(name))
    env |= {"PATH": f"{tmp_path / 'bin'}:{tools}", "HOME": str(tmp_path / "home")}
    done = process("make", "venv", *arguments, cwd=root, env=env, timeout=120)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return said.replace(f"{tmp_path}/", "")


def taken(said):
    found = re.search(r"^TAKEN (.*)$", said, re.M)
    return found and found[1]


FOLDERS = {
    f"home/{folder}/bin/python3": "3.12.1"
    for folder in (".pyenv/versions/3.12.1", ".local/share/uv/python/cp", "miniforge3/envs/jax")
}


@pytest.mark.parametrize(
    ("pythons", "wanted"),
    [
        ({"bin/python3": "3.11.7", "bin/python3.13": "3.13.0"}, "bin/python3"),
        ({"bin/python3": "3.14.0", "bin/python3.12": "3.12.1"}, "bin/python3.12"),
        ({"bin/python3.13": "3.13.1 without-venv", "bin/python3.12": "3.12.3"}, "bin/python3.12"),
        ({"bin/python": "2.7.18", "bin/python3.13": "3.13.1"}, "bin/python3.13"),
        *(({place: "3.12.1", "bin/python3.11": "3.11.2"}, place) for place in FOLDERS),
    ],
)
def test_make_takes_python3_where_it_is_supported_or_else_the_newest_that_is(
    tmp_path, pythons, wanted
):
    said = make_with(tmp_path, {"bin/python3": "3.6.15"} | pythons)
    number = pythons[wanted].split()[0]
    assert taken(said) == f"{wanted} {number}", said
    if wanted != "bin/python3":
        version = pythons.get("bin/python3", "3.6.15")
        told = f"bin/python3 is Python {version}; the book needs Python 3.11 to 3.13, so {wanted}"
        assert f"{told} is taken, Python {number}. PYTHON=PATH chooses another." in said


@pytest.mark.parametrize(("state", "kept"), [("finished", True), ("unfinished", False)])
def test_a_venv_that_works_is_kept_whichever_python_runs_the_installer(
    asked_of_pip, monkeypatch, state, kept
):
    _, venv = asked_of_pip()
    (venv / ".installed.json").write_text('{"state": "of other pins", "extras": []}')
    if state == "unfinished":
        (venv / ".unfinished").touch()
    chosen = []
    monkeypatch.setattr(pythons, "find_python", lambda wanted: ("another", "3.12.1"))
    monkeypatch.setattr(installer, "make_venv", lambda python, *_, **__: chosen.append(python))
    installer.install(venv, ["dev"], None)
    assert chosen == [str(installer.python_in(venv)) if kept else "another"]


UNTRIED = "These are here:\n  make book PYTHON=bin/{} (3.14.2, on which nobody has tried the book)"
TWO = {"bin/python3": "3.11.7", "bin/python3.9": "3.9.2"}
HERE = "These are here:\n  make book PYTHON=bin/python3 (3.11.7)\n"


@pytest.mark.parametrize(
    ("here", "named", "python", "told"),
    [
        ({"bin/python3.x": "3.12.1"}, "python3.x", "bin/python3.x 3.12.1", []),
        ({"bin/python3.x": "3.14.2"}, "python3.x", "bin/python3.x 3.14.2", ["nobody has tried"]),
        ({"bin/python3": "3.14.2"}, "", None, ["3 is Python 3.14.2", UNTRIED.format("python3")]),
        ({"bin/python3.14": "3.14.2"}, "", None, [UNTRIED.format("python3.14")]),
        (TWO, "python3.9", None, ["is Python 3.9.2", HERE]),
        (TWO, "no", None, ["does not run", HERE]),
        ({"bin/python3": "3.8.10"}, "", None, ["python3 is Python 3.8.10", "apt install python3"]),
        ({}, "", None, ["There is no Python here. Install Python 3.11 to 3.13"]),
    ],
)
def test_make_takes_the_python_that_is_named_or_says_what_there_is(
    tmp_path, here, named, python, told
):
    said = make_with(tmp_path, here, *([f"PYTHON={named}"] if named else []))
    assert taken(said) == python and all(words in said for words in told), said


def test_a_venv_of_another_python_than_the_one_named_is_made_again(tmp_path, capsys, monkeypatch):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".installed.json").touch()
    monkeypatch.setattr(pythons, "ask", lambda python, *code: versions[str(python)])
    versions = {str(installer.python_in(venv)): "3.11.7", "new": "3.13.0", "old": "3.11.2"}
    assert installer.is_of(venv, None) and installer.is_of(venv, "old")
    assert not installer.is_of(venv, "new")
    monkeypatch.setattr(installer, "run", lambda *arguments: 0)
    installer.make_venv("new", "3.13.0", venv, chosen=False)
    assert capsys.readouterr().out == ""
    versions["new"] = ""
    installer.make_venv("new", "3.13.0", venv, chosen=True)
    assert "has Python 3.11.7; making it again" in capsys.readouterr().out


def test_another_python_is_the_newest_of_another_minor_version(tmp_path, monkeypatch):
    here = [("a", "3.13.1"), ("b", "3.13.0"), ("c", "3.12.3"), ("d", "3.11.7")]
    monkeypatch.setattr(pythons, "supported_pythons", lambda: here)
    monkeypatch.setattr(pythons, "version_of", lambda python: "3.13.7")
    monkeypatch.setattr(pythons, "makes_venvs", lambda python: python not in without_venv)
    without_venv = []
    for path in ("c", "d", ""):
        assert pythons.another(tmp_path) == path
        without_venv.append(path)


def test_two_installations_take_turns(tmp_path, capsys):
    code = f"import install; from pathlib import Path; a = Path({str(tmp_path / 'a')!r})"
    code += "; lock = install.locked(a); lock.__enter__(); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=INSTALL.parent, **pipes) as other:
        other.stdout.readline()
        waiting = threading.Thread(target=lambda: installer.locked(tmp_path / "b").__enter__())
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and "waiting for it" in capsys.readouterr().out
        other.communicate(b"\n")
        waiting.join(60)
        assert not waiting.is_alive()


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="its sizes")
def test_sizes_are_told_and_are_those_of_this_environment(asked_of_pip, capsys):
    asked_of_pip()
    said = capsys.readouterr().out
    assert "about 2.0 GB of disk, a third of it to download (JAX 0.6, dev" in said
    base = brought(PROJECT["dependencies"])
    for extra in {*installer.SIZES} - {"gpu", "torch"}:  # torch comes with CUDA and without
        packages = brought(EXTRAS[extra]) if extra else base
        own = packages.keys() - base.keys() if extra else base
        needs = ["libtpu"] if extra == "tpu" else EXTRAS.get(extra, ())
        if not {Requirement(need).name for need in needs} <= packages.keys():
            continue  # not all of it is installed here
        files = [packages[name].locate_file(f) for name in own for f in packages[name].files]
        size = sum(file.stat().st_size for file in files if file.exists()) / 1e6
        assert 0.7 < size / installer.SIZES[extra] < 1.3, (extra, size)


@pytest.mark.slow
def test_no_network(tmp_path):
    root = checkout(tmp_path)
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1"}
    status, said = install(root, PIP_CONFIG_FILE=os.devnull, **closed)
    assert status == 1 and "package index cannot be reached" in said
    assert {"install.log", ".unfinished"} <= {path.name for path in (root / ".venv").iterdir()}


def test_full_disk_and_missing_wheel_are_told_in_plain_words(tmp_path):
    none = "(from versions: 0.4.36, 0.4.38)\nERROR: No matching distribution found"
    for output, words in [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        (f"{none} for jaxlib==1", "no ready-made package of jaxlib==1"),
        ("ERROR: ResolutionImpossible", "contradict"),
    ]:
        with pytest.raises(installer.Stop, match=words):
            installer.explain(output, tmp_path)


@pytest.mark.parametrize(
    ("version", "settings", "fails", "ran"),
    [
        ("uv 0.9.1 (linux)", "", False, ["uv"]),
        ("uv 0.9.1", "", True, ["uv", "pip"]),
        ("uv 0.4.30", "", False, ["pip"]),
        ("uv 0.9.1", "global.proxy='http://proxy'", False, ["pip"]),
        (None, "", False, ["pip"]),
    ],
)
def test_uv_installs_where_it_is_there_and_can_and_else_pip(
    tmp_path, monkeypatch, capsys, version, settings, fails, ran
):
    uv, commands = "a/uv", []
    settings += "\nglobal.extra-index-url='http://a http://b'\nglobal.index-url='http://c'"
    settings += "\nglobal.constraint='/cap'"
    settings += "\n:env:.index-url='http://d'\n:env:.find-links='w x'\n:env:.no-input='1'\n"

    def run(command, log_path, env, watch):
        commands.append((command, env))
        log_path.write_text("error: No solution found")
        return int(fails and command[0] == uv)

    monkeypatch.setattr(installer.shutil, "which", lambda name, path=None: path and version and uv)
    monkeypatch.setattr(installer, "ask", lambda *words: version if words[0] == uv else settings)
    monkeypatch.setattr(installer, "run", run)
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    installer.fetch(tmp_path, ["dev", "tpu"], tmp_path / "install.log", newest_releases=True)
    assert ["uv" if command[0] == uv else "pip" for command, _ in commands] == ran
    limits = str(tmp_path / "constraints.txt")
    for command, env in commands:
        text = " ".join(command)
        assert f"-c {limits} -e .[dev,tpu]" in text and "--upgrade" in text
        if command[0] == uv:
            assert f"--build-constraints {limits} --compile-bytecode" in text
            assert env["UV_INDEX"] == "http://a http://b" and env["UV_FIND_LINKS"] == "w,x"
            assert env["UV_CONSTRAINT"] == "/cap"
            assert env["UV_DEFAULT_INDEX"] == "http://d", "a variable comes before a file"
        else:
            assert env["PIP_CONSTRAINT"] == Path(limits).as_uri()
    told = f"uv could not install this, as {tmp_path / 'install-uv.log'} says; pip tries"
    assert (told in capsys.readouterr().out) == fails


@pytest.mark.parametrize(
    ("says", "is_half"),
    [
        ("error: Request failed after 3 retries", False),
        ("Resolved 9 packages\nerror: Failed to fetch: https://a", False),
        ("Resolved 9 packages\nPrepared 2 packages\nerror: Failed to install: a.whl", True),
        ("Resolved 9 packages\nerror: No space left on device (os error 28)", None),
    ],
)
def test_a_venv_that_uv_left_as_it_was_is_not_made_again(tmp_path, says, is_half):
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nprintf '{says}'; sleep 0.5; exit 1\n")
    uv.chmod(0o755)
    installs = functools.partial(installer.run_uv, (str(uv), {}), tmp_path)
    if is_half is None:
        with pytest.raises(pythons.Stop, match="disk is full"):
            installs(["-c", "pins", "-e", "."], tmp_path / "install.log")
        return
    assert not installs(["-c", "pins", "-e", "."], tmp_path / "install.log")
    assert (tmp_path / ".unfinished").exists() == is_half
    installer.mark(tmp_path)
    assert not installs(["-c", "pins", "--target", "x"], tmp_path / "install.log")
    assert (tmp_path / ".unfinished").exists(), "it was half before"


def test_what_cannot_be_is_refused_and_a_folder_that_is_no_venv_is_left_alone(tmp_path):
    root = checkout(tmp_path)
    status, said = install(root, "--extras", "book,nope")
    assert status == 1 and "No such extra: nope" in said
    (root / ".venv").mkdir()
    (root / ".venv" / "mine").touch()
    status, said = install(root)
    assert status == 1 and "not a venv" in said and (root / ".venv" / "mine").exists()
    shutil.rmtree(root / ".venv")
    without_venv = tmp_path / "python"
    cannot = 'case "$*" in *ensurepip*) exit 1;; esac'
    without_venv.write_text(f'#!/bin/sh\n{cannot}; exec "{sys.executable}" "$@"\n')
    without_venv.chmod(0o755)
    status, said = install(root, "--python", without_venv)
    assert status == 1 and "apt install python3-venv" in said


def test_packages_left_out_on_this_machine_are_named():
    code = installer.LEFT_OUT.replace(
        "import sys, tomllib", "import sys, tomllib, platform\nplatform.machine = lambda: 'riscv'"
    )
    done = python("-c", code, "tpu", "book", cwd=ROOT)
    assert done.stdout.startswith("not installed: jax (from tpu), only for sys_platform")
    assert len(done.stdout.splitlines()) == 1


def test_xla_pins_replace_the_others(tmp_path):
    plain, xla = pins()
    path = installer.constraints(tmp_path, ["xla"])
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    assert {str(pin) for pin in xla} <= set(lines)
    for minor in MINORS:
        here = [pin.name for pin in map(Requirement, lines) if applies(pin, minor)]
        assert sorted(here) == sorted(pin.name for pin in plain if applies(pin, minor))
    assert installer.constraints(tmp_path, ["book"]) == ROOT / "constraints.txt"
