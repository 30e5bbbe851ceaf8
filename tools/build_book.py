"""Run the notebooks in parallel, then build the book from what they answered.

    make book            or  .venv/bin/python tools/build_book.py [-v]

An executed notebook is kept in _build/.jupyter_cache, where the book's builder (myst-nb) finds it,
and so do the tests (notebooks/conftest.py). It is run again when its code cells change, or anything
it could import does. One that lacks an optional package (kernels.optional.MissingPackage) is named,
and its page stays without outputs.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import nbclient
import nbformat
import yaml
from bs4 import BeautifulSoup
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("KERNELS_BUILD") or ROOT / "_build")  # the tests take another
HTML = BUILD / "html"
CACHE = BUILD / ".jupyter_cache"

# Before any kernel starts: the CPU unless a device is asked for, and no word that is not the
# notebook's own (each of these would end up in a page, or in the home folder of the reader).
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.update(
    JUPYTER_PREFER_ENV_PATH="1",
    JUPYTER_PLATFORM_DIRS="1",
    IPYTHONDIR=str(BUILD / ".ipython"),
    PYDEVD_DISABLE_FILE_VALIDATION="1",
    JAX_PPRINT_USE_COLOR="false",  # colour codes would be dark on dark
)


class BookError(Exception):
    """What went wrong, in words for whoever wrote the page."""


class NotRun(Exception):
    """An optional package is missing; the message names it and how to install it."""


def digest(*patterns):
    """One hash over the names and contents of all files that match."""
    state = hashlib.sha256(sys.version.encode())
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                state.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return state.hexdigest()


def recall(name):
    """What was remembered under `name`, or None."""
    path = BUILD / f".{name}"
    return path.read_text() if path.exists() else None


def remember(name, value):
    (BUILD / f".{name}").write_text(value)


def toc_files():
    """The pages that _toc.yml names, in order, without suffix."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def walk(node):
        if isinstance(node, dict):
            yield from (node[key] for key in ("root", "file") if key in node)
            node = [node[key] for key in ("parts", "chapters", "sections") if key in node]
        if isinstance(node, list):
            for child in node:
                yield from walk(child)

    return list(walk(toc))


def toc_notebooks():
    return [path for name in toc_files() if (path := ROOT / f"{name}.ipynb").exists()]


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def run_notebook(path, timeout):
    """Run a notebook, in an empty folder, so that no path can be assumed.

    Args:
        path: of the notebook.
        timeout: seconds for each cell.

    Returns:
        The executed notebook and its seconds.

    Raises:
        NotRun: where an optional package is missing.
        BookError: where a cell fails, takes too long, ends the kernel, or writes to stderr.
    """
    notebook = nbformat.read(path, as_version=4)
    started = time.monotonic()
    # What the kernel's process says is no output of a cell; it tells why a kernel died.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        client = nbclient.NotebookClient(
            notebook,
            timeout=timeout,
            record_timing=False,  # it would go into the metadata, by which the cache is searched
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute(stderr=said)
        except nbclient.exceptions.CellExecutionError as failure:
            if failure.ename == "MissingPackage":
                raise NotRun(plain(failure.evalue)) from None
            outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
            error = [o for o in outputs if o.output_type == "error"][-1]
            said = plain("\n".join(error.traceback))
            raise BookError(f"{failed_cell(notebook, path)}\n{said}") from None
        except nbclient.exceptions.CellTimeoutError:
            raise BookError(
                f"{failed_cell(notebook, path)}\ntook longer than {timeout} s, "
                "the timeout in _config.yml"
            ) from None
        except nbclient.exceptions.DeadKernelError:
            said.seek(0)
            raise BookError(
                f"{failed_cell(notebook, path)}\nended the kernel:\n{said.read()[-2000:]}"
            ) from None
    if said := said_on_stderr(notebook, path):
        raise BookError(said)
    return notebook, time.monotonic() - started


