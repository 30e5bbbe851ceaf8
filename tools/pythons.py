"""Which Python makes the environment, and which others are here.

Any Python since 3.6 can read this file and tools/install.py: one that is too old for the book finds
another, or says what to install. Neither needs anything but the standard library.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Stop(Exception):
    """What went wrong and what to do about it, in words for the reader."""


def say(line):
    print(line, flush=True)


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def supported():
    """Of pyproject.toml, the first Python that is promised, that is only tried, that is refused."""
    text = read(ROOT / "pyproject.toml")
    last = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)[-1]
    low, refused = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', text).groups()
    return (3, int(low)), (3, int(last) + 1), (3, int(refused))


def ask(*command):
    """What a command prints; None where it fails, as a pyenv shim does that leads nowhere."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "timeout": 60}
    try:
        done = subprocess.run([str(word) for word in command], universal_newlines=True, **options)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def version_of(python, modules="sys"):
    """The version of a Python that can import these modules; None where there is no such Python."""
    answer = ask(python, "-c", f"import {modules}, sys; print('%d.%d.%d' % sys.version_info[:3])")
    return answer if answer and re.match(r"\d+\.\d+\.\d+$", answer) else None


def makes_venvs(python):
    return ask(python, "-c", "import venv, ensurepip") is not None


def python_in(venv):
    return venv / "bin/python"


def minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def everywhere():
    """Every Python that may be here: on PATH, and where pyenv, uv and conda keep theirs."""
    low, _, refused = supported()
    names = [f"python3.{n}" for n in range(refused[1] - 1, low[1] - 1, -1)] + ["python3", "python"]
    home, env = pathlib.Path.home(), os.environ.get
    share = pathlib.Path(env("XDG_DATA_HOME") or home / ".local/share")
    pyenv = pathlib.Path(env("PYENV_ROOT") or home / ".pyenv")
    uv = pathlib.Path(env("UV_PYTHON_INSTALL_DIR") or share / "uv/python")
    condas = [home / name for name in ("miniforge3", "miniconda3", "anaconda3")]
    if env("CONDA_EXE"):
        condas.insert(0, pathlib.Path(env("CONDA_EXE")).parent.parent)
    folders = [*pyenv.glob("versions/*"), *uv.glob("*"), *condas]
    folders += [folder for conda in condas for folder in conda.glob("envs/*")]
    paths = [pathlib.Path(folder) / name for folder in os.get_exec_path() for name in names]
    once = {}
    for path in paths + [folder / "bin/python3" for folder in folders]:
        with contextlib.suppress(OSError):
            if path.exists():
                once.setdefault(path.resolve(), str(path))
    return list(once.values())


def supported_pythons(untried=False):
    """(path, version) of every Python here that the book supports, the newest first; also of those
    that are only tried, if `untried`."""
    low, high, refused = supported()
    end = refused if untried else high
    pythons = [(path, version_of(path)) for path in everywhere()]
    fit = [(path, version) for path, version in pythons if version and low <= minor(version) < end]
    return sorted(fit, key=lambda python: [int(n) for n in python[1].split(".")], reverse=True)


def another(venv):
    """The newest Python here of another minor version than the venv's; or an empty string."""
    has = version_of(python_in(venv)) or "0.0.0"
    others = (path for path, version in supported_pythons() if minor(version) != minor(has))
    return next(filter(makes_venvs, others), "")


def find_python(wanted):
    """Path and version: the Python named, the one that runs this, or the newest that fits."""
    low, high, refused = supported()
    path = (shutil.which(wanted) or wanted) if wanted else sys.executable
    version = version_of(path)
    promised = f"Python {low[0]}.{low[1]} to {high[0]}.{high[1] - 1}"
    if version and low <= minor(version) < (refused if wanted else high):
        if minor(version) >= high:
            say(f"{path} is Python {version}: nobody has tried the book on it.")
        return path, version
    unfit = f"{path} is Python {version}" if version else f"{path} does not run"
    here = supported_pythons()
    if here and not wanted:
        path, version = next((python for python in here if makes_venvs(python[0])), here[0])
        say(
            f"{unfit}; the book needs {promised}, so {path} is taken, Python {version}. "
            "PYTHON=PATH chooses another."
        )
        return path, version
    listed = ""
    for path, version in supported_pythons(untried=True):
        untried = ", on which nobody has tried the book" * (minor(version) >= high)
        listed += f"  make book PYTHON={path} ({version}{untried})\n"
    listed = "These are here:\n" * bool(listed) + listed
    raise Stop(
        f"This book needs {promised}. Found: {unfit}.\n"
        f"{listed}"
        "Install one of these, then run the same command again:\n"
        "  Debian, Ubuntu   apt install python3 python3-venv\n"
        "  Fedora           dnf install python3.13\n"
        "  macOS            brew install python@3.13\n"
        "  anywhere         conda env create -f environment.yml\n"
        "A Python in an unusual place can be named: make book PYTHON=PATH"
    )
