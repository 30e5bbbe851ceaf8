"""The files that describe the environment agree, and the installer explains what goes wrong."""

import ast
import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import install as installer
import pytest
import pythons
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = [*PROJECT["dependencies"], *(need for extra in EXTRAS.values() for need in extra)]
EVERY = [f"3.{n}" for n in range(6, 30)]
MINORS = [*SpecifierSet(PROJECT["requires-python"]).filter(EVERY)]  # the last is tried if named
PROMISED = [line.split(" :: ")[-1] for line in PROJECT["classifiers"]]
INSTALL = ROOT / "tools" / "install.py"


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    plain = [Requirement(line) for line in lines if line and not line.startswith("#")]
    xla = [Requirement(line.removeprefix("# xla: ")) for line in lines if line.startswith("# xla:")]
    return plain, xla


# --- versions -----------------------------------------------------------------------------------


def applies(pin, python):
    """Whether a pin is for a Python, "3.12" or such."""
    return not pin.marker or pin.marker.evaluate({"python_version": python})


@pytest.mark.parametrize("python", MINORS)
def test_every_requirement_is_pinned_once(python):
    pinned = [canonicalize_name(pin.name) for pin in pins()[0] if applies(pin, python)]
    assert len(pinned) == len(set(pinned))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for need in [*NEEDS, *build]:
        assert canonicalize_name(Requirement(need).name) in pinned, need


@pytest.mark.parametrize("python", MINORS)
def test_pins_are_exact_sorted_and_fit_the_requirements(python):
    plain, xla = pins()
    for group in (plain, xla):
        names = [canonicalize_name(pin.name) for pin in group]
        assert names == sorted(names)
        assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in group)
    for pin in plain:  # by the Python alone, and each for some Python
        assert not pin.marker or str(pin.marker).startswith("python_version ")
        assert any(applies(pin, each) for each in MINORS), pin
    here = [pin for pin in plain if applies(pin, python)]
    version = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in here}
    for need in map(Requirement, NEEDS):
        assert need.specifier.contains(version[canonicalize_name(need.name)]), need
    assert {pin.name for pin in xla} <= {pin.name for pin in here}


