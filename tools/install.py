#!/usr/bin/env python3
"""Make the environment: a venv with this package and the extras asked for.

    python3 tools/install.py [--venv DIR] [--extras book,dev,tpu,torch,taichi,gpu] [--python PYTHON]

One pip call, under constraints.txt, and one more for what gets a folder of its own. Any Python
since 3.6 can read this file, so that one too old for the book can say so; it needs nothing but the
standard library.
"""

import argparse
import contextlib
import errno
import glob
import hashlib
import json
import os
import pathlib
import platform
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What `make canary` takes at its newest release: all that can change what a kernel is and does.
NEWEST = (
    *("jax", "jaxlib", "libtpu", "ml_dtypes", "numpy", "scipy", "opt_einsum", "flatbuffers"),
    *("quadrants", "taichi", "torch", "torchvision", "triton", "timm", "optax"),
)
# Extras that are unpacked into a folder of the venv, where no Python looks for packages. JAX loads
# a plugin for GPUs wherever it finds one, and complains where there is no GPU.
PRIVATE = ("gpu",)
# Parts of their wheels that nothing here reads: a third of the disk that they take.
UNUSED = (
    *("nvidia/*/include", "nvidia/cuda_nvcc/nvvm/lib64", "nvidia/cuda_nvrtc/lib/*.alt.so*"),
    "jax_cuda12_plugin/_*.so",
)


class Stop(Exception):
    """What went wrong and what to do about it, in words for the reader."""


# --- which Python -----------------------------------------------------------------------------


def supported():
    """Of pyproject.toml: the first Python that is promised, the first that is only tried where it
    is named, and the first that is refused."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    last = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)[-1]
    low, refused = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', text).groups()
    return (3, int(low)), (3, int(last) + 1), (3, int(refused))


def ask(python, code):
    """What a Python prints when it runs some code.

    Args:
        python: its path.
        code: a program.

    Returns:
        What it printed; or None, as a pyenv shim may exist and still fail.
    """
    try:
        done = subprocess.run(
            [str(python), "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def version_of(python):
    answer = ask(python, "import sys; print('%d.%d.%d' % sys.version_info[:3])")
    return answer if answer and re.match(r"\d+\.\d+\.\d+$", answer) else None


def minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def everywhere():
    """Every Python that may be here: on PATH, and where pyenv, uv and conda keep theirs."""
    low, _, refused = supported()
    names = ["python3.{}".format(n) for n in range(refused[1] - 1, low[1] - 1, -1)]
    names += ["python3", "python"]
    home, env = pathlib.Path.home(), os.environ.get
    share = pathlib.Path(env("XDG_DATA_HOME") or home / ".local/share")
    pyenv = pathlib.Path(env("PYENV_ROOT") or home / ".pyenv")
    uv = pathlib.Path(env("UV_PYTHON_INSTALL_DIR") or share / "uv/python")
    condas = [home / name for name in ("miniforge3", "miniconda3", "anaconda3")]
    if env("CONDA_EXE"):
        condas.insert(0, pathlib.Path(env("CONDA_EXE")).parent.parent)
    folders = [*pyenv.glob("versions/*"), *uv.glob("*"), *condas]
    folders += [folder for conda in condas for folder in conda.glob("envs/*")]
    found = [pathlib.Path(folder) / name for folder in os.get_exec_path() for name in names]
    found += [folder / "bin/python3" for folder in folders]
    once = {}
    for path in found:
        with contextlib.suppress(OSError):
            if path.exists():
                once.setdefault(path.resolve(), str(path))
    return list(once.values())


def supported_pythons(untried=False):
    """(path, version) of every Python here that the book supports, the newest first.

    Args:
        untried: whether those come too that are only tried where they are named.
    """
    low, high, refused = supported()
    found = [(path, version_of(path)) for path in everywhere()]
    end = refused if untried else high
    fit = [(path, version) for path, version in found if version and low <= minor(version) < end]
    return sorted(fit, key=lambda each: [int(n) for n in each[1].split(".")], reverse=True)


def whole(python):
    return ask(python, "import venv, ensurepip") is not None


def another(venv):
    """The newest Python here of another minor version than the venv's; or an empty string."""
    has = version_of(python_in(venv)) or "0.0.0"
    return next((p for p, v in supported_pythons() if minor(v) != minor(has) and whole(p)), "")


