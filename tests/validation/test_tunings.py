"""The tuner's record: a tuning found on the hardware, in the ranking that its estimates make."""

import dataclasses
import itertools
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernels import tpu
from kernels.figures import Key, read, write
from kernels.figures.schema import Named, estimator
from kernels.machines.optional import available
from validation import tunings
from validation.__main__ import app
from validation.tpu_times import PROGRAMS
from validation.tunings import SEARCHED, Ranking, candidates, problems, rankings

needs_tokamax = pytest.mark.skipif(not available("tokamax"), reason="tokamax is not installed")


KIND = "linear_cross_entropy/tokamax"  # for which no plain rule chooses


@pytest.fixture
def row():
    return problems(1, kinds=[KIND])[0]


@pytest.fixture
def file(tmp_path):
    return tmp_path / SEARCHED


def trials(row, *milliseconds):
    """A record for theirs, and one for each other tuning."""
    at = lambda ms, tuning: dataclasses.replace(row.key, tuning=tuning).record(
        kind="estimated", value=ms, versions=estimator(*PROGRAMS)
    )
    theirs, *others = milliseconds
    return [at(theirs, row.tuning), *(at(ms, Named({"block": i})) for i, ms in enumerate(others))]


def test_problems_are_kernels_whose_tuning_was_searched_for():
    drawn = problems(20)
    assert {row.implementation for row in drawn} == {"tokamax"} and drawn == problems()[:20]
    kind = "dot_product_attention/tokamax"
    assert {row.operator for row in problems(kinds=[kind])} == {"dot_product_attention"}
    assert all(tunings.countable(row, row.tuning) for row in problems())


@needs_tokamax
def test_candidates_are_the_publisher_s_and_drawn_by_a_hash():
    for kind in ("dot_product_attention/tokamax", "ragged_dot/tokamax"):
        [row] = problems(1, kinds=[kind])
        drawn = list(candidates(row))
        assert len(drawn) == len(set(drawn)) > 40 and drawn == list(candidates(row))
        assert all(set(each) == set(row.tuning) for each in drawn) and row.tuning not in drawn


@pytest.mark.parametrize(
    ("theirs", "others", "place", "known", "loss"),
    [
        (1.1, [1.0, *range(2, 20), math.inf], 2, 20, 0.1),
        (3.5, [1.0, *range(2, 20), math.inf], 4, 20, 2.5),
        (math.inf, [1.0, 2.0], None, 2, None),  # refused
    ],
)
def test_theirs_has_a_place_and_a_loss(row, file, theirs, others, place, known, loss):
    write(file, trials(row, theirs, *others))
    [ranking] = rankings(file)
    assert (ranking.place, ranking.known, len(ranking.trials)) == (place, known, len(others) + 1)
    assert not ranking.first and ranking.row == row
    assert ranking.loss == (loss and pytest.approx(loss))
    write(file, [])
    assert rankings(file) == []


def test_a_tie_is_told(row):
    of = lambda *rest: Ranking(
        row, 1.0, ((row.tuning, 1.0), *((Named({"block": i}), ms) for i, ms in enumerate(rest)))
    )
    known = [of(1.0005, 2.0), of(1.002, 2.0), of(1.5, math.inf, 3.0)]
    assert [each.tied for each in known] == [True, False, False]
    assert all(each.first for each in known)
    assert "theirs comes first, 1 of them with another" in " ".join(tunings.sentences(known))
    assert "with another" not in " ".join(tunings.sentences(known[1:]))
    # One of three, of three, and of three that have an estimate
    assert "by chance it would in about 1." in " ".join(tunings.sentences(known))


def test_a_ranking_is_of_one_model_and_says_of_which(row, file):
    older = lambda one: dataclasses.replace(one, versions="jax 0, model 0", method="static profile")
    write(file, [*map(older, trials(row, 3.0, 1.0)), *trials(row, 1.0, 2.0)])
    [one] = rankings(file)
    assert one.place == 1 and one.current and not one.profiled and len(one.trials) == 2
    write(file, [*map(older, trials(row, 3.0, 1.0, 2.0))])
    [one] = rankings(file)
    assert one.place == 3 and not one.current and one.profiled
    said = " ".join(tunings.sentences([one]))
    assert "1 of 1 rankings are of an earlier model" in said and "static profile" in said
    fourth = dataclasses.replace(one, trials=((None, 0.5), *one.trials))
    both = " ".join(tunings.sentences([one, fourth]))
    assert "theirs is one in 1." in said and "theirs is one in 1." in both


@needs_tokamax
def test_a_problem_that_was_ranked_whole_is_kept(row, file, monkeypatch):
    asked = []
    drawn = [row.tuning, *itertools.islice(candidates(row), 2)]
    known = [dataclasses.replace(row.key, tuning=each) for each in drawn]
    known = [each.record(kind="estimated", value=1.0, versions="jax 0") for each in known]
    write(file, known)
    monkeypatch.setattr(tpu, "tune", lambda *arrays, **options: asked.append(options))
    tunings.search([row], others=2, file=file)
    assert not asked
    tunings.search([row], others=3, file=file)
    tunings.search([row], others=2, file=file, fresh=True)
    assert len(asked) == 2 and not any(each["profile"] or each["default"] for each in asked)