def said_on_stderr(notebook, path):
    """The first cell that wrote to stderr, which a page must not show.

    Args:
        notebook: as it was executed.
        path: of it.

    Returns:
        The cell and what it wrote, in words; else empty.
    """
    for number, cell in enumerate(code_cells(notebook), 1):
        said = "".join(o.text for o in cell.outputs if o.get("name") == "stderr")
        if said and "remove-stderr" not in cell.metadata.get("tags", []):
            return (
                f"{path.name}, code cell {number} wrote to stderr:\n{said}\n"
                "Its first lines:\n" + head(cell.source)
            )
    return ""


def plain(text):
    """Without the colours of a terminal."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def head(source, lines=6):
    return "\n".join("    " + line for line in source.splitlines()[:lines])


def failed_cell(notebook, path):
    """Which cell stopped the run: the last one that started."""
    cells = code_cells(notebook)
    number = max(
        (n for n, c in enumerate(cells, 1) if c.get("execution_count") or c.outputs), default=1
    )
    # The cell that fails has a count too; one that ran into the timeout or died has none yet.
    failed = any(o.output_type == "error" for o in cells[number - 1].outputs) if cells else True
    if not failed and number < len(cells):
        number += 1
    return f"{path.name}, code cell {number}:\n{head(cells[number - 1].source)}"


@contextlib.contextmanager
def locked(name):
    """One process at a time, for each name."""
    folder = BUILD / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def open_cache():
    """The cache, emptied where anything that a notebook could import has changed."""
    # No cell can tell the scripts of the players, or what the tests found.
    imports = digest("kernels/**/*.[!jc]*", "kernels/**/*.cpp", "results/[!s]*", "constraints.txt")
    imports += f"/{os.environ['JAX_PLATFORMS']}/{os.environ.get('KERNELS_RESULTS', '')}"
    with locked("cache"):
        if recall("imports") != imports:
            shutil.rmtree(CACHE, ignore_errors=True)
            remember("imports", imports)
        yield get_cache(str(CACHE))


def kept(path):
    """The executed notebook and its seconds, where the cache holds them; else None."""
    with open_cache() as cache:
        try:
            record = cache.match_cache_notebook(nbformat.read(path, as_version=4))
        except KeyError:
            return None
        if record.data.get("not_run"):
            return None
        return cache.get_cache_bundle(record.pk).nb, record.data["execution_seconds"]


def keep(path, notebook, **data):
    """Put a notebook in the cache.

    Args:
        path: of the notebook.
        notebook: with what its cells answered.
        data: execution_seconds=, or not_run=True for an unexecuted one.
    """
    with open_cache() as cache:
        cache.cache_notebook_bundle(
            CacheBundleIn(notebook, str(path), data=data), check_validity=False, overwrite=True
        )


def run_notebooks(paths, timeout, say):
    """Put every notebook in the cache, one at a time for each core.

    Args:
        paths: of the notebooks.
        timeout: seconds for each cell.
        say: takes a line on how far it is.

    Returns:
        Those that lack an optional package. Of these the cache holds an unexecuted copy, which is
        tried again each time.

    Raises:
        BookError: where any of them fails; it tells of all that do.
    """
    todo = [path for path in paths if not kept(path)]
    if not todo:
        say(f"{len(paths)} notebooks are as they were when they last ran")
        return []
    say(f"running {len(todo)} of {len(paths)} notebooks")
    errors, not_run = [], []

    def run(path):
        with locked(path.name):
            if kept(path):  # by a test, meanwhile
                return f"{path.name} was executed by a test"
            try:
                notebook, seconds = run_notebook(path, timeout)
            except NotRun as error:
                keep(path, nbformat.read(path, as_version=4), not_run=True)
                not_run.append(path)
                return f"not run: {path.name}: {error}"
            except BookError as error:
                errors.append(str(error))
                return f"failed   {path.name}"
            keep(path, notebook, execution_seconds=seconds)
            return f"executed {path.name} {seconds:.1f} s"

    # Threads are enough: each notebook's kernel is a process of its own.
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        jobs = [pool.submit(run, path) for path in todo]
        try:
            for job in as_completed(jobs):
                say(f"  {job.result()}")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if errors:
        raise BookError("\n\n".join(errors))
    return sorted(not_run)


def run_sphinx(verbose, say):
    """Build the pages; any warning is an error.

    Args:
        verbose: let the builder say all it has to say.
        say: takes a line on what is done.

    Raises:
        BookError: where the builder finds fault.
    """
    # From a child, so that a failed build can be told without the thousand lines before it.
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(ROOT), "-W", "-n", "--keep-going", "--path-output", str(ROOT)]
    say("building the pages")
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdout=None if verbose else subprocess.PIPE,
        stderr=None if verbose else subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        # A page already read gives its warning only once, and the next run would pass.
        shutil.rmtree(HTML / ".doctrees", ignore_errors=True)
        shutil.rmtree(BUILD / ".doctrees", ignore_errors=True)
        lines = [] if verbose else plain(done.stdout).splitlines()
        telling = [line for line in lines if "WARNING" in line or "ERROR" in line]
        raise BookError("\n".join(telling or lines[-40:]) + "\nThe book's builder found fault.")


def outputs_of(path):
    """One hash over what the cells of a notebook answered; empty where it was not run."""
    found = kept(path)
    return found and hashlib.sha256(nbformat.writes(found[0]).encode()).hexdigest()


def check_pages(paths):
    """Every notebook's page shows the outputs that the cache holds."""
    for path in paths:
        executed, _ = kept(path)
        want = sum(
            bool(cell.outputs)
            for cell in code_cells(executed)
            if not {"remove-cell", "remove-output"} & set(cell.metadata.get("tags", []))
        )
        page = HTML / path.relative_to(ROOT).with_suffix(".html")
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        have = len(soup.select("div.cell_output"))
        if not want or have < want:
            raise BookError(f"{path.name} shows {have} outputs; {want} cells have one")


