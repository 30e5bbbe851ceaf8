"""The package works from its wheel: in an environment of its own, without the repository."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from commands import needs_libtpu, process

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
pytest.importorskip("hatchling", reason="hatchling, of the extra dev, builds the wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([sys.executable, *command, "--wheel-dir", folder, ROOT], check=True)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of an environment that has the wheel, and sees this one's other packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    # This environment's packages, but not the checkout that it has in place of the package.
    others = Path(pytest.__file__).parents[1]
    (packages / "others.pth").write_text(f"{others}\n")
    return folder / "bin" / "python"


def run(python, *arguments, cwd):
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JAX_PLATFORMS")}
    variables["KERNELS_CACHE"] = str(cwd / "cache")
    return process(python, "-m", "kernels", *arguments, cwd=cwd, env=variables)


def source():
    """A file with a kernel, as the tests of explain have it."""
    text = Path(__file__).with_name("test_explain.py").read_text()
    return text.split('SOURCE = """')[1].split('"""')[0]


def test_the_wheel_holds_the_package_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "kernels/py.typed" in names
    files = ["players/base.js", "gpu/chips.csv", "tpu/refusals.csv", "taichi/driver.c"]
    files += ["torch.h", "neuron-utils.hpp", "register.h", "runtime.cpp", "giou.cpp"]  # for g++
    for file in files:
        assert any(name.endswith(file) for name in names), file
    assert not {name.split("/")[0] for name in names if not name.startswith("kernels")}


def test_the_commands_work_without_the_repository(python, tmp_path):
    assert "kernels-rung-by-rung" in run(python, "--version", cwd=tmp_path).stdout
    apart = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    line = "import kernels; print(kernels.__file__)"
    found = process(python, "-c", line, cwd=tmp_path, env=apart)
    assert str(ROOT) not in found.stdout
    (tmp_path / "mine.py").write_text(source())
    done = run(python, "prove", "mine.py", "--rung", "interpret", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(python, "list", cwd=tmp_path)
    assert "matmul/pallas" in done.stdout
    done = run(python, "validate", "--rows", "mine.py", cwd=tmp_path)
    assert done.returncode == 2 and "kernels bench --record" in done.stderr, done.stderr


@pytest.mark.full
@needs_libtpu
def test_explain_tune_and_guard_work_without_the_repository(python, tmp_path):
    (tmp_path / "mine.py").write_text(source())
    done = run(python, "explain", "mine.py:power", "--html", "page.html", "-c", "v6e", cwd=tmp_path)
    assert done.returncode == 0 and "estimated" in done.stdout, done.stdout + done.stderr
    # The bands come from the measurements that the wheel carries.
    assert "of this kind" in done.stdout or " … " in done.stdout
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    done = run(python, "tune", "mine.py:power", "--over", "block=8,64", cwd=tmp_path)
    assert done.returncode == 0 and "block=64" in done.stdout, done.stdout + done.stderr
    guard = ("guard", "--baseline", "estimates.json", "--rung", "interpret")
    assert run(python, *guard, "mine.py", "--update", cwd=tmp_path).returncode == 0
    assert run(python, *guard, cwd=tmp_path).returncode == 0
    (tmp_path / "mine.py").write_text(source().replace("jnp.exp(x_ref", "jnp.exp2(x_ref"))
    lost = run(python, *guard, cwd=tmp_path)
    assert lost.returncode == 1 and "lost the rung interpret" in " ".join(lost.stdout.split())


def test_the_command_line_completes_itself(python, tmp_path):
    # It completes for the shell that it was started from.
    command = f'"{python}" -m kernels --show-completion; exit $?'
    done = process("bash", "-c", command, cwd=tmp_path)
    assert done.returncode == 0 and "complete" in done.stdout.lower()