def test_tiles_that_are_refused_or_too_small_to_count_are_not_drawn():
    row = next(r for r in problems(chips=["v5e"]) if r.sizes.get("m") == 8192)
    tuning = lambda m, k, n, buffers=2: Named(
        {"tile_m": m, "tile_k": k, "tile_n": n, "input_buffer_count": buffers}
    )
    assert row.operator == "ragged_dot" and tunings.rankable(row, row.tuning)
    assert tunings.rankable(row, tuning(512, 1024, 1024))
    assert not tunings.rankable(row, tuning(512, 1024, 64))  # lanes
    assert not tunings.rankable(row, tuning(1024, 1024, 8192, 3))  # VMEM
    assert not tunings.rankable(row, tuning(64, 128, 128))  # rounds
    assert not tunings.countable(row, tuning(64, 128, 128))


def test_what_plain_rules_choose_and_how_much_slower_it_is():
    row = problems(1, kinds=["dot_product_attention/tokamax"])[0]
    blocks = [f"block_{name}" for name in ("q", "kv", "kv_compute")]
    sized = lambda size: {**row.tuning, **dict.fromkeys(blocks, size)}
    small, large, too_large = (Named(sized(size)) for size in (256, 512, 8192))
    chosen = tunings.plain(row, [large, small, too_large])
    default = Named({**row.tuning, **tunings.DEFAULTS[row.operator]})
    assert chosen == {"the largest tiles tried that fit": large, "JAX's default": default}
    assert tunings.plain(row, [too_large]) == {"JAX's default": default}
    ranked = [
        Ranking(row, 1.0, ((row.tuning, 1.0), (large, 1 + slow), (small, 2.0), (default, ms)))
        for slow, ms in ((0.1, 3.0), (0.3, math.inf), (0.8, 4.0))
    ]
    said = " ".join(tunings.sentences(ranked))
    assert "3 problems: at the median 30% slower than theirs, on average 40%, at worst 80%." in said
    assert "2 problems: at the median 250%" in said and "in 1 our compiler refuses it." in said


@pytest.mark.skipif(not available("libtpu"), reason="libtpu is not installed")
def test_the_command_ranks_and_tells_the_record(row, tmp_path, monkeypatch):
    asked = []

    def search(rows, *, fresh, progress):
        asked.extend(rows)
        write(tmp_path / SEARCHED, trials(row, 1.02, 1.0, 2.0))
        return rankings(tmp_path / SEARCHED, rows)

    monkeypatch.setattr(tunings, "search", search)
    result = CliRunner().invoke(
        app, ["tuner", "--most", "1", "--kind", KIND], env={"COLUMNS": "160"}
    )
    assert result.exit_code == 0, result.output
    assert [each.key for each in asked] == [row.key]
    assert "2 of 3" in result.output and "In 0 of 1 rankings (0%)" in result.output
    assert "estimated 2.0% slower than our first choice" in " ".join(result.output.split())
    assert "our bar was 3%, and it is reached" in " ".join(result.output.split())


def test_the_record_of_several_is_the_middle_one(row):
    rest = (Named({"block": 2}), 2.0), (Named({"block": 3}), math.inf)
    of = lambda theirs: Ranking(
        row, theirs, ((Named({"block": 1}), 1.0), (row.tuning, theirs), *rest)
    )
    known = [of(1.01), of(1.10), of(1.5)]
    assert tunings.loss(known) == pytest.approx(0.1)
    assert "missed" in " ".join(tunings.sentences(known))
    assert "settle nothing" in " ".join(tunings.sentences(known))
    assert "settle nothing" not in " ".join(tunings.sentences(known * 4))
    alone = Ranking(row, 1.0, ((row.tuning, 1.0), *rest[1:]))
    assert "In 1 of 4 rankings fewer than 3" in " ".join(tunings.sentences([*known, alone]))
    assert tunings.loss([*known, alone]) == tunings.loss(known)
    assert len(list(tunings.sentences([alone]))) == 1
    assert list(tunings.sentences([])) == [] and tunings.loss([of(math.inf)]) is None


def test_the_stored_trials_are_of_published_rows():
    known = rankings()
    if not known:
        pytest.skip("no trials are stored")
    assert all(isinstance(each.row.key, Key) for each in known)
    assert sum(len(each.trials) for each in known) == len(read(SEARCHED))
    for each in known:
        assert each.row.key in {row.key for row in problems()}
        # What ran out of time is not kept, and tried again by the next run.
        assert tunings.OTHERS - 2 <= len(each.trials) <= tunings.OTHERS + 1
        finite = [ms for _, ms in each.trials if math.isfinite(ms)]
        assert finite == sorted(finite) and finite


def test_the_page_tells_how_they_are_drawn():
    page = (Path(__file__).parents[2] / "book" / "estimates.md").read_text(encoding="utf-8")
    assert tunings.OTHERS == 9 and "nine others" in page
    assert f"more than {tunings.ROUNDS:,} rounds" in page


@needs_tokamax
@pytest.mark.slow
def test_a_sample_says_what_is_stored(tmp_path):
    known = [each for each in rankings() if each.current]
    if not available("libtpu") or not known:
        pytest.skip("needs libtpu, and stored trials of these versions")
    each = min(known, key=lambda each: each.theirs)
    [again] = tunings.search([each.row], others=1, file=tmp_path / SEARCHED)
    assert again.theirs == pytest.approx(each.theirs, rel=2e-3)
