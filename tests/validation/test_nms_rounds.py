"""The model of nms: rounds are counted on the boxes, and a round costs something."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernels import optional
from kernels.figures.schema import LATE
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload
from validation import nms_rounds
from validation.nms_rounds import RoundsEstimate, block_of, model, rounds

WORKLOADS = OPERATORS["nms"].workloads


def drawn(kind, n):
    return WORKLOADS.arguments(Workload("drawn", {"n": n}, values=kind))


@pytest.mark.parametrize(
    ("kind", "n", "block", "count"),
    [
        ("chain", 128, None, 128),  # a round for each box
        ("chain", 128, 128, 128),
        ("chain", 300, 128, 300),  # blocks count together
        ("disjoint", 300, 128, 3),  # each finds nothing changed
        ("disjoint", 300, None, 1),
        ("identical", 300, 128, 2 + 1 + 1),
        ("disjoint", 300, block_of("xla_blocks", 300), 1),
    ],
)
def test_rounds_are_counted(kind, n, block, count):
    assert rounds(*drawn(kind, n), 0.5, block=block) == count


def test_no_boxes_need_no_round_and_a_row_at_a_time_is_not_modelled():
    assert rounds(np.ones((0, 4), np.float32), np.ones(0, np.float32), 0.5, block=128) == 0
    with pytest.raises(ValueError, match="accepted: xla_matrix, xla_blocks, pallas"):
        model(WORKLOADS["tiny"], "xla")


@pytest.mark.slow
@pytest.mark.skipif(not optional.available("libtpu"), reason="needs libtpu, the TPU's compiler")
def test_a_modelled_time():
    (found,) = model(WORKLOADS["prime"])
    assert found.further > 0 and found.fixed > 4 * found.further  # four blocks, a round in each
    assert found.rounds > 4 and found.most == 509
    assert found.seconds == pytest.approx(found.fixed + (found.rounds - 4) * found.further)
    assert found.fixed < found.seconds < found.worst
    assert found.record().kind == "estimated" and "rounds" in found.record().method


def test_a_time_whose_profile_was_late_is_not_kept(monkeypatch):
    kept = []

    def modelled(workload, implementation, chips):
        late = f"; no static profile: the compiler {LATE} nms" * (workload.name == "n1024")
        estimate = SimpleNamespace(method=f"schedule{late}")
        return [RoundsEstimate(implementation, workload, "v5e", 9, 99, 1e-3, 1e-6, estimate)]

    monkeypatch.setattr(nms_rounds, "model", modelled)
    monkeypatch.setattr(nms_rounds, "add", lambda file, records: kept.extend(records))
    timely = {e.workload.name: timely for e, timely in nms_rounds.record(["pallas"], ["v5e"])}
    assert timely == {w.name: w.name != "n1024" for w in WORKLOADS.figures}
    assert [record.workload for record in kept] == [name for name in timely if timely[name]]
