"""Run the notebooks in parallel, then build the book from what they answered.

    make book            or  .venv/bin/python tools/build_book.py [-v]

An executed notebook is kept in _build/.jupyter_cache, where the book's builder (myst-nb) finds it,
and so do the tests (notebooks/conftest.py). It is run again when its code cells change, or anything
it could import does. One that lacks an optional package (kernels.optional.MissingPackage) is named,
and its page stays without outputs. One that a cell stops fails the build at its end: the pages are
built first, its own with the outputs up to that cell and a banner (book/_ext/failures.py).
"""

import argparse
import contextlib
import copy
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import yaml
from sqlalchemy.exc import DatabaseError

# For it jsonschema makes a grammar of web addresses, which no notebook needs: two seconds of each
# process that imports nbformat.
sys.modules.setdefault("rfc3987_syntax", None)

import nbclient  # noqa: E402
import nbformat  # noqa: E402
from jupyter_cache import get_cache  # noqa: E402
from jupyter_cache.base import CacheBundleIn  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import chapters  # noqa: E402
from xla_flags import quick_to_compile  # noqa: E402

BUILD = Path(os.environ.get("KERNELS_BUILD") or ROOT / "_build")  # the tests take another
HTML = BUILD / "html"
CACHE = BUILD / ".jupyter_cache"
LOG = BUILD / "failed.log"
OUTPUT = re.compile(r'<div class="(?:[^"]* )?cell_output[ "]')  # a cell's, on a page

# Before any kernel starts: the CPU unless a device is asked for, and no word that is not the
# notebook's own (each of these would end up in a page, or in the home folder of the reader).
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.update(
    JUPYTER_PREFER_ENV_PATH="1",
    JUPYTER_PLATFORM_DIRS="1",
    IPYTHONDIR=str(BUILD / ".ipython"),
    MPLCONFIGDIR=str(BUILD / ".matplotlib"),  # of a home that cannot be written it would tell
    PYDEVD_DISABLE_FILE_VALIDATION="1",
    KERNELS_PLAYERS="page",  # the pages have the scripts once
    JAX_PPRINT_USE_COLOR="false",  # colour codes would be dark on dark
    PYTHONWARNINGS="ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",  # PyTorch's
)
# What a kernel does before its first cell. Tracing makes objects that live on: Python shall not
# look through them again and again. And what XLA compiles for the CPU lies in a folder for later.
COMPILED = "KERNELS_COMPILED"
STARTUP = f"""\
import gc, os
gc.set_threshold(100_000, 20, 50)
if os.environ.get("{COMPILED}"):
    import jax
    jax.config.update("jax_compilation_cache_dir", os.environ["{COMPILED}"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    del jax
del gc, os
"""
_startup = Path(os.environ["IPYTHONDIR"], "profile_default", "startup", "first.py")
_startup.parent.mkdir(parents=True, exist_ok=True)
if not _startup.exists() or _startup.read_text() != STARTUP:
    _startup.write_text(STARTUP)


class BookError(Exception):
    """What went wrong, in words for whoever wrote the page."""


class Failed(BookError):
    """A cell stopped its notebook. In words it is the whole story.

    Args:
        path: of the notebook.
        notebook: as far as it was executed.
        index: of the cell.
        error: why it stopped; a line of it is kept.
        said: what there is to say beside it; by default the traceback.

    Attributes:
        notebook: with the outputs up to that cell, which no tag hides; not for the cache.
        number: of the cell, counting code cells.
        error: one line.
        brief: the cell and the error in a line, and where it happened in another.
    """

    def __init__(self, path, notebook, index, error, said=""):
        self.notebook = notebook = copy.deepcopy(notebook)
        cell = notebook.cells[index]
        self.number = len(code_cells(notebook, index + 1))
        line = " ".join(plain(error).split()).removesuffix(":")
        self.error = line if len(line) <= 160 else line[:159] + "…"
        tracebacks = ["\n".join(o.traceback) for o in cell.outputs if o.output_type == "error"]
        said = plain(said or "".join(tracebacks))
        title = f"{path.name}, code cell {self.number}: {self.error}"
        self.brief = f"{title}\n    {failed_line(cell, said)}"
        super().__init__(f"{title}\n{head(cell.source)}\n{said}".rstrip())
        for later in code_cells(notebook)[self.number :]:
            later.outputs = []
        if not tracebacks:
            cell.outputs.append(nbformat.v4.new_output("error", traceback=[self.error]))
        cell.metadata = nbformat.from_dict({"tags": ["failed"]})
        # The page takes the outputs from here, not from the cache.
        notebook.metadata["mystnb"] = {"execution_mode": "off", "output_stderr": "show"}


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
    part = BUILD / f".{name}.part"
    part.write_text(value)
    os.replace(part, BUILD / f".{name}")  # whole, or not at all


