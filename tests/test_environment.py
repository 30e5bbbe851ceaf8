"""The files that describe the environment agree, and the installer explains what goes wrong."""

import ast
import contextlib
import os
import re
import shutil
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
import pythons
import yaml
from commands import process
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = [*PROJECT["dependencies"], *(need for extra in EXTRAS.values() for need in extra)]
EVERY = [f"3.{n}" for n in range(6, 30)]
MINORS = [*SpecifierSet(PROJECT["requires-python"]).filter(EVERY)]  # the last is tried if named
CITATION = ROOT / "CITATION.cff"
PROMISED = [line.split(" :: ")[-1] for line in PROJECT["classifiers"]]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    plain = [Requirement(line) for line in lines if line and not line.startswith("#")]
    xla = [Requirement(line.removeprefix("# xla: ")) for line in lines if line.startswith("# xla:")]
    return plain, xla


def applies(pin, python):
    """Whether a pin is for a Python, "3.12" or such."""
    return not pin.marker or pin.marker.evaluate({"python_version": python})


@pytest.mark.parametrize("python", MINORS)
def test_every_requirement_is_pinned_once_exactly_in_order(python):
    plain, xla = pins()
    for group in (plain, xla):
        names = [canonicalize_name(pin.name) for pin in group]
        assert names == sorted(names)
        assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in group)
    for pin in plain:  # by the Python alone, and each for some Python
        assert not pin.marker or str(pin.marker).startswith("python_version ")
        assert any(applies(pin, minor) for minor in MINORS), pin
    here = [pin for pin in plain if applies(pin, python)]
    version = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in here}
    assert len(version) == len(here) and {pin.name for pin in xla} <= {pin.name for pin in here}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for need in map(Requirement, [*NEEDS, *build]):
        assert need.specifier.contains(version[canonicalize_name(need.name)]), need


def test_exact_versions_stand_nowhere_else():
    for name in ("pyproject.toml", "environment.yml", "Dockerfile", "Makefile", ".ci/run"):
        assert not re.search(r"[\w\]] ?===?\s?\d", (ROOT / name).read_text()), name


def brought(needs):
    """Name → distribution, of what is installed here of these requirements and all that they need:
    not of what a reader added by hand."""
    todo, seen, here = [Requirement(need) for need in needs], set(), {}
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        if (key := (name, frozenset(need.extras))) in seen:
            continue
        seen.add(key)
        with contextlib.suppress(PackageNotFoundError):  # an extra that is not installed here
            here[name] = distribution(name)
            for line in here[name].requires or ():
                child = Requirement(line)
                extras = need.extras or {""}
                if not child.marker or any(child.marker.evaluate({"extra": e}) for e in extras):
                    todo.append(child)
    return here


def test_installed_versions_are_the_pinned_ones():
    allowed = {}
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for pin in [*filter(lambda pin: applies(pin, here), pins()[0]), *pins()[1]]:
        allowed.setdefault(canonicalize_name(pin.name), set()).add(str(pin.specifier)[2:])
    versions = {name: found.version.split("+")[0] for name, found in brought(NEEDS).items()}
    assert not [name for name in versions if versions[name] not in allowed.get(name, ())]
    assert len(versions) > 50


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
    assert MINORS[:-1] == PROMISED and pythons.supported() == ((3, 11), (3, 14), (3, 15))
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


def test_no_command_that_is_shown_opens_a_port_to_others():
    shown = [ROOT / "README.md", ROOT / "Makefile", ROOT / "Dockerfile", *ROOT.glob("book/*.md")]
    for path in shown:
        for line in path.read_text().splitlines():
            assert not re.search(r"-p (?!127\.0\.0\.1:)\d+:", line), line
            assert "0.0.0.0" not in line or line.startswith("CMD "), line  # behind -p
            assert not re.match(r"\$ docker run .*--net=host", line) or "make lab" in line, line


