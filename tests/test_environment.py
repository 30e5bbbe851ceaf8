"""The files that describe the environment agree, and the installer explains what goes wrong."""

import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = [*PROJECT["dependencies"], *(need for extra in EXTRAS.values() for need in extra)]
RANGE = SpecifierSet(PROJECT["requires-python"])
MINORS = [f"3.{n}" for n in range(6, 30) if f"3.{n}" in RANGE]
INSTALL = ROOT / "tools" / "install.py"


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    plain = [Requirement(line) for line in lines if line and not line.startswith("#")]
    xla = [Requirement(line.removeprefix("# xla: ")) for line in lines if line.startswith("# xla:")]
    return plain, xla


# --- versions -----------------------------------------------------------------------------------


def test_every_requirement_is_pinned():
    pinned = {canonicalize_name(pin.name) for pin in pins()[0]}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for need in [*NEEDS, *build]:
        assert canonicalize_name(Requirement(need).name) in pinned, need


def test_pins_are_exact_sorted_and_fit_the_requirements():
    plain, xla = pins()
    for group in (plain, xla):
        names = [canonicalize_name(pin.name) for pin in group]
        assert names == sorted(set(names))
        assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in group)
    version = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in plain}
    for need in map(Requirement, NEEDS):
        assert need.specifier.contains(version[canonicalize_name(need.name)]), need
    assert {pin.name for pin in xla} <= {pin.name for pin in plain}


def test_exact_versions_stand_nowhere_else():
    for name in ("pyproject.toml", "environment.yml", "Dockerfile", "Makefile", ".ci/run"):
        assert not re.search(r"[\w\]] ?===?\s?\d", (ROOT / name).read_text()), name


def test_installed_versions_are_the_pinned_ones():
    """Of everything that the project brings in, not of what a reader added by hand."""
    allowed = {}
    for pin in [*pins()[0], *pins()[1]]:
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


def test_no_pin_needs_a_newer_python_than_the_oldest_we_take():
    """A patch release counts: Debian 12 has 3.11.2."""
    for dist in distributions():
        needs = dist.metadata.get("Requires-Python")
        assert not needs or SpecifierSet(needs).contains("3.11.0"), dist.metadata["Name"]


def test_python_ranges_agree():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = next(line for line in conda if isinstance(line, str) and line.startswith("python "))
    assert SpecifierSet(python.removeprefix("python ")) == RANGE
    base = re.search(r"^FROM python:(3\.\d+)-slim$", (ROOT / "Dockerfile").read_text(), re.M)
    assert base.group(1) in MINORS
    workflow = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == MINORS
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ruff["target-version"] == "py" + MINORS[0].replace(".", "")


def test_conda_installs_what_make_does():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(line["pip"] for line in conda["dependencies"] if isinstance(line, dict))
    extras = re.search(r"^EXTRAS \?= (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1)
    assert pip == ["-c constraints.txt", f"-e .[{extras}]"]
    assert conda["name"] == PROJECT["name"]


def test_image_runs_make_as_an_ordinary_user_with_the_token_on():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if line and line[0] != "#"]
    user = max(i for i, step in enumerate(steps) if step[0] == "USER")
    assert steps[user][1] not in {"root", "0"}
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    after = [step[1] for step in steps[user:] if step[0] == "RUN"]
    assert after and all(step.removeprefix("make ") in targets for step in after)
    command = ast.literal_eval(next(step[1] for step in steps if step[0] == "CMD"))
    assert command[:2] == ["make", "lab"]
    assert not re.search(r"(token|password)\s*=", text + (ROOT / "Makefile").read_text())


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


def test_workflow_is_valid_and_safe():
    path = ROOT / ".github/workflows/book.yml"
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
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "tools/install.py"):
        shutil.copy(ROOT / name, root / name)
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


def test_an_old_python_can_read_the_installer():
    ast.parse(INSTALL.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("version", ["3.8.10", "3.99.1"])
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


def test_python_without_venv(tmp_path):
    python = fake_python(tmp_path, 'case "$*" in *ensurepip*) exit 1;; esac; exec "$real" "$@"')
    status, said = install(checkout(tmp_path), "--python", python)
    assert status == 1
    assert "apt install python3-venv" in said


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
    sys.path.insert(0, str(INSTALL.parent))
    import install as installer

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
    sys.path.insert(0, str(INSTALL.parent))
    import install as installer

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
    sys.path.insert(0, str(INSTALL.parent))
    import install as installer

    plain, xla = pins()
    path = installer.constraints(tmp_path, ["xla"])
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    assert {str(pin) for pin in xla} <= set(lines)
    assert len(lines) == len(plain)
    assert installer.constraints(tmp_path, ["book"]) == ROOT / "constraints.txt"


# --- the whole run ------------------------------------------------------------------------------


def ci_run(tmp_path, *, gigabytes, machine="Linux x86_64", fails=""):
    """What .ci/run asks make for, and what it says, with that much disk on that machine."""
    root = tmp_path / "a book"
    (root / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", root / ".ci")
    programs = {
        "make": f'echo "make $*" >> "{root}/asked"; [ "$*" != "{fails}" ]',
        "df": f'printf "head\\nroot 1 1 {gigabytes << 20} 1%% /\\n"',
        "uname": f'echo "{machine}"',
        "apt-get": "true",
        "chromium": "true",
    }
    for name, body in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [root / ".ci" / "run"], env={"PATH": path}, capture_output=True, text=True
    )
    return done.returncode, (root / "asked").read_text().splitlines(), done.stderr


def test_the_whole_run_has_both_suites(tmp_path):
    status, asked, said = ci_run(tmp_path, gigabytes=40)
    assert (status, said) == (0, "")
    assert asked == [
        "make venv",
        "make venv EXTRAS=torchax",
        "make book",
        "make test-full",
        "make test-optimised",
        "make test-torchax",
        "make test-xla",
    ]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"gigabytes": 5}, "NOT RUN: make test-xla\n!!! it needs 14 GB of disk, and 5 GB are free"),
        ({"gigabytes": 40, "machine": "Darwin arm64"}, "NOT RUN: make test-xla\n!!! torch_xla is"),
        (
            {"gigabytes": 40, "fails": "venv EXTRAS=torchax"},
            "NOT RUN: make test-torchax",
        ),
    ],
)
def test_what_is_not_run_is_named_loudly(tmp_path, where, words):
    status, asked, said = ci_run(tmp_path, **where)
    assert status == 0 and "make test-full" in asked
    assert words in said
    for suite in ("make test-torchax", "make test-xla"):
        assert (suite in asked) == (suite not in said)


@pytest.mark.parametrize("fails", ["test-full", "test-optimised", "test-torchax", "test-xla"])
def test_a_suite_that_fails_fails_the_run(tmp_path, fails):
    assert ci_run(tmp_path, gigabytes=40, fails=fails)[0]
