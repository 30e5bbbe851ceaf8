#!/usr/bin/env python3
"""Make the environment: a venv with this package and the extras asked for.

    python3 tools/install.py [--venv DIR] [--extras book,dev,tpu,torch,taichi,gpu] [--python PYTHON]

One call of uv where it is there, else of pip, under constraints.txt; and one more for what gets a
folder of its own. Any Python since 3.6 can run this file, and tools/pythons.py finds the one to
build with.
"""

import argparse
import ast
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

import pythons
from pythons import ROOT, Stop, ask, minor, python_in, read, say, version_of

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
# pip's settings as uv calls them; with one that is neither here nor nothing to uv, pip installs.
FOR_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "no-cache-dir": "UV_NO_CACHE",
}
NOTHING_TO_UV = ("disable-pip-version-check", "no-input", "require-virtualenv", "retries")
OLDEST_UV = (0, 5)  # that knows these
# Megabytes of disk of each extra beside the package and JAX ("") on Linux, x86-64; a third of it is
# downloaded. PyTorch with CUDA takes CUDA more.
SIZES = {"": 640, "book": 470, "dev": 730, "first": 270, "gpu": 620, "taichi": 310, "torch": 960}
SIZES["tpu"] = 720
CUDA = 3800
CPU = "https://download.pytorch.org/whl/cpu"  # PyTorch's builds without
# What uv and pip say, and a system behind them.
STEP = r"^ *((?:Collecting|Download|Installing|Prepared|Resolved).*)"
FULL = r"No space left on device|Errno 28|os error 28|Disk quota exceeded"
NO_ROOM = "The disk is full. Make room (about 4 GB for the book), then run again."
NO_NETWORK = (
    r"connection broken by|Connection(Error| refused)|NewConnectionError|ConnectTimeout|"
    r"Read ?timed? ?out|ProxyError|SSLError|name resolution|Network is unreachable|"
    r"Max retries exceeded|HTTP error 5\d\d|50[234] Server Error"
)
NO_PACKAGE = (
    r"No matching distribution found for (\S+)|Failed building wheel for (\S+)|"
    r"Failed to build (?:installable wheels for .*\()?([\w.-]+)"
)


# --- the venv ---------------------------------------------------------------------------------


def mark(venv):
    """Say in the venv that it is being filled: neither old nor new."""
    (venv / ".unfinished").write_text("removed when the installation is complete\n")


def make_venv(python, version, venv, chosen):
    """Keep a venv that works; make any other anew. `.unfinished` marks one being filled.

    Args:
        python: the path of the one to make it with.
        version: of that Python.
        venv: its folder.
        chosen: whether the reader named this Python, so that a venv of another one does not do.

    Raises:
        Stop: where the folder is in the way, or Python cannot make a venv.
    """
    low, _, refused = pythons.supported()
    unfinished = (venv / ".unfinished").exists()
    if venv.exists() and not venv.is_dir():
        raise Stop(f"{venv} is in the way: it is not a folder. Move it, then run again.")
    if venv.is_dir() and any(venv.iterdir()):
        has = version_of(python_in(venv), "pip")
        fits = has and low <= minor(has) < refused
        fits = fits and (not chosen or minor(has) == minor(version))
        if fits and not unfinished:
            return
        if not unfinished and not (venv / ".installed.json").exists():
            why = f"Python {has}" if has else "it has no pip, or does not run"
            what = f"is a venv made by hand that cannot be used here ({why})"
            if not (venv / "pyvenv.cfg").exists():
                what = "holds something that is not a venv"
            raise Stop(f"{venv} {what}. Move it away, or name another folder with --venv.")
        why = f"has Python {has}" if has and not fits else "is left from a run that did not finish"
        say(f"{venv} {why}; making it again")
        shutil.rmtree(str(venv))
    if not pythons.makes_venvs(python):
        raise Stop(
            f"{python} (Python {version}) cannot make a virtual environment: its venv or ensurepip "
            "module is missing.\nOn Debian and Ubuntu: apt install python3-venv"
        )
    say(f"making {venv} with Python {version}")
    venv.mkdir(parents=True, exist_ok=True)
    mark(venv)
    log_path = venv / "install.log"
    if run([str(python), "-m", "venv", str(venv)], log_path):
        if re.search(FULL, read(log_path)) or shutil.disk_usage(str(venv)).free < 2**24:
            raise Stop(NO_ROOM)
        raise Stop("python -m venv failed:\n" + read(log_path).strip())


# --- uv and pip -------------------------------------------------------------------------------


