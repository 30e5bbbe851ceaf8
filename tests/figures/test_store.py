"""Records: one figure each, with a key of its own; files that many may write to."""

import dataclasses
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from refused import refuses

from kernels.figures import schema, store
from kernels.figures.schema import Key, Named, Record
from kernels.figures.store import RESULTS, TuningStore, add, read, write
from kernels.proof.workload import Workload

PARTS = json.loads(Path(__file__).with_name("problems.json").read_text())["other keys"]
CUBE = Workload("cube", {"m": 8, "k": 8, "n": 8}, "bfloat16")
KEY = Key.of("matmul", "pallas", CUBE, "v5e")
HOW = {"bound": "compute", "method": "profile", "versions": "jax 0.10.2", "date": "2026-01-01"}
ONE = KEY.record(workload="cube", kind="estimated", value=1.5, **HOW)


def of(**more):
    return dataclasses.replace(ONE, **more)


def test_a_key_is_structured():
    def relu():
        pass

    workload = Workload(
        "odd",
        {"m": 3, "k": 5},
        values="wide",
        options={"activation": relu, "border": (2048, 4096), "causal": True, "scale": -0.5},
        tuning={"bn": 256},
    )
    key = Key.of("matmul", "v3", workload, "a CPU, 2 cores", "gradient")
    assert str(key.sizes) == "m=3 k=5" and key.sizes["k"] == 5
    assert str(key.options) == "values=wide activation=relu border=2048,4096 causal=True scale=-0.5"
    assert key.tuning == {"bn": 256} and key.dtype == "float32" and key.pass_ == "gradient"
    assert key.options.typed()["border"] == (2048, 4096) and key.options.typed()["scale"] == -0.5
    assert key.solves(workload) and not key.solves(dataclasses.replace(workload, options={}))
    assert not key.solves(dataclasses.replace(workload, values="normal"))


def test_names_and_values_have_one_text():
    for text in ("m=4096 k=8 n=-1", "block=512×1024×1024", "iou_threshold=0.5", ""):
        assert str(Named.parse(text)) == text
    assert Named({"m": 1, "k": 2}) == Named({"k": 2, "m": 1}) == {"m": 1, "k": 2}
    assert hash(Named({"m": 1, "k": 2})) == hash(Named({"k": 2, "m": 1}))
    assert Named({"m": 1}) != Named({"m": 2})
    for unreadable in ({"a b": 1}, {"a=": 1}, {"": 1}, {"a": "b=c"}, {"a": ""}):
        with pytest.raises(ValueError, match=r"accepted: a (word|value) without ="):
            Named(unreadable)


test_what_no_record_can_be = refuses(
    lambda change: of(**change),
    ({"kind": "guessed"}, "kind is 'guessed'; accepted: measured, estimated, published"),
    ({"kind": "published"}, "source is empty"),
    ({"pass_": "sideways"}, "pass is 'sideways'; accepted: forward"),
    ({"quantity": "beauty"}, "quantity is 'beauty'"),
    ({"sizes": {"m": 0.5}}, "the size m is '0.5'; accepted: a whole number"),
)


@pytest.mark.parametrize("change", PARTS, ids=lambda change: next(iter(change)))
def test_each_part_of_the_key_tells_figures_apart(change, tmp_path):
    other = of(**change)
    add(tmp_path / "x.csv", [ONE])
    add(tmp_path / "x.csv", [other])
    assert sorted(read(tmp_path / "x.csv"), key=repr) == sorted([ONE, other], key=repr)


@pytest.mark.parametrize(
    "change", [{"workload": "another name"}, {"date": "2026-02-02"}, {"method": "by hand"}]
)
def test_a_newer_record_replaces_an_older_one(change, tmp_path):
    path = tmp_path / "x.csv"
    add(path, [ONE])
    newer = of(value=3.0, **change)
    add(path, [newer])
    assert read(path) == [newer]
    add(path, [of(value=4.0, workload="")])
    assert read(path) == [of(value=4.0, workload=newer.workload)]
    other = of(value=5.0, workload="", tuning=Named({"block": "9×9×9"}))
    add(path, [other])  # another tuning of the same problem
    assert {record.workload for record in read(path)} == {newer.workload}


