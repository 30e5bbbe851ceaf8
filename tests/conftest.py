"""Every test runs on the CPU, draws the same examples each time, and needs no network."""

import gc
import os
import sys
from pathlib import Path

import hypothesis
import psutil
import pytest
from choice import TIERS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=15)
hypothesis.settings.register_profile("few", hypothesis.settings.get_profile("same"), max_examples=2)
ROOT = Path(__file__).resolve().parent.parent
LARGE = 2 << 30  # bytes that a worker may hold before it forgets what JAX traced and compiled
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "book" / "_ext")]


def pytest_addoption(parser):
    group = parser.getgroup("kernels")
    group.addoption(
        "--tier",
        choices=TIERS,
        default="test",
        help="quick: no book, no browser, one case of each; test: all that must hold; full: all "
        "workloads on all chips",
    )
    group.addoption(
        "--strict-rungs",
        action="store_true",
        default=bool(os.environ.get("KERNELS_STRICT")),
        help="a rung that was skipped, or did part of its work, fails (also KERNELS_STRICT=1)",
    )


@pytest.hookimpl(optionalhook=True)  # some runs go without xdist
def pytest_xdist_auto_num_workers(config):
    """One worker more than there are cores: a fifth of their time they wait, for a browser or a
    child. The quick tier has neither."""
    return os.cpu_count() + (config.getoption("tier") != "quick")


def pytest_configure(config):
    """Tests compile far more than they run: XLA's compiler for the CPU shall be quick, its code
    need not be. XLA reads its flags once, when it starts, so the tests' children do not get them:
    a notebook runs as it does for a reader. Who sets XLA_FLAGS has the last word, and with
    TESTS_OPTIMISED=1 XLA compiles as it does for a reader."""
    hypothesis.settings.load_profile("few" if config.getoption("tier") == "quick" else "same")
    if getattr(config.option, "dist", "no") != "no":  # its workers will do it
        return
    import jax

    # Tracing makes objects that live on: looking through them again and again took a fifth of it.
    gc.set_threshold(100_000, 20, 50)
    if os.environ["JAX_PLATFORMS"] != "cpu":  # a device's compiler reads them too
        return
    if os.environ.get("TESTS_OPTIMISED"):
        return
    from xla_flags import quick_to_compile

    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{quick_to_compile()} {before or ''}"
    jax.devices()
    if before is None:
        del os.environ["XLA_FLAGS"]
    else:
        os.environ["XLA_FLAGS"] = before


HOUSE = ("test_architecture", "test_chapters", "test_docstrings", "test_habits", "test_order")
# tier → markers. Of the TPU compiler, make quick asks only what the rungs do.
LEFT_OUT = {"quick": ("slow", "full", "libtpu", "cuda"), "test": ("full",), "full": ()}


def pytest_ignore_collect(collection_path, config):
    """What make quick leaves out whole is not imported either: PyTorch alone takes seconds."""
    if config.getoption("tier") == "quick" and collection_path.suffix == ".py":
        return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text("utf-8") or None


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the groups
def pytest_collection_modifyitems(config, items):
    """Leave out what the tier leaves out, and keep together what one worker does best alone."""
    tier = config.getoption("tier")
    belonging = {_case(item, tier): item for item in reversed(items) if _belongs(item, tier)}
    config.hook.pytest_deselected(items=list({*items} - {*belonging.values()}))
    items[:] = reversed(belonging.values())
    for item in items:
        if name := _piece(item):
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)
def pytest_order_of_items(items):
    """What reads the book goes first: one worker builds it, and none has to wait for it later.
    Single pages and notebooks go last, being small enough to keep all workers busy to the end."""
    items.sort(key=_place)


def pytest_collection_finish():
    """What was imported lives on: no collection of what a piece of work leaves looks through it.
    And a worker has one core: threads of PyTorch's that wait for each other's spin meanwhile."""
    gc.freeze()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_runtest_teardown(item, nextitem):
    """What one piece of work leaves behind takes gigabytes, and serves no other."""
    ends = not nextitem or _piece(item) != _piece(nextitem)
    if ends or (_operator(item) and psutil.Process().memory_info().rss > LARGE):
        sys.modules["jax"].clear_caches()
    if ends:
        gc.collect()


def _belongs(item, tier):
    if tier == "quick" and (_is_notebook(item) or _needs(item, "html", "not_run", "browser")):
        return False
    return not any(item.get_closest_marker(name) for name in LEFT_OUT[tier])


def _case(item, tier):
    """What one item is enough of. Of a test with parameters make quick runs the first case; of a
    claim and of the house's rules, which take no time, every one."""
    whole = tier != "quick" or _operator(item) or item.path.stem in HOUSE
    return item.nodeid if whole else item.nodeid.partition("[")[0]


def _piece(item):
    """Of which piece of work an item is; empty where it stands alone. An operator on its rungs is
    one piece, so that what it is held against is computed once; otherwise a file is."""
    if _is_notebook(item) or _is_page(item):
        return ""
    return _operator(item) or item.path.name


def _place(item):
    if _is_notebook(item):
        return 4
    if _is_page(item):
        return 3
    if _needs(item, "html", "not_run"):
        return 0
    return 1 if _operator(item) else 2


def _is_notebook(item):
    return item.path.suffix == ".ipynb"


def _is_page(item):
    return _needs(item, "html") and _needs(item, "browser")


def _needs(item, *fixtures):
    return not set(fixtures).isdisjoint(getattr(item, "fixturenames", ()))


def _operator(item):
    """The name of the operator whose rung it is; else empty."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return parameters["operator"].name if {"operator", "rung"} <= parameters.keys() else ""


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


@pytest.fixture(scope="session", autouse=True)
def quick_meshes():
    """The children that pretend to have several devices compile as quickly as the tests do."""
    from xla_flags import quick_to_compile

    from kernels.machines.tpu import simulator

    class Quick(simulator.Child):
        def __init__(self, command, environment):
            flags = f"{quick_to_compile()} {environment['XLA_FLAGS']}"
            super().__init__(command, environment=environment | {"XLA_FLAGS": flags})

    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("TESTS_OPTIMISED"):
            patch.setattr(simulator, "Child", Quick)
        yield


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
def status(pytestconfig):
    """Keeps what a rung found for the book's status page, where it was proven on everything; each
    worker in a file of its own."""
    from kernels.figures import status

    # What other releases do is nothing for that page either.
    if pytestconfig.getoption("tier") != "full" or "CANARY_REPORT" in os.environ:
        return lambda checks: None
    part = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return lambda checks: status.note(checks, part)


@pytest.fixture
def closed():
    """Closes the figures that a test drew."""
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
