"""Every test runs on the CPU, draws the same examples each time, and needs no network."""

import gc
import os
import sys
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=15)
hypothesis.settings.load_profile("same")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))


def pytest_configure(config):
    """Tests compile far more than they run: XLA's compiler for the CPU shall be quick, its code
    need not be. XLA reads its flags once, when it starts, so the tests' children do not get them:
    a notebook runs as it does for a reader. Who sets XLA_FLAGS has the last word, and with
    TESTS_OPTIMISED=1 XLA compiles as it does for a reader."""
    if getattr(config.option, "dist", "no") != "no":  # its workers will do it
        return
    import jax

    # Tracing makes objects that live on: looking through them again and again took a fifth of it.
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    if os.environ["JAX_PLATFORMS"] != "cpu":  # a device's compiler reads them too
        return
    if os.environ.get("TESTS_OPTIMISED"):
        return
    from kernels.compat import xla

    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{xla.quick_to_compile()} {before or ''}"
    jax.devices()
    if before is None:
        del os.environ["XLA_FLAGS"]
    else:
        os.environ["XLA_FLAGS"] = before


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """What reads the book goes first: one worker builds it, and none has to wait for it later."""
    reads = {"html", "not_run"}
    items.sort(key=lambda item: reads.isdisjoint(getattr(item, "fixturenames", ())))


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """The workers share what XLA compiles for the CPU: many tests compile the same, and compiling
    takes longer than running. The folder is the run's own, so nothing old is ever taken from it."""
    import jax

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    jax.config.update("jax_compilation_cache_dir", str(folder / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(scope="session")
def not_run():
    """Builds the book, as `make book` does; the notebooks that lack an optional package."""
    import build_book  # here: few tests need what it imports

    lines = []
    try:
        return build_book.build_book(say=lines.append)
    except build_book.BookError as error:
        pytest.fail("\n".join([*lines, str(error)]), pytrace=False)


@pytest.fixture(scope="session")
def html(request):
    """The folder of the built book; BOOK_HTML names one that is built already."""
    if folder := os.environ.get("BOOK_HTML"):
        return Path(folder)
    import build_book

    request.getfixturevalue("not_run")
    return build_book.HTML


@pytest.fixture
def status():
    """Keeps what a rung found for the book's status page; each worker in a file of its own."""
    from kernels.bench import status

    if "CANARY_REPORT" in os.environ:  # what other releases do is nothing for that page
        return lambda checks: None
    part = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return lambda checks: status.note(checks, part)