def run(command, log_path, env=None, watch=None):
    """Run a command, and say now and then how far it is.

    Args:
        command: a list of words.
        log_path: of the file that gets what it says.
        env: its environment; None for ours.
        watch: takes what it has said so far, each time we look.

    Returns:
        Its exit status.
    """
    start = last = time.time()
    with open(str(log_path), "w", encoding="utf-8") as log:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
        job = subprocess.Popen(command, cwd=str(ROOT), env=env, **pipes)
    try:
        while job.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(timeout=0.3)
            output = read(log_path)
            if watch:
                watch(output)
            if time.time() - last > 10:
                last = time.time()
                lines = re.findall(STEP, output, re.M) or ["asking the package index"]
                say(f"  {lines[-1][:80]} ({last - start:.0f} s)")
    except BaseException:
        job.send_signal(signal.SIGINT)
        try:
            job.wait(timeout=5)
        except subprocess.TimeoutExpired:
            job.kill()
        raise
    return job.returncode


def constraints(venv, extras, newest=False):
    """The path of constraints.txt, or of a copy in the venv: for xla with its `# xla:` lines in
    force, for the newest releases without the pins of NEWEST."""
    path = ROOT / "constraints.txt"
    lines, other, names = read(path).splitlines(), [], set(NEWEST)
    if "xla" in extras:
        other = [line[len("# xla: ") :] for line in lines if line.startswith("# xla: ")]
        names = {line.split("==")[0] for line in other}
    elif not newest:
        return path
    lines = other + [line for line in lines if line.split("==")[0] not in names]
    path = venv / "constraints.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def find_uv(venv):
    """uv in the venv or on PATH, and pip's settings as its variables; None where pip does it."""
    uv = shutil.which("uv", path=str(python_in(venv).parent)) or shutil.which("uv")
    version = re.match(r"uv (\d+)\.(\d+)", ask(uv, "--version") or "") if uv else None
    if not version or tuple(map(int, version.groups())) < OLDEST_UV:
        return None
    listed = ask(python_in(venv), "-m", "pip", "config", "list") or ""
    settings = re.findall(r"^(global|install|:env:)\.(\S+?)=(.*)$", listed, re.M)
    variables = {}
    # The last one counts: what a file says of all commands, what of this one, what a variable says.
    for _, name, value in sorted(settings, key=lambda setting: (setting[0] == ":env:", setting[0])):
        if name in FOR_UV:
            separator = "," if name == "find-links" else " "
            variables[FOR_UV[name]] = separator.join(str(ast.literal_eval(value)).split())
        elif name not in NOTHING_TO_UV:
            return None
    return uv, variables


def fetch(venv, extras, log_path, newest_releases=False, into=None):
    """Install extras with uv where it is there and can, else with pip.

    Args:
        venv: its folder.
        extras: to be installed.
        log_path: of the log; uv's has "-uv" in its name.
        newest_releases: whether to leave out the pins of NEWEST.
        into: a folder for the packages of these extras alone, without what they ask for; None for
            the venv.

    Raises:
        Stop: where neither can, with the reason.
    """
    limits = constraints(venv, extras, newest_releases)
    what = ["-c", str(limits), "-e", f".[{','.join(extras)}]" if extras else "."]
    if into:
        what[2:] = ["--no-deps", "--target", str(into)]
        what += [need for extra in extras for need in project_extras()[extra]]
    uv = find_uv(venv)
    if uv and run_uv(uv, venv, what + ["--upgrade"] * newest_releases, log_path):
        return
    env = dict(os.environ)
    # The build backend is installed by a pip of its own, which these two names reach: the second
    # since pip 25.3. As a URL, because pip splits the value at spaces.
    env["PIP_CONSTRAINT"] = env["PIP_BUILD_CONSTRAINT"] = limits.as_uri()
    env.setdefault("PIP_RETRIES", "1")
    env.setdefault("PIP_DEFAULT_TIMEOUT", "15")
    env.setdefault("PIP_RESUME_RETRIES", "5")  # since pip 25.1 a file goes on where it broke off
    env.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PYTHONUNBUFFERED="1")
    env.pop("PIP_REQUIRE_VIRTUALENV", None)
    env.pop("PIP_USER", None)
    command = [str(python_in(venv)), "-m", "pip", "install", "--progress-bar", "off"]
    command += ["--upgrade", "--upgrade-strategy", "eager"] if newest_releases else []
    command += ["--no-compile"] if into else []

    def watch(output):
        # From here on a failure leaves a venv that is neither old nor new.
        if into is None and "\nInstalling collected packages:" in output:
            mark(venv)

    if run(command + what, log_path, env, watch):
        explain(read(log_path), log_path)