@pytest.mark.slow
def test_pip_reads_the_pins_as_the_tests_do(tmp_path):
    """pip is asked what it would install for this Python, without a network."""
    jax = next(p for p in pins()[0] if p.name == "jax" and p.marker and p.marker.evaluate())
    other = next(p for p in pins()[0] if p.name == "jax" and not p.marker.evaluate())
    asked = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--no-deps"]
    asked += ["-c", ROOT / "constraints.txt", "jax"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    env["PIP_CONFIG_FILE"] = os.devnull
    found = subprocess.run(asked, capture_output=True, text=True, env=env)
    said = found.stdout + found.stderr
    assert (found.returncode == 0) == (distribution("jax").version == str(jax.specifier)[2:]), said
    assert str(other.specifier)[2:] not in said


def test_exact_versions_stand_nowhere_else():
    for name in ("pyproject.toml", "environment.yml", "Dockerfile", "Makefile", ".ci/run"):
        assert not re.search(r"[\w\]] ?===?\s?\d", (ROOT / name).read_text()), name


def test_installed_versions_are_the_pinned_ones():
    """Of everything that the project brings in, not of what a reader added by hand."""
    allowed = {}
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for pin in [*filter(lambda pin: applies(pin, here), pins()[0]), *pins()[1]]:
        allowed.setdefault(canonicalize_name(pin.name), set()).add(str(pin.specifier)[2:])
    todo, seen = [Requirement(need) for need in NEEDS], set()
    while todo:
        need = todo.pop()
        if (key := (canonicalize_name(need.name), frozenset(need.extras))) in seen:
            continue
        seen.add(key)
        with contextlib.suppress(PackageNotFoundError):  # an extra that is not installed here
            found = distribution(need.name)
            assert found.version.split("+")[0] in allowed.get(key[0], ()), need.name
            for line in found.requires or ():
                child = Requirement(line)
                extras = need.extras or {""}
                if not child.marker or any(child.marker.evaluate({"extra": e}) for e in extras):
                    todo.append(child)
    assert len(seen) > 50


# --- the files agree ----------------------------------------------------------------------------


def test_no_pin_needs_a_newer_python_than_the_oldest_that_it_is_for():
    """A patch release counts: Debian 12 has 3.11.2."""
    marked = {}
    for pin in pins()[0]:
        oldest = next(each for each in MINORS if applies(pin, each))
        marked[canonicalize_name(pin.name), str(pin.specifier)[2:]] = f"{oldest}.0"
    for dist in distributions():
        name = dist.metadata["Name"]
        needs = dist.metadata.get("Requires-Python")
        oldest = marked.get((canonicalize_name(name), dist.version), f"{MINORS[0]}.0")
        assert not needs or SpecifierSet(needs).contains(oldest), name


def test_python_ranges_agree():
    assert MINORS[:-1] == PROMISED
    assert pythons.supported() == ((3, 11), (3, 14), (3, 15))
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = next(line for line in conda if isinstance(line, str) and line.startswith("python "))
    assert [*SpecifierSet(python.removeprefix("python ")).filter(EVERY)] == PROMISED
    base = re.search(r"^FROM python:(3\.\d+)-slim$", (ROOT / "Dockerfile").read_text(), re.M)
    assert base.group(1) in PROMISED
    workflow = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == PROMISED
    for name in ("README.md", "book/install.md"):
        text = (ROOT / name).read_text()
        assert f"Python {', '.join(PROMISED[:-1])} or {PROMISED[-1]}" in text
        assert f"PYTHON=python{MINORS[-1]}" in text
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ruff["target-version"] == "py" + MINORS[0].replace(".", "")


def test_a_python_that_is_only_tried_goes_without_taichi_alone():
    machine = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": MINORS[-1]}
    needs = map(Requirement, NEEDS)
    assert {n.name for n in needs if n.marker and not n.marker.evaluate(machine)} == {"taichi"}


def test_conda_installs_what_make_does():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(line["pip"] for line in conda["dependencies"] if isinstance(line, dict))
    extras = re.search(r"^EXTRAS \?= (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1)
    # What needs a folder of its own is no package of an environment.
    assert extras.endswith(",gpu")
    assert pip == ["-c constraints.txt", f"-e .[{extras.removesuffix(',gpu')}]"]
    assert conda["name"] == PROJECT["name"]


def test_image_runs_make_as_an_ordinary_user_with_the_token_on():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if line and line[0] != "#"]
    user = max(i for i, step in enumerate(steps) if step[0] == "USER")
    assert steps[user][1] not in {"root", "0"}
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    after = [step[1] for step in steps[user:] if step[0] == "RUN"]
    assert after and all(step.removeprefix("make ") in targets for step in after)
    needs = re.findall(r"missing\+=\((\S+)\)", (ROOT / ".ci/run").read_text())
    assert {name for name in needs if name not in text} == {"python3", "python3-venv"}
    command = ast.literal_eval(next(step[1] for step in steps if step[0] == "CMD"))
    assert command[:2] == ["make", "lab"]
    assert not re.search(r"(token|password)\s*=", text + (ROOT / "Makefile").read_text())


@pytest.mark.slow
def test_citation_matches(tmp_path):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()
    check_schema("citation-file-format", ROOT / "CITATION.cff")


def check_schema(name, path):
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{name}", path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def zizmor(path):
    program = Path(sys.executable).with_name("zizmor")
    return subprocess.run([program, "--offline", "--quiet", path], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["book", "prove"])
def test_workflow_is_valid_and_safe(name):
    path = ROOT / f".github/workflows/{name}.yml"
    check_schema("github-workflows", path)
    done = zizmor(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_unsafe_workflow_is_found(tmp_path):
    good = (ROOT / ".github/workflows/book.yml").read_text()
    path = tmp_path / "book.yml"
    path.write_text(re.sub(r"checkout@\w+ # v5.0.0", "checkout@v5", good))
    assert path.read_text() != good
    assert zizmor(path).returncode


# --- the installer ------------------------------------------------------------------------------


def checkout(tmp_path):
    """As much of the repository as the installer needs, in a folder with a space in its name."""
    root = tmp_path / "a book"
    (root / "tools").mkdir(parents=True)
    (root / "kernels").mkdir()
    (root / "kernels" / "__init__.py").touch()
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    for name in ("install", "pythons"):
        shutil.copy(INSTALL.with_name(f"{name}.py"), root / "tools")
    return root


def install(root, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, root / "tools" / "install.py", *arguments],
        capture_output=True,
        text=True,
        env=clean | env,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return done.returncode, said


def fake_python(tmp_path, body):
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nreal="{sys.executable}"\n{body}\n')
    path.chmod(0o755)
    return str(path)


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


def test_the_installer_reads_the_extras_as_pip_does():
    assert installer.project_extras() == EXTRAS
    for extra in installer.PRIVATE:
        assert all(Requirement(need).marker for need in EXTRAS[extra])


def test_an_old_python_can_read_the_installer():
    for name in ("install", "pythons"):
        ast.parse(INSTALL.with_name(f"{name}.py").read_text(), feature_version=(3, 6))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.8.10", "3.15.0"])
def test_python_of_another_version(tmp_path, version):
    python = fake_python(tmp_path, f"echo {version}")
    status, said = install(checkout(tmp_path), "--python", python)
    assert status == 1
    assert version in said and "needs Python 3.11 to 3.13" in said and "apt install" in said


def test_python_that_does_not_run(tmp_path):
    python = fake_python(tmp_path, "echo 'pyenv: version not installed' >&2; exit 127")
    status, said = install(checkout(tmp_path), "--python", python)
    assert status == 1
    assert "does not run" in said


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
        path.write_text(
            FAKE.format(
                version=number,
                real=sys.executable,
                without_venv=int("without-venv" in flaws),
                too_old=int(number.startswith("2.")),
            )
        )
        path.chmod(0o755)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("make", "sh", "sed", "awk"):
        (tools / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        ["make", "venv", *arguments],
        cwd=root,
        env={"PATH": f"{tmp_path / 'bin'}:{tools}", "HOME": str(tmp_path / "home"), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return said.replace(f"{tmp_path}/", "")


def taken(said):
    found = re.search(r"^TAKEN (.*)$", said, re.M)
    return found and found[1]


@pytest.mark.parametrize(
    ("pythons", "wanted"),
    [
        ({"bin/python3": "3.11.7", "bin/python3.13": "3.13.0"}, "bin/python3 3.11.7"),
        ({"bin/python3": "3.9.2", "bin/python3.12": "3.12.1"}, "bin/python3.12 3.12.1"),
        (
            {"bin/python3": "3.14.0", "bin/python3.12": "3.12.1", "bin/python3.13": "3.13.0"},
            "bin/python3.13 3.13.0",
        ),
        (
            {"bin/python3": "3.6.15", "home/.pyenv/versions/3.9.18/bin/python3": "3.9.18"}
            | {"home/.pyenv/versions/3.12.1/bin/python3": "3.12.1", "bin/python3.11": "3.11.2"},
            "home/.pyenv/versions/3.12.1/bin/python3 3.12.1",
        ),
        (
            {"bin/python3": "3.8.1", "home/.local/share/uv/python/cp/bin/python3": "3.13.1"},
            "home/.local/share/uv/python/cp/bin/python3 3.13.1",
        ),
        (
            {"bin/python3": "3.8.1", "home/miniforge3/envs/jax/bin/python3": "3.12.9"},
            "home/miniforge3/envs/jax/bin/python3 3.12.9",
        ),
        (
            {"bin/python3": "3.8.1", "bin/python3.13": "3.13.1 without-venv"}
            | {"bin/python3.12": "3.12.3"},
            "bin/python3.12 3.12.3",
        ),
        ({"bin/python": "2.7.18", "bin/python3.13": "3.13.1"}, "bin/python3.13 3.13.1"),
    ],
)
def test_make_takes_python3_where_it_is_supported_or_else_the_newest_that_is(
    tmp_path, pythons, wanted
):
    said = make_with(tmp_path, pythons)
    assert taken(said) == wanted, said
    version = pythons.get("bin/python3")
    if version and not wanted.startswith("bin/python3 "):
        path, number = wanted.rsplit(" ", 1)
        told = f"bin/python3 is Python {version}; the book needs Python 3.11 to 3.13, so {path} is"
        assert f"{told} taken, Python {number}. PYTHON=PATH chooses another." in said


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


@pytest.mark.parametrize("version", ["3.12.1", "3.14.2"])
def test_make_takes_the_python_that_is_named(tmp_path, version):
    said = make_with(
        tmp_path, {"bin/python3": "3.11.7", "bin/python3.x": version}, "PYTHON=python3.x"
    )
    assert taken(said) == f"bin/python3.x {version}"
    assert ("nobody has tried the book on it" in said) == (version == "3.14.2")


@pytest.mark.parametrize("name", ["python3", "python3.14"])
def test_where_the_only_python_is_untried_make_says_how_to_name_it(tmp_path, name):
    said = make_with(tmp_path, {f"bin/{name}": "3.14.2"})
    assert not taken(said) and f"bin/{name} is Python 3.14.2" in said
    assert (
        f"These are here:\n  make book PYTHON=bin/{name} (3.14.2, on which nobody has tried" in said
    )


@pytest.mark.parametrize(("name", "told"), [("python3.9", "is Python 3.9.2"), ("no", "does not")])
def test_a_python_that_is_named_and_does_not_do_is_no_reason_to_take_another(tmp_path, name, told):
    pythons = {"bin/python3": "3.11.7", "bin/python3.9": "3.9.2"}
    said = make_with(tmp_path, pythons, PYTHON=name)
    assert told in said and not taken(said)
    assert "These are here:\n  make book PYTHON=bin/python3 (3.11.7)\n" in said


def test_where_no_python_does_make_says_what_to_install(tmp_path):
    said = make_with(tmp_path, {"bin/python3": "3.8.10"})
    assert "python3 is Python 3.8.10" in said and "apt install python3" in said
    (tmp_path / "bin" / "python3").unlink()
    said = make_with(tmp_path / "bare", {})
    assert "There is no Python here. Install Python 3.11 to 3.13" in said


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


def test_python_without_venv(tmp_path):
    python = fake_python(tmp_path, 'case "$*" in *ensurepip*) exit 1;; esac; exec "$real" "$@"')
    status, said = install(checkout(tmp_path), "--python", python)
    assert status == 1
    assert "apt install python3-venv" in said


@pytest.mark.slow
def test_no_network_and_then_again(tmp_path):
    root = checkout(tmp_path)
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1"}
    status, said = install(root, PIP_CONFIG_FILE=os.devnull, **closed)
    assert status == 1
    assert "package index cannot be reached" in said
    assert (root / ".venv" / "install.log").exists()
    status, said = install(root, PIP_CONFIG_FILE=os.devnull, **closed)
    assert status == 1
    assert "making it again" in said


def test_full_disk_and_missing_wheel_are_told_in_plain_words(tmp_path):
    for output, words in [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        (
            "(from versions: 0.4.36, 0.4.38)\nERROR: No matching distribution found for jaxlib==1",
            "no ready-made package of jaxlib==1",
        ),
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
            assert f"--build-constraints {limits}" in text
            assert env["UV_INDEX"] == "http://a http://b" and env["UV_FIND_LINKS"] == "w,x"
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


def test_unknown_extra(tmp_path):
    status, said = install(checkout(tmp_path), "--extras", "book,nope")
    assert status == 1
    assert "No such extra: nope" in said


def test_a_folder_that_is_no_venv_is_left_alone(tmp_path):
    root = checkout(tmp_path)
    (root / ".venv").mkdir()
    (root / ".venv" / "mine").touch()
    status, said = install(root)
    assert status == 1
    assert "not a venv" in said and (root / ".venv" / "mine").exists()


def test_packages_left_out_on_this_machine_are_named():
    code = installer.LEFT_OUT.replace(
        "import sys, tomllib",
        "import sys, tomllib, platform\nplatform.machine = lambda: 'riscv'",
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "tpu", "book"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.startswith("not installed: jax (from tpu), only for sys_platform")
    assert len(done.stdout.splitlines()) == 1


def test_xla_pins_replace_the_others(tmp_path):
    plain, xla = pins()
    path = installer.constraints(tmp_path, ["xla"])
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    assert {str(pin) for pin in xla} <= set(lines)
    for python in MINORS:
        here = [pin.name for pin in map(Requirement, lines) if applies(pin, python)]
        assert sorted(here) == sorted(pin.name for pin in plain if applies(pin, python))
    assert installer.constraints(tmp_path, ["book"]) == ROOT / "constraints.txt"


# --- the whole run ------------------------------------------------------------------------------


ANOTHER = "pyenv/3.13/bin/python3"  # what the installer names, in these tests


def ci_run(
    tmp_path, *, gigabytes=40, machine="Linux x86_64", fails="nothing", another=ANOTHER, without=""
):
    """What .ci/run asks make for, and what it says, with that much disk on that machine."""
    root = tmp_path / "a book"
    (root / ".ci").mkdir(parents=True)
    (root / ".venv").mkdir()
    (root / "kernels/__pycache__").mkdir(parents=True)
    for name in (".ci/run", ".dockerignore", "README.md"):
        shutil.copy(ROOT / name, root / name)
    (tmp_path / "copies").mkdir()
    programs = {
        "make": f'echo "make $*" >> "{root}/asked"\n'
        f'[ "$1" != -C ] || find "$2" > "{tmp_path}/copied"\n'
        f'case "$*" in *"{fails}") exit 1; esac',
        "df": f'printf "head\\nroot 1 1 {gigabytes << 20} 1%% /\\n"',
        "uname": f'echo "{machine}"',
        "python3": f'case "$*" in *--another) echo "{another}"; esac',
        "apt-get": "true",
        "chromium": "true",
    }
    for name, body in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CI_WITHOUT": without}
    env["TMPDIR"] = str(tmp_path / "copies")
    done = subprocess.run([root / ".ci" / "run"], env=env, capture_output=True, text=True)
    kept = [str(path) for path in (tmp_path / "copies").iterdir()]
    assert kept == re.findall(r"^!!! its copy of the project is kept: (.*)$", done.stderr, re.M)
    asked = (root / "asked").read_text()
    expected = re.sub(rf"(?<={re.escape(fails)})$", "  FAILED", asked, flags=re.M)
    assert re.findall(r"^--- +\d+ s  (.*\n)", done.stdout, re.M) == expected.splitlines(True)
    assert re.sub(r"^ +\d+ s  ", "", done.stdout.split("\n\n")[-1], flags=re.M) == expected
    asked = re.sub(r"-C \S+ ", "-C COPY ", asked).splitlines()
    return done.returncode, asked, done.stderr


def test_the_whole_run_has_both_suites_and_another_python(tmp_path):
    status, asked, said = ci_run(tmp_path)
    assert (status, said) == (0, "")
    assert asked == [
        "make venv",
        "make venv EXTRAS=torchax",
        "make book",
        f"make -C COPY book PYTHON={ANOTHER}",
        f"make -C COPY quick PYTHON={ANOTHER}",
        "make test-full",
        "make test-optimised",
        "make test-torchax",
        "make test-xla",
    ]
    copied = (tmp_path / "copied").read_text()
    assert "/README.md" in copied and "/kernels\n" in copied
    assert ".venv" not in copied and "__pycache__" not in copied


def test_what_the_whole_run_leaves_out_runs_each_week():
    jobs = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())["jobs"]
    assert jobs["weekly"]["if"] == "github.event_name == 'schedule'"
    weekly = " ".join(step.get("run", "") for step in jobs["weekly"]["steps"])
    assert "make canary" in weekly and "make coverage" in weekly
    once = [step["env"]["CI_WITHOUT"] for step in jobs["test"]["steps"] if step.get("run")]
    assert once == ["another ${{ matrix.python != '3.13' && 'test-torchax test-xla' || '' }}"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"gigabytes": 5}, "NOT RUN: make test-xla\n!!! it needs 14 GB of disk, and 5 GB are free"),
        ({"machine": "Darwin arm64"}, "NOT RUN: make test-xla\n!!! torch_xla is"),
        ({"fails": "venv EXTRAS=torchax"}, "NOT RUN: make test-torchax\n!!! torchax could not"),
        ({"another": ""}, "NOT RUN: make book quick PYTHON=another\n!!! no other Python that the"),
        ({"without": "another"}, "NOT RUN: make book quick PYTHON=another\n!!! CI_WITHOUT names"),
        (
            {"without": "another test-torchax test-xla"},
            "NOT RUN: make test-xla\n!!! CI_WITHOUT names it",
        ),
    ],
)
def test_what_is_not_run_is_named_loudly(tmp_path, where, words):
    status, asked, said = ci_run(tmp_path, **where)
    assert status == 0 and "make test-full" in asked
    assert words in said
    for suite in ("make test-torchax", "make test-xla"):
        assert (suite in asked) == (suite not in said)
    assert any("PYTHON=" in line for line in asked) == ("PYTHON=another" not in said)


@pytest.mark.parametrize(
    "fails",
    [
        *(f"book PYTHON={ANOTHER}", f"quick PYTHON={ANOTHER}"),
        *("test-full", "test-optimised", "test-torchax", "test-xla"),
    ],
)
def test_a_suite_that_fails_fails_the_run(tmp_path, fails):
    status, asked, said = ci_run(tmp_path, fails=fails)
    assert status and asked[-1].endswith(fails)
    assert ("is kept:" in said) == (ANOTHER in fails)
