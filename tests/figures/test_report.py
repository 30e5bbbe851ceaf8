"""Figures side by side: each kind in its column, ratios within a kind, limits from the chip."""

import dataclasses
import json
from pathlib import Path

import jax
import pytest
from rich.console import Console

from kernels import figures
from kernels.figures import Key, report, schema, store
from kernels.figures.table import Paragraph, Table, as_text
from kernels.machines.pallas.work import matmul_flops
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

PROBLEMS = json.loads(Path(__file__).with_name("problems.json").read_text())  # other than ONE
CUBE = OPERATORS["matmul"].workloads["cube_8192_bf16"]
HOW = {"bound": "compute", "method": "profile", "versions": "jax 0.10.2", "date": "2026-01-01"}
ONE = Key.of("matmul", "pallas", CUBE, "v5e").record(
    workload=CUBE.name, kind="estimated", value=6.0, source="somebody", **HOW
)


def of(value, **more):
    return dataclasses.replace(ONE, value=value, **more)


def rows(*found):
    (group,) = report.groups(found)
    return {row.name: row for row in group.rows}


def test_each_kind_has_its_column_where_the_newer_figure_counts():
    found = rows(ONE, of(7.0, kind="measured"), of(8.0, kind="published"))["pallas"]
    values = {kind: figure.value for kind, figure in found.figures.items()}
    assert values == {"estimated": 6.0, "measured": 7.0, "published": 8.0}
    newer = rows(of(5.0, date="2026-02-02", versions="jax 0.11"), ONE)
    assert newer["pallas"].figures["estimated"].value == 5.0


def test_a_ratio_is_to_the_best_other_of_the_same_kind():
    """Planted: a measurement that would be the best, were kinds mixed."""
    found = rows(
        ONE,
        of(8.0, implementation="v3"),
        of(12.0, implementation="v2"),
        of(1.0, implementation="xla", kind="measured"),
        of(float("inf"), implementation="v0"),
    )
    assert found["pallas"].ratio("estimated") == 6.0 / 8.0
    assert found["v2"].others["estimated"] == (6.0, "pallas")
    assert found["v2"].ratio("estimated") == 2.0 and found["xla"].ratio("measured") is None
    assert found["v0"].ratio("estimated") is None


@pytest.mark.parametrize("other", PROBLEMS["not compared"])
def test_other_chips_problems_and_units_are_not_compared(other):
    groups = report.groups([ONE, of(3.0, implementation="xla", **other)])
    assert len(groups) == 2
    assert all(row.ratio("estimated") is None for group in groups for row in group.rows)


def test_how_an_answer_was_tuned_is_no_problem_of_its_own():
    found = rows(ONE, of(9.0, tuning={"block": "128×128×128"}))
    assert set(found) == {"pallas", "pallas block=128×128×128"}
    assert found["pallas"].ratio("estimated") == 6.0 / 9.0
    assert found["pallas"].others["estimated"] == (9.0, "pallas block=128×128×128")


def test_a_name_is_no_problem_of_its_own():
    """What was published of the same sizes stands beside it, whatever it is called there."""
    found = rows(ONE, of(9.0, workload="", kind="published", implementation="published kernel"))
    assert set(found) == {"pallas", "published kernel"}
    (group,) = report.groups([of(9.0, workload="")])
    assert (group.name, group.label) == ("cube_8192_bf16", "cube_8192_bf16")
    (group,) = report.groups([of(9.0, workload="", sizes={"m": 1, "k": 2, "n": 3})])
    assert (group.name, group.label) == ("", "m=1 k=2 n=3 bfloat16")


def test_the_limit_is_the_chip_s_peak_or_its_memory():
    flops, moved = 2 * 8192**3, 3 * 8192**2 * 2
    assert report.floor(ONE).value == pytest.approx(flops / 197e12 * 1e3)
    bound = report.floor(of(0.0, sizes={"m": 8192, "k": 1, "n": 8192}))
    assert bound.value == pytest.approx((2 * 8192 + 8192**2) * 2 / 819e9 * 1e3)
    assert "memory" in bound.why
    assert rows(ONE)["pallas"].share("estimated") == pytest.approx(flops / 197e12 * 1e3 / 6)
    both = report.floor(of(0.0, pass_="gradient"))
    assert both.value == pytest.approx(3 * flops / 197e12 * 1e3) and moved / 819e9 < both.value


@pytest.mark.parametrize("change", PROBLEMS["without a limit"])
def test_where_no_limit_is_known_none_is_given(change):
    assert report.floor(of(0.0, **change)) is None