def test_citation_matches():
    citation = yaml.safe_load(CITATION.read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def finds(program, *arguments):
    """What a program of the environment finds fault with; empty where with nothing."""
    done = process(Path(sys.executable).with_name(program), *arguments)
    return (done.stdout + done.stderr) * bool(done.returncode)


@pytest.mark.slow
def test_what_others_read_is_valid_and_safe():
    workflows = sorted((ROOT / ".github/workflows").iterdir())
    for schema, paths in (("github-workflows", workflows), ("citation-file-format", [CITATION])):
        assert not finds("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *paths)
    assert not finds("zizmor", "--offline", "--quiet", *workflows)


def test_unsafe_workflow_is_found(tmp_path):
    good = (ROOT / ".github/workflows/book.yml").read_text()
    path = tmp_path / "book.yml"
    path.write_text(re.sub(r"checkout@\w+ # v5.0.0", "checkout@v5", good))
    assert path.read_text() != good and finds("zizmor", "--offline", "--quiet", path)


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
        "make": f'[ "$1" != -s ] || exec echo "$*" >> "{root}/fetched"\n'
        f'echo "make $*" >> "{root}/asked"\n'
        f'[ "$1" != -C ] || find "$2" > "{tmp_path}/copied"\n'
        f'case "$*" in *"{fails}") exit 1; esac',
        "df": f'printf "head\\nroot 1 1 {gigabytes << 20} 1%% /\\n"',
        "uname": f'echo "{machine}"',
        "python3": f'case "$*" in *--another) echo "{another}"; esac',
        "apt-get": "true",
        "chromium": "true",
        "uv": "true",
    }
    for name, body in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CI_WITHOUT": without}
    env["TMPDIR"] = str(tmp_path / "copies")
    done = process(root / ".ci" / "run", env=env)
    kept = [str(path) for path in (tmp_path / "copies").iterdir()]
    assert kept == re.findall(r"^!!! its copy of the project is kept: (.*)$", done.stderr, re.M)
    asked = (root / "asked").read_text()
    expected = re.sub(rf"(?<={re.escape(fails)})$", "  FAILED", asked, flags=re.M)
    assert re.findall(r"^--- +\d+ s  (.*\n)", done.stdout, re.M) == expected.splitlines(True)
    assert re.sub(r"^ +\d+ s  ", "", done.stdout.split("\n\n")[-1], flags=re.M) == expected
    # Of what it runs, it fetches before what it can.
    fetched = (root / "fetched").read_text() if (root / "fetched").exists() else ""
    assert ("VENV=.venv-xla EXTRAS=xla\n" in fetched) >= ("make test-xla" in asked)
    assert (f"venv PYTHON={ANOTHER}\n" in fetched) == (f"book PYTHON={ANOTHER}" in asked)
    asked = re.sub(r"-C \S+ ", "-C COPY ", asked).splitlines()
    return done.returncode, asked, done.stderr


def test_the_whole_run_has_both_suites_and_another_python(tmp_path):
    status, asked, said = ci_run(tmp_path)
    assert (status, said) == (0, "")
    elsewhere = [f"-C COPY {target} PYTHON={ANOTHER}" for target in ("book", "quick")]
    suites = ["test", "test-optimised", "test-torchax", "test-xla"]
    parts = ["venv", "venv EXTRAS=torchax", "book", *elsewhere, *suites]
    assert asked == [f"make {part}" for part in parts]
    copied = (tmp_path / "copied").read_text()
    assert "/README.md" in copied and "/kernels\n" in copied
    assert ".venv" not in copied and "__pycache__" not in copied
    # The tier test covers what the tier full runs through.
    optimised = (ROOT / "Makefile").read_text().split("\ntest-optimised: ")[1].split("\n\n")[0]
    assert "pytest tests/proof/test_ladder.py" in optimised and "--tier" not in optimised


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
        ({"without": "another test-torchax test-xla"}, "NOT RUN: make test-xla\n!!! CI_WITHOUT"),
    ],
)
def test_what_is_not_run_is_named_loudly(tmp_path, where, words):
    status, asked, said = ci_run(tmp_path, **where)
    assert status == 0 and "make test" in asked
    assert words in said
    for suite in ("make test-torchax", "make test-xla"):
        assert (suite in asked) == (suite not in said)
    assert any("PYTHON=" in line for line in asked) == ("PYTHON=another" not in said)


@pytest.mark.parametrize(
    "fails",
    [
        *(f"book PYTHON={ANOTHER}", f"quick PYTHON={ANOTHER}"),
        *("test", "test-optimised", "test-torchax", "test-xla"),
    ],
)
def test_a_suite_that_fails_fails_the_run(tmp_path, fails):
    status, asked, said = ci_run(tmp_path, fails=fails)
    assert status and asked[-1].endswith(fails)
    assert ("is kept:" in said) == (ANOTHER in fails)


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all")
def test_a_file_of_tests_is_one_piece_of_work(request):
    """Else each worker makes its fixtures: so it was, in silence, with pytest 9.2."""
    assert request.node.nodeid.endswith(f"@{request.path.name}")