def run_uv(uv, venv, what, log_path):
    """Whether uv could install it. Its cache lets a second run go on where the first one ended."""
    path, variables = uv
    log_path = log_path.with_name(log_path.stem + "-uv.log")
    command = [path, "pip", "install", "--python", str(python_in(venv)), "--no-progress"]
    # As pip does: the newest of all indexes, and pins for what builds packages.
    command += ["--index-strategy", "unsafe-best-match", "--build-constraints", what[1]]
    # Else Python warns at the first import of what it compiles, in the middle of a page.
    command += ["--compile-bytecode"] if "-e" in what else []
    was_marked = (venv / ".unfinished").exists()

    def watch(output):
        if "-e" in what and "Resolved " in output:
            mark(venv)

    if not run(command + what, log_path, dict(variables, **os.environ), watch):
        return True
    output = read(log_path)
    if re.search(FULL, output):
        raise Stop(NO_ROOM)
    if not was_marked and not re.search(r"Prepared|Uninstalled|Failed to install", output):
        with contextlib.suppress(OSError):
            (venv / ".unfinished").unlink()  # it changed nothing
    say(f"uv could not install this, as {log_path} says; pip tries")
    return False


def explain(output, log_path):
    """Turn what pip said into plain words.

    Args:
        output: of pip.
        log_path: where the whole of it is.

    Raises:
        Stop: with the reason where it is a known one, else with pip's last lines.
    """
    names = sorted({name for names in re.findall(NO_PACKAGE, output) for name in names if name})
    # An index that cannot be reached ends in "No matching distribution" too, but lists no version.
    reached = names and "(from versions: none)" not in output
    if re.search(FULL, output):
        reason = NO_ROOM
    elif re.search(NO_NETWORK, output, re.I) and not reached:
        reason = (
            "The package index cannot be reached. Check the network, and the proxy or mirror if "
            "pip is set up to use one, then run again."
        )
    elif names:
        reason = (
            f"There is no ready-made package of {', '.join(names)} for this machine "
            f"({platform.system()}, {platform.machine()}) and this Python. README.md names the "
            "machines that the book runs on."
        )
    elif "ResolutionImpossible" in output or "conflicting dependencies" in output:
        reason = "pyproject.toml and constraints.txt contradict each other."
    elif re.search(r"Permission denied|Errno 13|Read-only file system", output):
        reason = "pip may not write to the venv folder; whose is it?"
    else:
        reason = "pip failed, and not in a way that is known here. Its last lines:\n"
        reason += "\n".join(output.splitlines()[-12:])
    raise Stop(f"{reason}\nThe whole output of pip: {log_path}")


# --- the extras -------------------------------------------------------------------------------

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


def project_extras():
    """What pyproject.toml lists under each extra, every requirement with its marker."""
    table = read(ROOT / "pyproject.toml").split("[project.optional-dependencies]")[1]
    listed = re.findall(r"^(\w+) = \[(.*?)\]$", table.split("\n[")[0], re.M | re.S)
    return {extra: re.findall(r'"([^"]+)"', needs) for extra, needs in listed}


def install_apart(venv, extra, log_path):
    """Unpack an extra into its folder of the venv, unless these very versions are there.

    Args:
        venv: its folder.
        extra: one of PRIVATE.
        log_path: of pip's log.

    Raises:
        Stop: where the packages cannot be fetched.
    """
    if not sys.platform.startswith("linux"):
        return  # LEFT_OUT says so
    folder = venv / extra
    names = {need.split(";")[0].strip() for need in project_extras()[extra]}
    lines = read(ROOT / "constraints.txt").splitlines()
    pins = sorted(line for line in lines if line.split("==")[0] in names)
    wanted = "\n".join([version_of(python_in(venv)) or "", *pins, *UNUSED])
    stamp = folder / ".installed"
    if stamp.exists() and read(stamp) == wanted:
        return
    say(f"unpacking {extra} into {folder}")
    shutil.rmtree(str(folder), ignore_errors=True)
    fetch(venv, [extra], log_path, into=folder)
    for pattern in UNUSED:
        for path in folder.glob(pattern):
            shutil.rmtree(str(path)) if path.is_dir() else path.unlink()
    stamp.write_text(wanted, encoding="utf-8")