def test_no_recorded_estimate_is_faster_than_the_chip():
    kept = [r for r in figures.read("estimated.csv") if r.quantity == "time"]
    bounds = [(r, bound) for r in kept if (bound := report.floor(r)) is not None]
    assert len(bounds) > 0.8 * len(kept)
    assert [r.key for r, bound in bounds if r.value < 0.9999 * bound.value] == []


def test_a_published_size_may_have_another_name():
    """Others call softmax's rows m: their figures stand in the operator's words, with its limit."""
    known = [g for g in report.figures() if g.operator == "softmax"]
    rows = [r for g in known for r in g.rows if "published" in r.figures]
    assert {row.implementation for row in rows} == {"xla", "xla formula", "row blocks"}
    assert all(set(row.figures["published"].sizes) == {"rows", "n"} for row in rows)
    assert all(0.4 < row.share("published") < 1 for row in rows)


def test_blocks_that_are_not_there_are_no_work():
    sizes = {"k": 4096, "n": 4096, "bm": 128, "bk": 128}
    few, many = (
        report.floor(of(0.0, operator="block_sparse_matmul", sizes=sizes | {"blocks": blocks}))
        for blocks in (512, 1024)
    )
    assert few.value == pytest.approx(2 * 512 * 128**2 * 4096 / 197e12 * 1e3)
    assert many.value == 2 * few.value


def test_options_of_the_problem_count():
    """Half the scores; and what is no work of its own, such as an activation, changes nothing."""
    operator = OPERATORS["attention"].workloads
    whole, half = (
        report.floor(Key.of("attention", "pallas", operator[name], "v5e")).value
        for name in ("n1024_d128", "n1024_d128_causal")
    )
    assert 0.5 < half / whole < 0.51
    assert report.floor(of(0.0, options={"activation": "relu"})) == report.floor(ONE)


def test_what_was_timed_beside_the_others_is_their_limit_and_no_row():
    machine = {"kind": "measured", "chip": "a CPU"}
    found = rows(of(8.0, **machine), of(2.0, implementation="fill_", quantity="limit", **machine))
    assert set(found) == {"pallas"} and found["pallas"].share("measured") == 0.25
    assert found["pallas"].ratio("measured") is None


@pytest.mark.parametrize("name", [n for n, o in OPERATORS.items() if o.workloads.work])
def test_work_is_what_the_plainest_implementation_does(name):
    """Its bytes are those of the arrays, its operations at most those that JAX counts."""
    operator = OPERATORS[name]
    for workload in operator.workloads.named:
        if workload.values != "normal" or workload.options.get("out_dtype"):
            continue
        arguments = operator.workloads.arguments(workload)
        arrays = [a for a in arguments if hasattr(a, "shape")]

        def call(*arrays, arguments=arguments, options=workload.options):
            left = iter(arrays)
            all_of_them = [next(left) if hasattr(a, "shape") else a for a in arguments]
            return operator.whole(operator.plain)(*all_of_them, **options)

        result = jax.eval_shape(call, *arrays)
        moved = sum(a.size * a.dtype.itemsize for a in (*arrays, result))
        counted = sum(matmul_flops(jax.make_jaxpr(call)(*arrays)).values())
        operations, least = operator.workloads.work(workload, False)
        assert operations <= counted and least <= moved
        # What a mask hides, blocks that are not there, tokens beyond a length and experts that
        # nobody chose need no work, nor does the second half of a last byte; the formula does it.
        spared = {"blocks", "pages", "e", "g", "segment_ids"} & {*workload.sizes}
        spared |= {"causal", "window", "weights"} & {*workload.options}
        if not spared:
            assert (operations, least) == (counted, moved), workload
        if operator.differentiable:  # the gradient is never less work
            both = operator.workloads.work(workload, True)
            assert operations <= both[0] and least <= both[1]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    figures.write("estimated.csv", [ONE, of(7.0, implementation="xla"), of(3.0, chip="v6e")])
    return tmp_path


def test_without_a_measurement_a_line_says_how_to_make_one(results):
    said = figures.compare("matmul", chips=("v5e", "v6e"))
    assert "v5e or v6e" in said and "bench matmul --record" in repr(said)