def find_python(wanted):
    """Path and version: the Python named, the one that runs this, or the newest that fits."""
    low, high, refused = supported()
    path = (shutil.which(wanted) or wanted) if wanted else sys.executable
    version = version_of(path)
    promised = "Python {}.{} to {}.{}".format(low[0], low[1], high[0], high[1] - 1)
    if version and low <= minor(version) < (refused if wanted else high):
        if minor(version) >= high:
            say("{} is Python {}: nobody has tried the book on it.".format(path, version))
        return path, version
    told = "{} is Python {}".format(path, version) if version else "{} does not run".format(path)
    here = supported_pythons()
    if here and not wanted:
        path, version = next((each for each in here if whole(each[0])), here[0])
        told = "{}; the book needs {}, so {} is taken".format(told, promised, path)
        say("{}, Python {}. PYTHON=PATH chooses another.".format(told, version))
        return path, version
    here = [
        "  make book PYTHON={} ({}{})\n".format(
            path, version, ", on which nobody has tried the book" * (minor(version) >= high)
        )
        for path, version in supported_pythons(untried=True)
    ]
    raise Stop(
        "This book needs {}. Found: {}.\n"
        "{}"
        "Install one of these, then run the same command again:\n"
        "  Debian, Ubuntu   apt install python3 python3-venv\n"
        "  Fedora           dnf install python3.13\n"
        "  macOS            brew install python@3.13\n"
        "  anywhere         conda env create -f environment.yml\n"
        "A Python in an unusual place can be named: make book PYTHON=PATH".format(
            promised, told, "".join(["These are here:\n"] * bool(here) + here)
        )
    )


# --- the venv ---------------------------------------------------------------------------------


