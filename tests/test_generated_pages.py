"""The pages made from results/ and from what the tests found: a planted row is where it belongs."""

import dataclasses
import inspect
import io
import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from sphinx.application import Sphinx

import kernels
import kernels.figures
from kernels.figures import Key, status, store
from kernels.proof.catalog import OPERATORS
from kernels.proof.ladder import Check
from validation import comparisons, decoder_layer, foreign, judged, trn1_times
from validation.trn1_kernels import KERNELS

ROOT = Path(__file__).resolve().parent.parent
CUBE = OPERATORS["matmul"].workloads["cube_8192_bf16"]
PARTS = "picture briefly drawn sorts missed bands ratios compilers worst unknown tuner neuron gpus"
HOW = {"bound": "compute", "method": "how", "versions": "jax 1", "date": "2026-01-01"}
ONE = Key.of("matmul", "pallas", CUBE, "v5e").record(
    workload=CUBE.name, kind="estimated", value=6.0, **HOW
)


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of one page; calling it builds it, and gives the page and what was read anew."""
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    monkeypatch.setattr(store, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(status, "ROOT", tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "constraints.txt").write_text("numpy==0.0.1\nno-such-thing==2\n")

    def build(directive, argument=""):
        page, text = source / "index.md", f"# Title\n\n```{{{directive}}} {argument}\n```\n"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
        read = []
        settings = {
            "extensions": ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "generated"],
            "nb_execution_mode": "off",
            "nb_execution_cache_path": str(tmp_path / "cache"),
        }
        folders = source, None, tmp_path / "html", tmp_path / "doctrees"
        silent = {"status": None, "warning": io.StringIO()}  # of chapters, which are not there
        app = Sphinx(*folders, "html", confoverrides=settings, **silent)
        app.connect("source-read", lambda app, name, text: read.append(name))
        app.build()
        html = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
        return BeautifulSoup(html, "html.parser"), read

    yield build
    for name in [name for name in sys.modules if name.partition(".")[0] == "generated"]:
        del sys.modules[name]


def cells_of(soup, name, table="figures"):
    for row in soup.select(f"table.{table} tbody tr"):
        found = [cell.get_text(" ", strip=True) for cell in row.find_all("td")]
        if found[0] == name:
            return found
    raise AssertionError(f"no row {name}")


def test_the_judge_is_judged_by_what_stands_in_results(book):
    parts = "briefly picture by_rung against worth times every"
    assert "python -m validation judged" in book("judged", parts)[0].get_text()
    row = judged.Judged("1_a", "v6e", "right", "3", "1", "wrong", "interpret", "element", *[""] * 6)
    hidden = dataclasses.replace(row, kernel="2_b", changes="yes", ours_ms="2", reference_ms="2")
    caught = dataclasses.replace(row, kernel="3_c", theirs="refused", ours="refused", rung="lower")
    small = dataclasses.replace(row, kernel="4_d", ours="undecided", reason=judged.BLOCKLESS)
    zeros = dataclasses.replace(row, kernel="5_e", rung="index maps", zeros="yes")
    judged.write([row, hidden, caught, small, zeros])
    soup, _ = book("judged", parts)
    said = " ".join(soup.get_text().split())
    assert "both decided 4; they agree on 1. Of the 1 caught, 1 are refused" in said
    assert "1 of the 5 problems make" in said and "it finds 1 of these wrong and none" in said
    assert "decided too, it agrees on 1" in said and "lower, caught: 1" in soup.svg["aria-label"]
    assert "for 1: 2_b. 1 failed" in said and "Estimated too short: 1 of them, at 0.67 to" in said
    titles = [cell.get_text() for cell in soup.select("table.judged th")]
    assert titles == ["rung", judged.CAUGHT, judged.HIDDEN, judged.ALARM, judged.OPEN]
    assert cells_of(soup, "lower", "judged") == ["lower", "1", "—", "—", "—"]
    assert cells_of(soup, judged.ALARM, "against")[1:3] == ["1_a", "right"]


def test_what_prove_catches_spares_and_misses_is_counted(book):
    row = foreign.Foreign("a", "x/y", "1", "", *["passed"] * 3, "9", "failed", "", "", "jax 1")
    alarm = dataclasses.replace(row, kernel="b", simulate="failed", right="yes")
    refused = dataclasses.replace(alarm, kernel="c", right="")
    caught = dataclasses.replace(row, fault="no mask", simulate="failed", tolerance="passed")
    missed = dataclasses.replace(row, fault="narrow sum", tolerance="")
    skipped = dataclasses.replace(row, kernel="d", simulate="skipped", seconds="31", tolerance="")
    foreign.write([row, alarm, refused, skipped, caught, missed])
    soup, _ = book("foreign")
    said = " ".join(soup.get_text().split())
    assert "rung: 1 of 4 kernels. Refused with reason: 1. Refused though right: b. Not" in said
    assert "proven: d. Took more than 30 seconds of a processor: d. Of 2 right ones that" in said
    assert "Of 2 faults, prove catches 1. Missed: narrow sum, in a. Of the 1 that" in said
    assert cells_of(soup, "no mask", "faults")[1:4] == ["a", "simulate", "passed"]
    assert cells_of(soup, "b", "foreign")[2:5] == ["passed", "failed", "passed"]


def test_a_layer_s_bars_and_rows_are_of_its_records(book):
    store.RESULTS.mkdir()
    for file in (decoder_layer.FILE, "estimated.csv"):
        shutil.copy(ROOT / "results" / file, store.RESULTS)
    layers = decoder_layer.recorded()
    drawn = book("decoder-layer", "picture")[0].svg
    assert len(drawn.select("rect")) == (len(layers) + 1) * len(decoder_layer.STAGES)
    times = [f"{1e3 * layer.seconds:.2f} ms" for layer in layers.values()]
    assert [t.get_text() for t in drawn.select("text") if t.get_text().endswith(" ms")] == times
    whole = cells_of(book("decoder-layer", "parts")[0], "the layer")
    verdicts = [decoder_layer.verdict(layers, form) for form in ("package", "mixed")]
    assert whole[1:] == [time.removesuffix(" ms") for time in times] + verdicts
    free = cells_of(book("decoder-layer", "worth")[0], "feed-forward")[-1]
    assert free == f"{decoder_layer.gain(layers['mixed'], 'feed-forward', 1e9) * 100 - 100:.1f} %"
    decoded = decoder_layer.recorded("v6e", "decode")["package"]
    gained = cells_of(book("decoder-layer", "narrow")[0], "v6e, int4")[-1]
    assert gained == f"{decoder_layer.narrow_gain(decoded, 'int4')[2]:.2f}"


def test_a_planted_measurement_has_a_column_of_its_own_and_rebuilds_the_page(book):
    store.write("estimated.csv", [ONE, dataclasses.replace(ONE, implementation="xla", value=7.5)])
    soup, _ = book("results", "matmul")
    titles = [cell.get_text() for cell in soup.select("table.generated th")]
    assert titles[:4] == ["implementation", "published", "estimated", "measured"]
    assert cells_of(soup, "pallas") == ["pallas", "—", "6.00", "—", "0.800 × xla", "93 %"]
    assert cells_of(soup, "xla")[4] == "1.25 × pallas"
    planted = dataclasses.replace(ONE, implementation="xla", kind="measured", value=5.6)
    store.write("measured.csv", [planted])
    soup, read = book("results", "matmul")
    assert read == ["index"]
    # Measured 5.6 against estimated 6.0 would be a ratio between kinds.
    ratios = ["estimated: 1.25 × pallas", "estimated: 74 % measured: 100 %"]
    assert cells_of(soup, "xla") == ["xla", "—", "7.50", "5.60", *ratios]
    assert cells_of(soup, "pallas")[4] == "0.800 × xla"
    problem = soup.select_one("details.problem")
    line = problem.summary.get_text(" ", strip=True)
    assert line == "cube_8192_bf16 m=8192 k=8192 n=8192 bfloat16 : xla 5.60 ms measured"
    assert "jax 1; 2026-01-01; compute binds; how" in problem.get_text(" ", strip=True)
    (dot,) = soup.select("figure.standing circle")
    assert dot.title.string == "cube_8192_bf16, v5e: 1.25×, a tie" and dot["fill"] == "none"
    assert "ahead on 0, behind on 0, a tie on 1" in soup.get_text()
    store.write("estimated.csv", [ONE, dataclasses.replace(ONE, implementation="xla", value=90)])
    soup, _ = book("results")
    assert "ahead on 1, behind on 0, a tie on 0" in soup.get_text()
    assert soup.select_one("figure.standing circle")["fill"] == "currentColor"


@pytest.mark.slow
def test_estimates_stand_beside_what_was_published_and_a_planted_row_is_the_worst(
    book, monkeypatch
):
    """One row that is ten times too slow is first among the worst, and out of every bar; those of
    another compiler, even of the installed one, stand in a table of their own."""
    monkeypatch.setattr(metadata, "version", {"libtpu": "2"}.get)
    first = KERNELS[0]
    estimated = [
        trn1_times.key(kernel).record(
            kind="estimated", value=kernel.published_ms * 1.5, versions="kernels 0"
        )
        for kernel in KERNELS
    ]
    store.write(trn1_times.ESTIMATED, estimated)
    for name in ("published.csv", "searched.csv", "gpu_validation.csv"):
        store.write(name, [])
    assert "python -m validation tpu" in book("estimates", PARTS)[0].get_text()
    known = {"operator": "copy", "implementation": "xla", "dtype": "bfloat16", "chip": "v6e"}
    known |= {"clock": "device", "published_ms": 1.0, "regime": "XLA, HBM"}
    known |= {"versions": "jax 1, libtpu 1"}
    rows = [
        comparisons.Comparison(sizes={"m": m, "n": 8}, estimated_ms=1.04, **known)
        for m in range(1, 41)
    ]
    comparisons.add(rows)
    newer = [dataclasses.replace(r, versions="libtpu 2", estimated_ms=1.02) for r in rows[:30]]
    comparisons.add(newer)
    soup, _ = book("estimates", PARTS)
    assert soup.select_one("div.predictions svg[role=img][aria-label]")
    trusted, other, *_ = (p.get_text() for p in soup.select("section > p"))
    assert "XLA programs that stream on v6e 4%" in soup.svg["aria-label"]
    assert trusted.endswith("nine times in ten: XLA programs that stream (v6e).")
    assert "Do not trust: nothing;" in other and "nobody knows how much" in other
    (line,) = [r for r in soup.select("table.sorts tbody tr") if "test" in r.get_text()]
    assert "reached" in line.get_text() and "not reached" not in line.get_text()
    (line,) = soup.select("table.bands tbody tr:not(.group)")
    assert "−4 … −4 %" in line.get_text() and not soup.select("table.ratios")
    line = soup.select_one("table.compilers tbody tr:not(.group)")
    count = str(sum(row.half == "test" for row in newer))
    assert [cell.text for cell in line.select("td")] == [
        *("XLA, HBM", count, "4%", "+4%", "2%", "+2%", f"{count}, {count} closer")
    ]
    norms = [dataclasses.replace(row, operator="rms_norm") for row in rows]
    blocks = [dataclasses.replace(r, implementation="row blocks", estimated_ms=0.8) for r in norms]
    comparisons.add(norms + blocks)  # a kernel flattered by 30 %
    line, whole = book("estimates", PARTS)[0].select("table.ratios tbody tr")
    count = str(sum(row.half == "test" for row in norms))
    cells = [cell.text for cell in line.select("td")]
    assert cells[1:] == [count, "30%", "30%", "+30%", "−23 … −23 %"] and "all" in whole.get_text()
    store.write("validation.csv", rows)
    cells = cells_of(soup, first.text, "calibration")
    assert cells[3] == "+50%" and cells[4] == {"fit": "fitted to"}.get(first.part, "test")
    comparisons.add([dataclasses.replace(row, estimated_ms=1.07) for row in rows])
    missed = book("estimates", PARTS)[0].select_one("table.missed").get_text(" ", strip=True)
    tests = sum(row.half == "test" for row in rows)
    assert f"missed: bias; {tests} of {tests} rows are off by more than 4%" in missed
    comparisons.add(rows)
    slow = next(row for row in rows if row.half == "test")
    refused = dataclasses.replace(slow, chip="v5e", estimated_ms=None, reason="an abort")
    comparisons.add([dataclasses.replace(slow, estimated_ms=10.0), refused])
    soup, read = book("estimates", PARTS)
    assert read == ["index"] and f"holds {1 - 1 / tests:.0%} of the test" in soup.get_text()
    of, error = (row.get_text(" ", strip=True) for row in soup.select("table.worst tbody tr")[:2])
    assert f"m={slow.sizes['m']}" in of and "+900%" in error
    assert "copy on v5e, 1 ×: an abort" in soup.get_text()


def test_each_rung_says_what_was_found_or_why_there_is_nothing(book, tmp_path):
    for rung, outcome, message in (
        ("interpret", "passed", ""),
        ("simulate", "skipped", "a tool is missing"),
        ("compile", "failed", "element [0] is nan"),
    ):
        check = Check("iota", "pallas", rung, "tiny", outcome, message)
        status.note([check, check], "gw0", tmp_path)
    soup, _ = book("status")
    (row,) = [row for row in soup.select("table.rungs tr") if "skipped" in row.get_text()]
    passed, skipped, failed, request = row.find_all("td")[2:]
    assert passed.get_text() == "passed 2"
    assert skipped.abbr["title"] == "a tool is missing" and "skipped 2" in skipped.get_text()
    assert failed.p["class"] == ["failed"] and "--rung measure" in request.abbr["title"]
    below = soup.select_one("section#rungs ol").get_text()
    assert "a tool is missing" in below and "element [0] is nan" in below
    assert "no such rung: there is no simulator for XLA" in below
    assert "--rung measure" in below  # and no dash, which the shell would not take
    said = soup.select_one("section#rungs p").get_text()
    assert "1 passed" in said and "1 failed" in said and status.machine() in said


def test_versions_and_the_time_of_notebooks(book, tmp_path):
    """The page is made anew each time: notebooks and tests may have run since."""
    (tmp_path / "source" / "notebooks").mkdir()
    cache = get_cache(str(tmp_path / "cache"))
    failed = {"notebooks/01_failed": {"cell": 2, "error": "an error", "notebook": {}}}
    (tmp_path / ".failed").write_text(json.dumps(failed))
    states = {"ran": {"execution_seconds": 12.34}, "lacks": {"not_run": True}, "failed": None}
    for name, data in (states | {"new": None}).items():
        path = tmp_path / "source" / "notebooks" / f"01_{name}.ipynb"
        cells = [nbformat.v4.new_markdown_cell(f"# {name}"), nbformat.v4.new_code_cell(f"'{name}'")]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, path)
        if data:
            bundle = CacheBundleIn(notebook, str(path), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False)
    soup, _ = book("status")
    assert cells_of(soup, "ran", "times")[1] == "12.3 s"
    assert cells_of(soup, "lacks", "times")[1] == "lacks an optional package"
    assert cells_of(soup, "failed", "times")[1] == "failed at code cell 2"
    assert cells_of(soup, "new", "times")[1] == "not run"
    assert "4 notebooks, 12 s in all" in soup.select_one("section#notebooks").get_text()
    assert cells_of(soup, "numpy", "packages")[3] == "differs"
    assert cells_of(soup, "no-such-thing", "packages")[2:] == ["—", "not installed"]
    assert "instead of 0.0.1" in soup.select_one("section#packages").get_text()
    assert book("status")[1] == ["index"]


@pytest.mark.slow
def test_the_page_of_the_package_has_every_public_name(book):
    soup, _ = book("api")
    sections = {h2.get_text().rstrip("#¶") for h2 in soup.select("section > section > h2")}
    pages = [ROOT / "book" / "api.md", *(ROOT / "book" / "api").glob("*.md")]
    asked = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert sections == set(re.findall(r"{api} (.+)", asked))
    found = {entry["id"] for entry in soup.select("dt.sig[id]")}
    said = soup.get_text().replace("’", "'")
    for operator in OPERATORS.values():
        assert f"{operator.package}.{operator.name}" in found and operator.summary in said
    for name in ("matmul", "tpu", "gpu", "neuron", "taichi", "figures", "exercises", "gallery"):
        package = getattr(kernels, name)
        public = {n for n in package.__all__ if not inspect.ismodule(getattr(package, n, package))}
        homes = (package.__name__, "kernels.machines.base")  # what all machines have stands once
        missing = {n for n in public if found.isdisjoint(f"{home}.{n}" for home in homes)}
        assert public and not missing
    assert "from kernels import tpu" in said
    for name in ("proof.ladder.verify", "machines.stopwatch.measure", "proof.budget.compare"):
        assert f"kernels.{name}" in found
    signature = soup.find(id="kernels.nms.nms").get_text()
    assert "iou_threshold" in signature and "implementation" in signature
    assert "Visit boxes from the best score down" in said
