"""Run what a new release breaks first, on the newest releases, and say in words what changed.

    make canary          or  python3 tools/canary.py [--minutes 12] [--python PATH]

It makes an environment of its own, .venv-canary, of the newest Python that the book supports, with
JAX, its compilers, Taichi, Quadrants and PyTorch at their newest releases, whatever constraints.txt
says. There it runs the version bridge, the gallery, the tests of Pallas and of the TPU, and rungs 1
to 3 of every implementation. It ends in time: what it did not come to is counted, and no failure.
Its exit status: 0 where all is well, 1 where a check fails, 2 where the newest releases could not
be installed, 3 where there is no Python for them, 4 where it came to less than half of its checks.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import install
import pythons

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-canary"
OLDEST = (3, 12)  # the newest releases of JAX and Quadrants want it
EXTRAS = ("dev", "taichi", "torch", "tpu")
MINUTES = 12
GRACE = 60  # seconds that a test which has begun may take after the end
# What tells most first; the ladder comes last, since it is the longest and may be cut short.
CHECKS = (
    "tests/machines/test_compat.py",
    "tests/test_then_and_now.py",
    "tests/machines/pallas",
    "tests/lessons/test_gallery.py",
    "tests/machines/tpu",
    "tests/proof/test_ladder.py",
)

# Runs in the canary's environment: each package that is not pinned there, pinned and installed.
RELEASES = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
from pip._vendor.packaging.requirements import Requirement
releases = {}
for line in open('constraints.txt', encoding='utf-8'):
    line = line.partition('#')[0].strip()
    pin = Requirement(line) if line else None
    if pin and pin.name in sys.argv[1:] and (not pin.marker or pin.marker.evaluate()):
        try:
            releases[pin.name] = [str(pin.specifier)[2:], version(pin.name).partition('+')[0]]
        except PackageNotFoundError:
            pass
print(json.dumps(releases))
"""


def find(wanted=None):
    """Path and version of the Python to try the newest releases on; None where there is none."""
    here = [pythons.find_python(wanted)] if wanted else pythons.supported_pythons()
    return next((python for python in here if pythons.minor(python[1]) >= OLDEST), None)


def releases(python):
    """name → (pinned, installed) of what the canary takes at its newest."""
    done = subprocess.run(
        [python, "-c", RELEASES, *install.NEWEST], cwd=ROOT, capture_output=True, text=True
    )
    return {name: tuple(versions) for name, versions in json.loads(done.stdout or "{}").items()}


def changes(versions):
    """What is newer than its pin, a line each; of name → (pinned, installed)."""
    newer = [(name, *pair) for name, pair in sorted(versions.items()) if len({*pair}) > 1]
    lines = [f"  {name} {pinned} → {installed}" for name, pinned, installed in newer]
    return lines or ["  nothing: the pins are the newest releases"]


def verdict(report):
    """What the checks found, in lines; a report is what canary_report wrote."""
    count, failures = report["count"], report["failures"]
    lines = [f"  {node}: {said}" for node, said in failures]
    tail = f"{count['passed']} checks passed, {len(failures)} failed, {count['skipped']} skipped"
    if left := report["not_reached"]:
        tail += f"; {left} of {report['total']} were not reached in time"
    return [*(["What fails on them:", *lines] if lines else []), tail]


def run(python, seconds, checks=CHECKS):
    """Run the checks for so long, and give the report; None where pytest itself came to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        env = dict(os.environ, CANARY_END=str(time.time() + seconds), CANARY_REPORT=str(file))
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tools"), str(ROOT)])
        env.setdefault("JAX_PLATFORMS", "cpu")
        for name in [name for name in env if name.startswith("PYTEST_XDIST_")]:
            del env[name]  # its workers are its own, also where a worker's test runs it
        env.pop("KERNELS_STRICT", None)  # what is not installed there is no fault of a release
        command = [python, "-m", "pytest", "-p", "canary_report", "-p", "no:cacheprovider"]
        command += ["--override-ini", "addopts=--strict-markers", "-q", "--tb=no", "--no-header"]
        command += ["-n", str(os.cpu_count() or 1), "--dist", "loadgroup", *checks]
        tests = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
        try:
            tests.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGINT)  # pytest writes its report before it goes
            try:
                tests.wait(GRACE / 2)
            except subprocess.TimeoutExpired:
                os.killpg(tests.pid, signal.SIGKILL)
                tests.wait()
        except KeyboardInterrupt:
            os.killpg(tests.pid, signal.SIGKILL)
            raise
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def not_run(status, why):
    print(f"\n!!! NOT RUN: make canary\n!!! {why}\n", file=sys.stderr)
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"in all ({MINUTES})")
    parser.add_argument("--python", help="the Python to use (the newest that fits)")
    options = parser.parse_args()
    started = time.time()
    try:
        chosen = find(options.python)
        if chosen is None:
            need = ".".join(map(str, OLDEST))
            return not_run(3, f"it needs Python {need} or newer, and none is here")
        print(f"The newest releases, on Python {chosen[1]} ({chosen[0]}):", flush=True)
        install.install(VENV, sorted(EXTRAS), chosen[0], newest_releases=True)
    except pythons.Stop as stop:
        return not_run(2, f"the newest releases could not be installed: {stop}")
    python = pythons.python_in(VENV)
    print("Pinned → newest:", *changes(releases(python)), sep="\n", flush=True)
    seconds = options.minutes * 60 - (time.time() - started) - 1.5 * GRACE
    report = run(python, max(seconds, GRACE))
    if report is None:
        print("The checks ended without a report.", file=sys.stderr)
        return 1
    print(*verdict(report), f"in {(time.time() - started) / 60:.1f} minutes", sep="\n")
    if not report["failures"] and report["not_reached"] > report["total"] / 2:
        return not_run(4, "most of its checks: this machine is too busy, give it --minutes")
    return int(bool(report["failures"]))


if __name__ == "__main__":
    sys.exit(main())