def toc_files():
    """The pages that _toc.yml names, in order, without suffix."""
    return chapters.toc_files(ROOT)


def toc_notebooks():
    return [path for name in toc_files() if (path := ROOT / f"{name}.ipynb").exists()]


def code_cells(notebook, end=None):
    """The cells that are executed, of all or of those before the index `end`."""
    cells = notebook.cells[:end]
    return [cell for cell in cells if cell.cell_type == "code" and cell.source.strip()]


def run_notebook(path, timeout, again=True, **variables):
    """Run a notebook, in an empty folder, so that no path can be assumed.

    Args:
        path: of the notebook.
        timeout: seconds for each cell.
        again: whether to try once more where the kernel does not start.
        variables: of the kernel's environment, where this process has none of that name.

    Returns:
        The executed notebook and its seconds.

    Raises:
        NotRun: where an optional package is missing.
        Failed: where a cell fails, takes too long, ends the kernel, or writes to stderr.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs = []  # those of whoever worked in it
    indices = []
    started = time.monotonic()
    # What the kernel's process says is no output of a cell; it tells why a kernel died.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        client = nbclient.NotebookClient(
            notebook,
            timeout=timeout,
            record_timing=False,  # it would go into the metadata, by which the cache is searched
            resources={"metadata": {"path": folder}},
            on_cell_execute=lambda cell, cell_index: indices.append(cell_index),
        )
        try:
            client.execute(stderr=said, env=variables | os.environ)
        except nbclient.exceptions.CellExecutionError as failure:
            if failure.ename == "MissingPackage":
                raise NotRun(plain(failure.evalue)) from None
            error = f"{failure.ename}: {failure.evalue}"
            raise Failed(path, notebook, indices[-1], error) from None
        except nbclient.exceptions.CellTimeoutError:
            error = f"took longer than {timeout} s, the timeout in _config.yml"
            raise Failed(path, notebook, indices[-1], error) from None
        except nbclient.exceptions.DeadKernelError:
            said.seek(0)
            words = said.read()[-2000:]
            raise Failed(path, notebook, indices[-1], "ended the kernel", words) from None
        except RuntimeError:
            if indices or not again:
                raise
            # It died before it answered: another kernel took its port, which they draw.
            return run_notebook(path, timeout, again=False, **variables)
    if failure := said_on_stderr(notebook, path):
        raise failure
    return notebook, time.monotonic() - started


def said_on_stderr(notebook, path):
    """What is wrong where a cell wrote to stderr, which a page must not show.

    Args:
        notebook: as it was executed.
        path: of it.

    Returns:
        Failed, of the first such cell; else None.
    """
    for index, cell in enumerate(notebook.cells):
        words = "".join(o.text for o in cell.get("outputs", []) if o.get("name") == "stderr")
        if words and "remove-stderr" not in cell.metadata.get("tags", []):
            # The last line that is not indented: a traceback ends, and a warning begins, with it.
            lines = [line for line in words.splitlines() if line.strip() and line[0] not in " \t"]
            error = f"wrote to stderr: {(lines or [words])[-1]}"
            return Failed(path, notebook, index, error, words)
    return None


def plain(text):
    """Without the colours of a terminal."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def head(source, lines=6):
    return "\n".join("    " + line for line in source.splitlines()[:lines])


def failed_line(cell, traceback):
    """The line of a cell that a traceback names; else its first one."""
    lines = cell.source.splitlines()
    named = re.search(rf"Cell In\[{cell.execution_count}\], line (\d+)", traceback)
    if named and int(named[1]) <= len(lines):
        return lines[int(named[1]) - 1].strip()
    return cell.source.strip().partition("\n")[0]


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
    code = "kernels/**/*.[!jc]*", "kernels/**/*.cpp", "validation/*.py"
    imports = digest(*code, "results/[!s]*", "constraints.txt")
    imports += f"/{os.environ['JAX_PLATFORMS']}/{os.environ.get('KERNELS_RESULTS', '')}"
    with locked("cache"):
        if recall("imports") != imports:
            shutil.rmtree(CACHE, ignore_errors=True)
            remember("imports", imports)
        cache = get_cache(str(CACHE))
        try:
            cache.list_cache_records()
        except Exception as error:  # whatever a database that is damaged raises
            print_line(f"all notebooks run again: their cache is damaged ({type(error).__name__})")
            shutil.rmtree(CACHE)
            cache = get_cache(str(CACHE))
        yield cache