def python_in(venv):
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make_venv(python, version, venv, chosen):
    """Keep a venv that works; make any other anew. `.unfinished` marks one being filled.

    Args:
        python: the path of the one to make it with.
        version: of that Python.
        venv: its folder.
        chosen: whether the reader named this Python, so that a venv of another one does not do.

    Raises:
        Stop: where the folder is in the way, or Python cannot make a venv.
        OSError: where the disk is full.
    """
    low, _, refused = supported()
    unfinished = venv / ".unfinished"
    if venv.exists() and not venv.is_dir():
        raise Stop("{} is in the way: it is not a folder. Move it, then run again.".format(venv))
    if venv.is_dir() and any(venv.iterdir()):
        has = ask(python_in(venv), "import sys, pip; print('%d.%d.%d' % sys.version_info[:3])")
        ours = unfinished.exists() or (venv / ".installed.json").exists()
        fits = has and low <= minor(has) < refused
        fits = fits and (not chosen or minor(has) == minor(version))
        if fits and not unfinished.exists():
            return
        if not ours and not (venv / "pyvenv.cfg").exists():
            raise Stop(
                "{} holds something that is not a venv. Move it away, or name another folder "
                "with --venv.".format(venv)
            )
        if not ours:
            raise Stop(
                "{} is a venv made by hand that cannot be used here ({}). Remove it, or name "
                "another folder with --venv.".format(
                    venv, "Python " + has if has else "it has no pip, or does not run"
                )
            )
        why = "has Python " + has if has and not fits else "is left from a run that did not finish"
        say("{} {}; making it again".format(venv, why))
        shutil.rmtree(str(venv))
    if not whole(python):
        raise Stop(
            "{} (Python {}) cannot make a virtual environment: its venv or ensurepip module is "
            "missing.\nOn Debian and Ubuntu: apt install python3-venv".format(python, version)
        )
    say("making {} with Python {}".format(venv, version))
    venv.mkdir(parents=True, exist_ok=True)
    unfinished.write_text("removed when the installation is complete\n")
    done = subprocess.run(
        [str(python), "-m", "venv", str(venv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    if done.returncode:
        if shutil.disk_usage(str(venv)).free < 2**24:
            raise OSError(errno.ENOSPC, "No space left on device")
        raise Stop("python -m venv failed:\n" + done.stdout.strip())


# --- pip --------------------------------------------------------------------------------------


def constraints(venv, extras, newest=False):
    """The file of versions for pip.

    Args:
        venv: its folder.
        extras: to be installed.
        newest: whether the newest releases are wanted.

    Returns:
        The path of constraints.txt, or in the venv that of a copy of it: for xla with the `# xla:`
        lines in force, for the newest releases without the pins of NEWEST.
    """
    path = ROOT / "constraints.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    if "xla" in extras:
        other = [line[len("# xla: ") :] for line in lines if line.startswith("# xla: ")]
        names = {line.split("==")[0] for line in other}
    elif newest:
        other, names = [], set(NEWEST)
    else:
        return path
    lines = other + [line for line in lines if line.split("==")[0] not in names]
    path = venv / "constraints.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def say(line):
    print(line, flush=True)


class Progress:
    """A line that rewrites itself on a terminal; elsewhere a line now and then."""

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.start = self.last = time.time()
        self.shown = ""

    def show(self, text):
        now = time.time()
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            line = "{} ({:.0f} s)".format(text, now - self.start)[:width]
            sys.stdout.write("\r" + line.ljust(len(self.shown)))
            sys.stdout.flush()
            self.shown = line
        elif now - self.last > 10 and text != self.shown:
            say("  {} ({:.0f} s)".format(text, now - self.start))
            self.last, self.shown = now, text

    def end(self):
        if self.live and self.shown:
            sys.stdout.write("\r" + " " * len(self.shown) + "\r")
            sys.stdout.flush()


def newest(venv):
    """How many packages the venv has, and the name of the one that came last."""
    site = "Lib" if os.name == "nt" else "lib/python3.*"
    infos = glob.glob("{}/{}/site-packages/*.dist-info".format(glob.escape(str(venv)), site))
    last = max(infos, key=os.path.getmtime, default="-")
    return len(infos), os.path.basename(last).split("-")[0]


def run_pip(venv, extras, log_path, newest_releases=False, into=None):
    """Run pip once, and show how far it is; all it said goes to the log.

    Args:
        venv: its folder.
        extras: to be installed.
        log_path: of the log.
        newest_releases: whether to leave out the pins of NEWEST.
        into: a folder for the packages of these extras alone, without what they ask for; None for
            the venv.

    Returns:
        pip's exit status.
    """
    limits = constraints(venv, extras, newest_releases)
    env = dict(os.environ)
    # The build backend is installed by a pip of its own, which these two names reach: the second
    # since pip 25.3. As a URL, because pip splits the value at spaces.
    env["PIP_CONSTRAINT"] = env["PIP_BUILD_CONSTRAINT"] = limits.as_uri()
    env.setdefault("PIP_RETRIES", "1")
    env.setdefault("PIP_DEFAULT_TIMEOUT", "15")
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env["PIP_NO_INPUT"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    env.pop("PIP_REQUIRE_VIRTUALENV", None)
    env.pop("PIP_USER", None)
    what = ".[{}]".format(",".join(extras)) if extras else "."
    command = [str(python_in(venv)), "-m", "pip", "install", "--progress-bar", "off"]
    command += ["--upgrade", "--upgrade-strategy", "eager"] if newest_releases else []
    command += ["-c", str(limits)]
    if into is None:
        command += ["-e", what]
    else:
        command += ["--no-deps", "--no-compile", "--target", str(into)]
        command += [need for extra in extras for need in requirements(extra)]
    pip = subprocess.Popen(
        command,
        cwd=str(ROOT),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
    )
    lines = queue.Queue()

    def listen():
        for line in pip.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=listen, daemon=True).start()
    progress, seen, total, before, text = Progress(), 0, 0, 0, "asking the package index"
    try:
        with open(str(log_path), "w", encoding="utf-8") as log:
            while True:
                try:
                    line = lines.get(timeout=0.3)
                except queue.Empty:
                    line = ""
                if line is None:
                    break
                log.write(line)
                log.flush()
                words = line.split()
                if line.startswith("Collecting ") or line.startswith("Requirement already"):
                    seen += 1
                    name = re.split(r"[^\w.-]", words[1] if words[0] == "Collecting" else words[2])
                    text = "collecting {}: {}".format(seen, name[0])
                elif line.strip().startswith("Downloading ") and ".metadata" not in line:
                    name = words[1].rsplit("/", 1)[-1].split("-")[0]
                    size = re.search(r"\(([^)]*)\)", line)
                    text = "downloading {}{}".format(name, " " + size.group(0) if size else "")
                elif line.startswith("Installing collected packages:"):
                    # From here on a failure leaves a venv that is neither old nor new.
                    if into is None:
                        (venv / ".unfinished").write_text(
                            "removed when the installation is complete\n"
                        )
                    total = len(line.split(":", 1)[1].split(","))
                    before = newest(venv)[0]
                if total and not line:
                    count, name = newest(venv)
                    count = min(max(count - before, 0), total)
                    text = "installing {} of {}: {}".format(count, total, name)
                if not line or not total:
                    progress.show(text)
            return pip.wait()
    except BaseException:
        pip.send_signal(signal.SIGINT) if os.name != "nt" else pip.terminate()
        try:
            pip.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pip.kill()
        raise
    finally:
        progress.end()


NO_NETWORK = (
    r"connection broken by|Connection(Error| refused)|NewConnectionError|ConnectTimeout|"
    r"Read ?timed? ?out|ProxyError|SSLError|name resolution|Network is unreachable|"
    r"Max retries exceeded|HTTP error 5\d\d|50[234] Server Error"
)


def explain(output, log_path):
    """Turn what pip said into plain words, where the reason is a known one.

    Args:
        output: of pip.
        log_path: where the whole of it is.

    Raises:
        Stop: with the reason, where it is known.
    """
    full = "\nThe whole output of pip: {}".format(log_path)
    if re.search(r"No space left on device|Errno 28|Disk quota exceeded", output):
        raise Stop("The disk is full. Make room (about 4 GB for the book), then run again." + full)
    missing = re.findall(
        r"No matching distribution found for (\S+)|Failed building wheel for (\S+)|"
        r"Failed to build (?:installable wheels for .*\()?([\w.-]+)",
        output,
    )
    # An index that cannot be reached ends in "No matching distribution" too, but lists no version.
    reached = missing and "(from versions: none)" not in output
    if re.search(NO_NETWORK, output, re.I) and not reached:
        raise Stop(
            "The package index cannot be reached. Check the network, and the proxy or mirror if "
            "pip is set up to use one, then run again." + full
        )
    if missing:
        names = sorted({name for row in missing for name in row if name})
        where = "{}, {}".format(platform.system(), platform.machine())
        raise Stop(
            "There is no ready-made package of {} for this machine ({}) and this Python. "
            "README.md names the machines that the book runs on.".format(", ".join(names), where)
            + full
        )
    if "ResolutionImpossible" in output or "conflicting dependencies" in output:
        raise Stop("pyproject.toml and constraints.txt contradict each other." + full)
    if re.search(r"Permission denied|Errno 13|Read-only file system", output):
        raise Stop("pip may not write to the venv folder; whose is it?" + full)


# Runs in the venv: which requested packages the markers leave out on this machine.
LEFT_OUT = """
import sys, tomllib
from pip._vendor.packaging.requirements import Requirement
project = tomllib.load(open('pyproject.toml', 'rb'))['project']
for extra in sys.argv[1:]:
    for line in project['optional-dependencies'][extra]:
        need = Requirement(line)
        if need.marker and not need.marker.evaluate():
            print('not installed: %s (from %s), only for %s' % (need.name, extra, need.marker))
"""


def is_of(venv, wanted):
    """Whether the venv runs, and is of the Python that the reader names, if one is named.

    Args:
        venv: its folder.
        wanted: the Python's name or path; None where none is named.
    """
    has = version_of(python_in(venv))
    asked = version_of(shutil.which(wanted) or wanted) if wanted else has
    return bool(has and asked and minor(has) == minor(asked))


def known_extras():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    return re.findall(r"^(\w+) = \[", table, re.M)


def requirements(extra):
    """What pyproject.toml lists under an extra, a requirement with its marker each."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    listed = re.search(r"^{} = \[(.*?)^\]".format(extra), table, re.M | re.S).group(1)
    return re.findall(r'^ *"([^"]+)",?$', listed, re.M)


def install_apart(venv, extra, log_path):
    """Unpack an extra into its folder of the venv, unless these very versions are there.

    Args:
        venv: its folder.
        extra: one of PRIVATE.
        log_path: of pip's log.

    Raises:
        Stop: where pip cannot get the packages.
    """
    if not sys.platform.startswith("linux"):
        return  # LEFT_OUT says so
    folder, needs = venv / extra, requirements(extra)
    names = {need.split(";")[0].strip() for need in needs}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = sorted(line for line in lines if line.split("==")[0] in names)
    wanted = "\n".join([version_of(python_in(venv)) or "", *pins, *UNUSED])
    stamp = folder / ".installed"
    with contextlib.suppress(OSError):
        if stamp.read_text(encoding="utf-8") == wanted:
            return
    say("unpacking {} into {}".format(extra, folder))
    shutil.rmtree(str(folder), ignore_errors=True)
    if run_pip(venv, [extra], log_path, into=folder):
        stop(log_path)
    for pattern in UNUSED:
        for path in folder.glob(pattern):
            shutil.rmtree(str(path)) if path.is_dir() else path.unlink()
    stamp.write_text(wanted, encoding="utf-8")


def stop(log_path):
    """Say what pip failed of, which its log tells."""
    output = log_path.read_text(encoding="utf-8", errors="replace")
    explain(output, log_path)
    raise Stop(
        "pip failed, and not in a way that is known here. Its last lines:\n{}\n"
        "The whole output: {}".format("\n".join(output.splitlines()[-12:]), log_path)
    )


def install(venv, extras, wanted, newest_releases=False):
    unknown = sorted(set(extras) - set(known_extras()))
    if unknown:
        raise Stop(
            "No such extra: {}. There are {}.".format(", ".join(unknown), ", ".join(known_extras()))
        )
    if "xla" in extras and {"torch", "tpu"} & set(extras):
        raise Stop("xla needs other versions than torch and tpu do: install it on its own.")
    stamp_path, log_path = venv / ".installed.json", venv / "install.log"
    state = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        state.update((ROOT / name).read_bytes())
    state.update(str(ROOT).encode())
    if newest_releases:
        state.update(str(time.time()).encode())  # what is newest today need not be so tomorrow
    stamp = {}
    with contextlib.suppress(OSError, ValueError):
        stamp = json.loads(stamp_path.read_text())
    have = stamp.get("extras", [])
    if (
        stamp.get("state") == state.hexdigest()
        and set(extras) <= set(have)
        and not (venv / ".unfinished").exists()
        and is_of(venv, wanted)
    ):
        return
    if "xla" not in extras and "xla" not in have:
        extras = sorted(set(extras) | set(have))  # what was asked for before stays
    python, version = str(python_in(venv)), version_of(python_in(venv))
    low, _, refused = supported()
    finished = stamp_path.exists() and not (venv / ".unfinished").exists()
    if wanted or not (finished and version and low <= minor(version) < refused):
        python, version = find_python(wanted)
    make_venv(python, version, venv, chosen=wanted)
    started = time.time()
    say("installing {} into {}; the first time takes minutes".format(", ".join(extras), venv))
    packages = [extra for extra in extras if extra not in PRIVATE]
    if run_pip(venv, packages, log_path, newest_releases):
        stop(log_path)
    for extra in sorted(set(extras) & set(PRIVATE)):
        install_apart(venv, extra, venv / "install-{}.log".format(extra))
    stamp_path.write_text(json.dumps({"state": state.hexdigest(), "extras": extras}))
    if (venv / ".unfinished").exists():
        (venv / ".unfinished").unlink()
    count = newest(venv)[0]
    say("{} packages in {}, {:.0f} s".format(count, venv, time.time() - started))
    subprocess.run([str(python_in(venv)), "-c", LEFT_OUT, *extras], cwd=str(ROOT))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", default=str(ROOT / ".venv"), help="the folder (.venv)")
    parser.add_argument(
        "--extras", default="book,dev,tpu,torch,taichi,gpu", help="with commas between"
    )
    parser.add_argument(
        "--python", help="the Python to use (the one that runs this, else the newest that fits)"
    )
    parser.add_argument(
        "--newest", action="store_true", help="JAX, its compilers, Taichi and torch unpinned"
    )
    parser.add_argument(
        "--another",
        action="store_true",
        help="install nothing, and name the newest Python here of another version than the venv's",
    )
    options = parser.parse_args()
    extras = sorted({e for e in re.split(r"[,\s]+", options.extras) if e})
    try:
        venv = pathlib.Path(options.venv).absolute()
        if options.another:
            say(another(venv))
            return 0
        install(venv, extras, options.python, options.newest)
    except Stop as stop:
        sys.stderr.write("\n{}\n".format(stop))
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted; the same command goes on from here.\n")
        return 130
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sys.stderr.write("\nThe disk is full. Make room (about 4 GB), then run again.\n")
        else:
            sys.stderr.write("\n{}\n".format(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