def test_round_trip(tmp_path):
    odd = of(
        implementation="jax flash, of the library",
        options={"border": (2, 3), "causal": True},
        tuning={"block": "512×1024/2"},
        pass_="backward",
        part={"where": "attention", "what": "kernel"},
        value=float("inf"),
        method='it said "no", twice\nand left',
    )
    write(tmp_path / "x.csv", [odd, ONE])
    assert read(tmp_path / "x.csv") == sorted([odd, ONE], key=lambda r: r.implementation)
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_kinds_are_never_mixed(tmp_path):
    published = of(kind="published", source="somebody")
    with pytest.raises(ValueError, match="one kind"):
        write(tmp_path / "x.csv", [ONE, published])
    add(tmp_path / "x.csv", [ONE])
    with pytest.raises(ValueError, match="one kind"):
        add(tmp_path / "x.csv", [published])
    assert read(tmp_path / "x.csv") == [ONE]


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="the header"):
        read(tmp_path / "x.csv")
    assert read(tmp_path / "none.csv", missing_ok=True) == []
    with pytest.raises(ValueError, match=r"none.csv; accepted: a file that there is: x.csv"):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda row: row[:60], "the row is cut off"),
        (lambda row: f"{row}{row.replace('1.5', '2.5')}", "the row is of what another row tells"),
        (lambda row: row.replace("1.5", "nan"), "value is nan"),
        (lambda row: row.replace("1.5", "-1.5"), "value is -1.5"),
        (lambda row: row.replace("1.5", "1,5"), "the header is"),
    ],
)
def test_a_damaged_row_is_told_with_its_line_and_not_believed(tmp_path, damage, says):
    add(tmp_path / "x.csv", [ONE])
    head, row = (tmp_path / "x.csv").read_text().splitlines(keepends=True)
    (tmp_path / "x.csv").write_text(head + damage(row))
    with pytest.raises(ValueError, match=rf"x\.csv, line [23]: {says}"):
        add(tmp_path / "x.csv", [of(value=3.0)])
    assert (tmp_path / "x.csv").read_text() == head + damage(row), "nor written over"


ROWS = 200


def _write_rows(path, name, without_fcntl, start):
    if without_fcntl:
        store.fcntl = None
    start.wait()
    for i in range(0, ROWS, 4):
        rows = (of(implementation=name, sizes={"m": m}, value=float(m)) for m in range(i, i + 4))
        add(path, rows)