@contextlib.contextmanager
def locked(venv):
    """One installation at a time into the environments of a folder; another one waits."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    # The folder itself is locked: a file in the venv would go where the venv is made again.
    folder = os.open(str(venv.parent), os.O_RDONLY) if fcntl else None
    try:
        if fcntl:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another installation is at work here; waiting for it")
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        if fcntl:
            os.close(folder)


def sizes(extras):
    """A line on what a new environment with these extras takes, and which take how much of it."""
    parts = [("JAX", SIZES[""])] + [(extra, SIZES[extra]) for extra in extras if extra in SIZES]
    whole = sum(size for _, size in parts) / 1000
    shares = ", ".join("{} {:.1f}".format(name, size / 1000) for name, size in parts)
    cuda = "torch" in extras and sys.platform.startswith("linux")
    without = "none of that with PIP_EXTRA_INDEX_URL=" + CPU
    more = "; PyTorch with CUDA {:.1f} more, {}".format(CUDA / 1000, without) if cuda else ""
    return (
        f"about {whole:.1f} GB of disk, a third of it to download ({shares}{more}); make first "
        "takes 0.9 GB, for the first five chapters"
    )


def is_of(venv, wanted):
    """Whether the venv runs, and is of the Python that the reader names, if one is named."""
    has = version_of(python_in(venv))
    asked = version_of(shutil.which(wanted) or wanted) if wanted else has
    return bool(has and asked and minor(has) == minor(asked))


def install(venv, extras, wanted, newest_releases=False):
    """Bring a venv to what the project asks for, and leave one alone that is there already.

    Args:
        venv: its folder.
        extras: a list of names.
        wanted: the Python that the reader names; None where none is named.
        newest_releases: whether to leave out the pins of NEWEST.

    Raises:
        Stop: where that cannot be.
    """
    known = project_extras()
    unknown = sorted(set(extras) - set(known))
    if unknown:
        raise Stop(f"No such extra: {', '.join(unknown)}. There are {', '.join(known)}.")
    if "xla" in extras and {"torch", "tpu"} & set(extras):
        raise Stop("xla needs other versions than torch and tpu do: install it on its own.")
    stamp_path, unfinished = venv / ".installed.json", venv / ".unfinished"
    state = hashlib.sha256(str(ROOT).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        state.update((ROOT / name).read_bytes())
    if newest_releases:
        state.update(str(time.time()).encode())  # what is newest today need not be so tomorrow
    stamp = {}
    with contextlib.suppress(OSError, ValueError):
        stamp = json.loads(read(stamp_path))
    have, finished = stamp.get("extras", []), stamp_path.exists() and not unfinished.exists()
    current = finished and stamp.get("state") == state.hexdigest()
    if current and set(extras) <= set(have) and is_of(venv, wanted):
        return
    if "xla" not in extras and "xla" not in have:
        extras = sorted(set(extras) | set(have))  # what was asked for before stays
    python, version = str(python_in(venv)), version_of(python_in(venv))
    low, _, refused = pythons.supported()
    if wanted or not (finished and version and low <= minor(version) < refused):
        python, version = pythons.find_python(wanted)
    make_venv(python, version, venv, chosen=wanted)
    started = time.time()
    say(f"installing {', '.join(extras)} into {venv}; the first time takes minutes")
    if not finished:
        say(sizes(extras))
    packages = [extra for extra in extras if extra not in PRIVATE]
    fetch(venv, packages, venv / "install.log", newest_releases)
    for extra in sorted(set(extras) & set(PRIVATE)):
        install_apart(venv, extra, venv / f"install-{extra}.log")
    stamp_path.write_text(json.dumps({"state": state.hexdigest(), "extras": extras}))
    if unfinished.exists():
        unfinished.unlink()
    count = len(list(venv.glob("lib/python3.*/site-packages/*.dist-info")))
    say(f"{count} packages in {venv}, {time.time() - started:.0f} s")
    subprocess.run([str(python_in(venv)), "-c", LEFT_OUT, *extras], cwd=str(ROOT))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    option = parser.add_argument
    option("--venv", default=str(ROOT / ".venv"), help="the folder (.venv)")
    option("--extras", default="book,dev,tpu,torch,taichi,gpu", help="with commas between")
    option("--python", help="the one to use (the one that runs this, else the newest that fits)")
    option("--newest", action="store_true", help="JAX, its compilers, Taichi and torch unpinned")
    option(
        "--another",
        action="store_true",
        help="install nothing, and name the newest Python here of another version than the venv's",
    )
    options = parser.parse_args()
    extras = sorted({extra for extra in re.split(r"[,\s]+", options.extras) if extra})
    venv = pathlib.Path(options.venv).absolute()
    try:
        if options.another:
            say(pythons.another(venv))
        else:
            with locked(venv):
                install(venv, extras, options.python, options.newest)
    except Stop as stop:
        sys.stderr.write(f"\n{stop}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted; the same command goes on from here.\n")
        return 130
    except OSError as error:
        reason = NO_ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT) else error
        sys.stderr.write(f"\n{reason}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