def print_line(line):
    print(line, flush=True)


def build_book(verbose=False, say=print_line):
    """Build the book in _build/html.

    Args:
        verbose: let the builder say all it has to say.
        say: takes a line on how far it is.

    Returns:
        The notebooks that were not run, because an optional package is missing.

    Raises:
        BookError: where the book is not whole.
    """
    with locked("book"):  # make book and make test may run at once
        return _build_book(verbose, say)


def _build_book(verbose, say):
    notebooks = toc_notebooks()
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    not_run = run_notebooks(notebooks, config["execute"]["timeout"], say)
    # Sphinx sees that a page changed; not that its outputs, its place or its builder did.
    pages = digest(
        "kernels/**/*",
        "constraints.txt",
        "_toc.yml",
        "_config.yml",
        "book/_ext/*",
        "tools/build_book.py",
    )
    pages += "".join(f"/{path.name}" for path in not_run)
    if recall("pages") != pages:
        shutil.rmtree(HTML, ignore_errors=True)
        shutil.rmtree(BUILD / ".doctrees", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (BUILD / ".pages").unlink()
    shown = {str(path.relative_to(ROOT)): outputs_of(path) for path in notebooks}
    before = json.loads(recall("shown") or "{}")
    for name, outputs in shown.items():
        if outputs != before.get(name):
            (BUILD / ".doctrees" / name).with_suffix(".doctree").unlink(missing_ok=True)
    run_sphinx(verbose, say)
    check_pages([path for path in notebooks if path not in not_run])
    remember("pages", pages)
    remember("shown", json.dumps(shown))
    return not_run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the builder says")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        not_run = build_book(options.verbose)
    except BookError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    print(f"The book is in {HTML.relative_to(ROOT)} ({time.monotonic() - started:.0f} s).")
    if not_run:
        print("Without the outputs of what was not run:", *(path.name for path in not_run))
    print("To read it: make serve")
    return 0


if __name__ == "__main__":
    sys.exit(main())