@pytest.mark.slow
@pytest.mark.parametrize("without_fcntl", [False, True], ids=["fcntl", "a lock file"])
def test_two_processes_lose_nothing(without_fcntl, tmp_path):
    path = tmp_path / "x.csv"
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    writers = [
        context.Process(target=_write_rows, args=(path, name, without_fcntl, start))
        for name in ("one", "two")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    found = {(r.implementation, r.sizes["m"], r.value) for r in read(path)}
    assert found == {(name, i, float(i)) for name in ("one", "two") for i in range(ROWS)}
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def _die_before_the_move(path):
    store.os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
    add(path, [of(value=9.0)])


@pytest.mark.skipif(store.fcntl is None, reason="there is no SIGKILL here")
def test_a_writer_that_is_killed_midway_leaves_the_file_whole_and_the_lock_free(tmp_path):
    path = tmp_path / "x.csv"
    add(path, [ONE])
    writer = multiprocessing.get_context("spawn").Process(target=_die_before_the_move, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2  # it had begun
    assert read(path) == [ONE]
    code = f"import sys; sys.path[:0] = {[*map(str, Path(__file__).parents[:2])]!r}\n"
    code += f"from test_store import *; add({str(path)!r}, [of(implementation='xla')])"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert {r.implementation for r in read(path)} == {"pallas", "xla"}
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_an_abandoned_lock_file_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "fcntl", None)
    lock = tmp_path / ".x.csv.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    add(tmp_path / "x.csv", [ONE])
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_a_tuning_run_goes_on_where_it_was(tmp_path):
    path = tmp_path / "tuned.csv"
    first = TuningStore(KEY, path)
    first["block=8×8×8"] = (0.25, "compute", "profile")
    first["block=1×8×8"] = (float("inf"), "", "the kernel asks for too much")
    assert dict(TuningStore(KEY, path)) == dict(first) and not TuningStore(KEY, path, fresh=True)
    one, two = (TuningStore(KEY, path) for _ in range(2))  # neither loses what the other writes
    one["block=1×1×1"] = two["block=2×2×2"] = (2.0, "", "profile")
    assert set(TuningStore(KEY, path)) == {*first, "block=1×1×1", "block=2×2×2"}
    for other in (
        dataclasses.replace(KEY, chip="v6e"),
        dataclasses.replace(KEY, implementation="v3"),
        dataclasses.replace(KEY, dtype="int8"),
    ):
        assert not TuningStore(other, path)
    slow, *_, refused = sorted(read(path), key=lambda r: r.value)
    assert (slow.value, slow.bound, slow.tuning) == (250.0, "compute", {"block": "8×8×8"})
    assert refused.method == "the kernel asks for too much"


@pytest.mark.parametrize("name", ["versions", "model"])
def test_other_versions_and_another_model_are_not_seen(name, tmp_path, monkeypatch):
    TuningStore(KEY, tmp_path / "tuned.csv")["block=1×1×1"] = (1.0, "", "profile")
    assert TuningStore(KEY, tmp_path / "tuned.csv")
    assert read(tmp_path / "tuned.csv")[0].versions.endswith(f", model {schema.model()}")
    monkeypatch.setattr(schema, name, lambda *names: "another")
    assert not TuningStore(KEY, tmp_path / "tuned.csv")


@pytest.mark.parametrize("package", ["kernels.machines", "kernels.machines.compat"])
def test_the_model_s_digest_is_of_every_name_that_it_uses(package):
    files = schema.sources()
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    used = {*re.findall(r"\w+", " ".join(re.findall(rf"^from {package}[. ](.*)", text, re.M)))}
    folder = RESULTS.parent / package.replace(".", "/")
    modules, digested = ({file.stem for file in some} for some in (folder.glob("*.py"), files))
    no_estimate = {"base", "cache", "checks", "child", "optional", "xla_gpu"}  # comes from these
    assert used & modules - no_estimate <= digested and used & {"hlo", "jax_pallas"}


# No records: what the tests found, and estimates beside what was published.
OTHERS = {"status.csv", "validation.csv", "gpu_validation.csv", "judged.csv", "foreign.csv"}
OTHERS |= {"neuron_units.csv"}
FIGURES = sorted(p for p in RESULTS.glob("*.csv") if p.name not in OTHERS)


@pytest.mark.parametrize("path", FIGURES, ids=lambda p: p.name)
def test_what_is_stored_is_what_would_be_written(path, tmp_path):
    write(tmp_path / "same.csv", read(path))
    assert (tmp_path / "same.csv").read_text() == path.read_text()


def test_a_record_is_of_today_unless_it_says_otherwise():
    today = schema.datetime.date.today().isoformat()
    record = KEY.record(kind="measured", value=1.0, versions="v")
    assert (record.date, record.unit, record.quantity) == (today, "ms", "time")
    assert isinstance(record, Record) and record.key == KEY
    assert schema.versions("numpy", "jax").startswith("numpy ")
    with pytest.raises(Exception, match="no-such-package"):
        schema.versions("no-such-package")