def test_a_planted_measurement_appears_beside_the_estimate(results):
    figures.write("measured.csv", [of(6.5, kind="measured")])
    table = figures.compare("matmul")
    assert table.columns[-3:] == ("estimated, ms", "measured, ms", "of the limit, measured")
    assert table.rows == (
        ("cube_8192_bf16", "v5e", "pallas", "6.00", "6.50", "86 %"),
        ("cube_8192_bf16", "v5e", "xla", "7.00", "–", "–"),
    )
    figures.write("published.csv", [of(9.0, kind="published", pass_="backward")])
    figures.add("measured.csv", [of(9.5, kind="measured", pass_="backward")])
    table = figures.compare("matmul")
    assert table.columns[3] == "published, ms"
    assert ("cube_8192_bf16, backward", "v5e", "pallas", "9.00", "–", "9.50", "–") in table.rows
    assert isinstance(figures.compare("matmul", chips=["v6e"]), str)
    assert isinstance(figures.compare("giou"), str)
    assert {row[2] for row in figures.compare("matmul", implementations=["xla"]).rows} == {"xla"}
    with pytest.raises(ValueError, match="operator is 'cholesky'; accepted: "):
        figures.compare("cholesky")


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (["jax 9.9.9, libtpu 1.2", "jax 9.9.9, libtpu 1.2, torchax 0.1"], "jax 9.9.9, libtpu 1.2;"),
        (["jax 9.9.9, libtpu 1.2", None], "jax 9.9.9, libtpu 1.2;"),
        ([None, "kernels 0.1.0"], ""),
        ([], ""),
    ],
)
def test_what_other_compilers_recorded_says_so(recorded, said):
    pytest.importorskip("libtpu")
    installed = schema.versions("jax", "libtpu")
    words = figures.recorded_with(of(1.0, versions=stamp or installed) for stamp in recorded)
    assert words == (said and f"recorded with {said} estimated here with {installed}")


def test_groups_of_all_operators_have_an_order():
    """As the catalog has them; what it has no name for behind, numbers by value."""
    found = report.figures()
    assert list(dict.fromkeys(g.operator for g in found)) == [
        name for name in OPERATORS if any(g.operator == name for g in found)
    ]
    for operator in OPERATORS.values():
        names = list(dict.fromkeys(g.name for g in found if g.operator == operator.name))
        known = [w.name for w in (*operator.workloads.figures, *operator.workloads.named)]
        assert [n for n in names if n in known] == [n for n in known if n in names]
    sizes = [g.problem.sizes["n"] for g in found if g.operator == "attention" and not g.name]
    assert sizes == [512, 1024, 2048, 4096]


def test_a_size_of_one_s_own_has_a_limit_and_on_several_devices_that_of_each():
    own = Workload("custom", {"m": 512, "k": 512, "n": 512}, "bfloat16")
    assert report.floor(Key.of("matmul", "pallas", own, "v5e")).value > 0
    four = Workload("custom", {"devices": 4, "rows": 128, "k": 512, "columns": 512}, "bfloat16")
    moved = (128 * 512 + 512 * 512 + 4 * 128 * 512) * 2
    limit = report.floor(Key.of("all_gather_matmul", "pallas", four, "v5e"))
    assert limit.value == pytest.approx(moved / 819e9 * 1e3)


TABLE = Table(
    ("kernel", "time"),
    [("a|b <c>", "1 ms"), ("[red]d[/]", "FAILED")],
    "A title that is longer than the table is wide",
    right=("time",),
    colours={"FAILED": "red"},
)


def test_in_a_terminal():
    lines = [line.strip() for line in as_text([TABLE]).splitlines()]
    assert lines[0] == TABLE.caption
    assert "[red]d[/]   FAILED" in lines  # what looks like markup is none
    assert "a|b <c>       1 ms" in lines  # flush right
    console = Console(color_system="standard", force_terminal=True, no_color=False)
    with console.capture() as captured:
        console.print(TABLE)
    assert "\x1b[31mFAILED" in captured.get() and as_text([Table((), [("a", "b")])]) == "a  b"
    folded = as_text([Table(("name",), [("long " * 10,)])], width=20)
    assert folded.count("long") == 10 and max(map(len, folded.splitlines())) <= 20
    assert as_text([Paragraph("word " * 50)], width=40).count("\n") == 0  # is not folded


def test_on_a_page_and_in_markdown():
    page = TABLE._repr_html_()
    assert "<td>a|b &lt;c&gt;</td>" in page and "<th>time</th>" in page and "A title" in page
    assert "<thead>" not in Table((), [("a",)])._repr_html_()
    said = Paragraph("is <wrong>\nhere", lead="it ", style="red")._repr_html_()
    assert said == "<p class=wrong><b>it </b>is &lt;wrong&gt;<br>here</p>"
    assert TABLE.markdown().splitlines() == [
        "| kernel | time |",
        "| --- | ---: |",
        r"| a\|b <c> | 1 ms |",
        "| [red]d[/] | **FAILED** |",
    ]
