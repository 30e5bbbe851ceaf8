"""Each bug is caught by the rung that it names, and by none below; repaired, by none at all."""

import functools

import numpy as np
import pytest

from kernels import gallery, ladder, optional
from kernels.proof.catalog import OPERATORS

pytestmark = pytest.mark.slow

BUGS = gallery.bugs()
climb = functools.cache(gallery.climb)  # as the bugs are
OF_ATTENTION = [
    n for n, b in BUGS.items() if (b.operator, b.caught_by) == ("attention", "interpret")
]


@pytest.fixture(autouse=True)
def what_the_bug_needs(request):
    bug = BUGS.get(getattr(request.node, "callspec", None) and request.node.callspec.params["name"])
    if bug and bug.needs and not optional.available(bug.needs):
        pytest.skip(f"{bug.title}: only {bug.needs} sees it, and it is not installed")


@pytest.mark.parametrize("name", gallery.bug.FACTS)
def test_the_rung_it_names_catches_it(name):
    caught = climb(name)
    assert caught is not None, "no rung catches it: has it been repaired?"
    assert caught.rung == BUGS[name].caught_by
    assert any(words in caught.message for words in BUGS[name].says.split("|"))


REPAIRED = {}  # what is looked at → subject: whichever fault it had, a family's kernel is one


@functools.cache
def climbed(subject, rung, workload):
    (check,) = ladder.climb(subject, rung, [workload])
    return check


@pytest.mark.parametrize("name", BUGS)
def test_repaired_it_passes_the_rung_that_refused_it(name, pytestconfig):
    """So the rung objects to the bug, and a repaired bug would fail the test above. The others say
    nothing of a bug: they are for the tier full."""
    bug = BUGS[name]
    operator, smooth = OPERATORS[bug.operator], bug.differentiable
    function = functools.partial(bug.kernel, repaired=True)
    subject = ladder.Subject(operator, name, bug.backend, function, differentiable=smooth)
    subject = REPAIRED.setdefault((bug.shown or bug.kernel, operator, smooth), subject)
    is_full = pytestconfig.getoption("tier") == "full"
    for rung in gallery.CLIMBED if is_full else (bug.caught_by,):
        for workload in bug.workloads:
            check = climbed(subject, rung, workload)
            assert check.status != ladder.FAILED, check


def test_the_gallery_holds_what_its_chapter_promises():
    promised = "missing_init wrong_index_map parallel_reduction illegal_block out_of_bounds_read"
    more = "race_on_output vmem_overflow missing_operation missing_dtype unaligned_slice"
    assert set(BUGS) >= {*promised.split(), *more.split()}
    assert {bug.caught_by for bug in BUGS.values()} == set(gallery.CLIMBED)
    assert len(OF_ATTENTION) >= 9


def test_some_bugs_hide_on_a_friendly_workload():
    names = ["wrong_index_map", "unmasked_tail", "short_grid", *OF_ATTENTION]
    names += ["nki_short_loop", "nki_unmasked_store", "nki_late_clamp"]
    if optional.available("g++"):
        names += ["gpsimd_lost_tail", "gpsimd_unchecked_malloc"]
    for name in names:
        friendly, telling = BUGS[name].workloads
        assert str(telling) == climb(name).workload != str(friendly)


def test_a_cosine_lets_pass_what_is_a_million_times_too_large():
    x, y = np.random.default_rng(0).standard_normal((2, 128, 128)).astype(np.float32)
    wrong = gallery.unscaled_result.kernel(x, y, interpret=True)
    right = gallery.unscaled_result.kernel(x, y, interpret=True, repaired=True)
    assert cosine(wrong, x @ y) > 0.999999 and np.allclose(wrong, 1e6 * right, rtol=1e-3)
    assert cosine(-wrong, x @ y) < -0.999999  # it does see a sign


def cosine(found, expected):
    """Of the angle between two arrays: the test that is fooled."""
    a, b = (np.ravel(np.asarray(x, np.float64)) for x in (found, expected))
    return a @ b / np.sqrt((a @ a) * (b @ b))


@pytest.mark.parametrize("name", BUGS)
def test_its_source_is_the_kernel_without_what_is_told_of_it(name):
    source = BUGS[name].source
    assert BUGS[name].title not in source and "workloads=" not in source
    assert source.startswith("torch::Tensor" if "#else" in source else "def "), source


def test_a_bug_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(AttributeError, match="the gallery has no bug 'no_such_bug'"):
        getattr(gallery, "no_such_bug")  # noqa: B009