def kept(path):
    """The executed notebook and its seconds, where the cache holds them whole; else None."""
    with open_cache() as cache:
        try:
            record = cache.match_cache_notebook(nbformat.read(path, as_version=4))
        except KeyError:
            return None
        if record.data.get("not_run"):
            return None
        try:
            notebook = cache.get_cache_bundle(record.pk).nb
            if checksum(cache, notebook) != record.data["checksum"]:
                raise ValueError("its checksum is another")
        except Exception as error:  # whatever a file that is damaged, cut off or gone raises
            print_line(f"{path.name} runs again: what was kept of it is damaged ({error})")
            with contextlib.suppress(KeyError):
                cache.remove_cache(record.pk)
            shutil.rmtree(CACHE / "executed" / record.hashkey, ignore_errors=True)
            return None
        return notebook, record.data["execution_seconds"]


def checksum(cache, notebook):
    """Of what the cache keeps of a notebook: its code cells, and their outputs."""
    return hashlib.sha256(
        nbformat.writes(cache.create_hashed_notebook(notebook)[0]).encode()
    ).hexdigest()


def keep(path, notebook, **data):
    """Put a notebook in the cache.

    Args:
        path: of the notebook.
        notebook: with what its cells answered.
        data: execution_seconds=, or not_run=True for an unexecuted one.
    """
    with open_cache() as cache:
        data["checksum"] = checksum(cache, notebook)
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
        Those that lack an optional package, of which the cache holds an unexecuted copy; and by
        path, what Failed says of the others that did not run to their end. Both are tried again
        each time.
    """
    todo = [path for path in paths if not kept(path)]
    if not todo:
        say(f"{len(paths)} notebooks are as they were when they last ran")
        return [], {}
    say(f"running {len(todo)} of {len(paths)} notebooks")
    not_run, failed = [], {}

    cores = os.cpu_count() or 1
    text = lambda path: path.read_text(encoding="utf-8")

    def run(path):
        # With a notebook on every core, none is left for a second compiler.
        variables = {"KERNELS_TPU_CHILDREN": "1"} if len(todo) > cores else {}
        # A chapter compiles far more than it runs. One that shows what XLA makes of a program for
        # the CPU gets that of a reader; a device's compiler would read the flags too.
        if os.environ["JAX_PLATFORMS"] == "cpu" and "as_text()" not in text(path):
            variables["XLA_FLAGS"] = quick_to_compile()
        with locked(path.name):
            if kept(path):  # by a test, meanwhile
                return f"{path.name} was executed by a test"
            try:
                # A thread runs one notebook after another: no file of its folder is half written.
                variables[COMPILED] = str(Path(compiled, str(threading.get_ident())))
                notebook, seconds = run_notebook(path, timeout, **variables)
            except NotRun as error:
                keep(path, nbformat.read(path, as_version=4), not_run=True)
                not_run.append(path)
                return f"not run: {path.name}: {error}"
            except Failed as failure:
                failed[path] = failure
                return f"failed   {path.name}"
            keep(path, notebook, execution_seconds=seconds)
            return f"executed {path.name} {seconds:.1f} s"

    def asks(path):
        return text(path).count("tpu.")

    # Threads are enough: each notebook's kernel is a process of its own.
    with (
        tempfile.TemporaryDirectory() as compiled,
        ThreadPoolExecutor(max_workers=cores) as pool,
    ):
        # Those that ask the compiler most take longest: begun first, none is waited for at the end.
        jobs = [pool.submit(run, path) for path in sorted(todo, key=asks, reverse=True)]
        try:
            for job in as_completed(jobs):
                say(f"  {job.result()}")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return sorted(not_run), {path: failed[path] for path in todo if path in failed}


def run_sphinx(verbose, say):
    """Build the pages; any warning is an error.

    Args:
        verbose: let the builder say all it has to say.
        say: takes a line on what is done.

    Raises:
        BookError: where the builder finds fault.
    """
    # From a child, so that a failed build can be told without the thousand lines before it.
    quick = "import sys; sys.modules['rfc3987_syntax'] = None"  # as here
    command = [sys.executable, "-c", f"{quick}; from jupyter_book.cli.main import main; main()"]
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


def leave(failed):
    """For book/_ext/failures.py, what it shows; and the tracebacks for whoever mends it.

    Args:
        failed: as run_notebooks gives it.
    """
    pages = {
        path.relative_to(ROOT).with_suffix("").as_posix(): {
            "cell": failure.number,
            "error": failure.error,
            "notebook": failure.notebook,
        }
        for path, failure in failed.items()
    }
    remember("failed", json.dumps(pages))
    LOG.write_text("\n\n".join(map(str, failed.values())), encoding="utf-8")


def outputs_of(path, failed):
    """One hash over what the cells of a notebook answered; empty where it was not run."""
    shown = failed[path].notebook if path in failed else (kept(path) or [None])[0]
    return shown and hashlib.sha256(nbformat.writes(shown).encode()).hexdigest()


def check_pages(paths):
    """Every notebook's page shows the outputs that the cache holds."""
    for path in paths:
        if not (known := kept(path)):
            raise BookError(f"{path.name} changed while the book was built: make book again")
        want = sum(
            bool(cell.outputs)
            for cell in code_cells(known[0])
            if not {"remove-cell", "remove-output"} & set(cell.metadata.get("tags", []))
        )
        page = HTML / path.relative_to(ROOT).with_suffix(".html")
        have = len(OUTPUT.findall(page.read_text(encoding="utf-8")))
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
        BookError: where the book is not whole; the pages are built before it.
    """
    with locked("book"):  # make book and make test may run at once
        return _build_book(verbose, say)


def _build_book(verbose, say):
    notebooks = toc_notebooks()
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    not_run, failed = run_notebooks(notebooks, config["execute"]["timeout"], say)
    leave(failed)
    chapters.write_ledgers(ROOT)
    # Sphinx sees that a page changed; not that its outputs, its place or its builder did.
    pages = digest(
        "kernels/**/*",
        "validation/*.py",
        "constraints.txt",
        "_toc.yml",
        "_config.yml",
        "book/_ext/**/*",
        "tools/build_book.py",
    )
    pages += "".join(f"/{path.name}" for path in not_run)
    if recall("pages") != pages:
        shutil.rmtree(HTML, ignore_errors=True)
        shutil.rmtree(BUILD / ".doctrees", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (BUILD / ".pages").unlink()
    briefs = [failure.brief for failure in failed.values()]
    shown = {str(path.relative_to(ROOT)): outputs_of(path, failed) for path in notebooks}
    shown[toc_files()[0]] = briefs  # the landing page lists them
    # Sphinx takes half a minute to see that nothing changed.
    whole = digest("*.md", "book/**/*", "notebooks/**/*.[im]*", "results/*", "_build/status/*")
    whole += pages + hashlib.sha256(json.dumps(shown).encode()).hexdigest()
    if recall("whole") == whole and (HTML / "index.html").exists():
        say("the pages are as they were")
        return not_run
    remember("whole", "")
    before = {}
    with contextlib.suppress(ValueError):
        before = json.loads(recall("shown") or "{}")
    for name, outputs in shown.items():
        if outputs != before.get(name):
            (BUILD / ".doctrees" / name).with_suffix(".doctree").unlink(missing_ok=True)
    remember("shown", "{}")  # an interrupted build has to read all chapters anew
    faults = []
    try:
        run_sphinx(verbose, say)
        check_pages([path for path in notebooks if path not in {*not_run, *failed}])
        remember("pages", pages)
        remember("shown", json.dumps(shown))
        remember("whole", "" if failed else whole)
    except BookError as error:
        faults = [f"{error}\n"]
    if failed:
        built = "The book is built without the outputs after these cells; make serve shows it. "
        built *= not faults
        faults += [*briefs, f"{built}Whole tracebacks: {os.path.relpath(LOG, ROOT)}"]
    if faults:
        raise BookError("\n".join(faults))
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
    except (OSError, DatabaseError) as error:  # of files, and of the cache's
        line = str(error).partition("\n")[0]
        print(f"\nNot built: {line}. What is there is kept; make book goes on.", file=sys.stderr)
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
