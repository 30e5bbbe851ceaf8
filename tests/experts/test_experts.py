"""experts: what the ladder does not ask."""

import jax
import numpy as np
import pytest
from refused import refuses

from kernels.experts import experts
from kernels.proof.catalog import OPERATORS

FLOAT = lambda *shape: np.ones(shape, np.float32)


def by_hand(x, router, gate, up, down, top_k):
    """One token after another, in float64, by a way of choosing of its own."""
    x, router, gate, up, down = (a.astype(np.float64) for a in (x, router, gate, up, down))
    z = np.zeros_like(x)
    for token, row in enumerate(x):
        logits = row @ router
        probabilities = np.exp(logits) / np.exp(logits).sum()
        chosen = sorted(range(len(logits)), key=lambda expert: (-logits[expert], expert))[:top_k]
        for expert in chosen:
            a, b = row @ gate[expert], row @ up[expert]
            share = probabilities[expert] / probabilities[chosen].sum()
            z[token] += share * ((a / (1 + np.exp(-a)) * b) @ down[expert])
    return z


@pytest.mark.parametrize("name", ["small", "one_expert", "ties", "single_token"])
def test_the_oracle_is_the_sum_over_the_chosen_with_weights_that_add_up_to_1(name):
    operator = OPERATORS["experts"]
    workload = operator.workloads[name]
    arguments, top_k = operator.workloads.arguments(workload), workload.options["top_k"]
    with jax.enable_x64(True):
        wide = [a.astype(np.float64) for a in arguments]
        reference = operator.reference(*wide, top_k=top_k)
    assert np.allclose(reference, by_hand(*arguments, top_k), rtol=1e-9, atol=1e-9)


WIDE = FLOAT(4, 2, 3)
RIGHT = dict(x=FLOAT(5, 2), router=FLOAT(2, 4), gate=WIDE, up=WIDE, down=FLOAT(4, 3, 2), top_k=2)
test_refuses_before_anything_runs = refuses(
    lambda wrong: experts(**RIGHT | wrong),
    (dict(x=FLOAT(2)), r"x.shape is \(2,\)"),
    (dict(router=FLOAT(3, 4)), r"router.shape is \(3, 4\); accepted: \(2, 4\)"),
    (dict(up=FLOAT(4, 2, 5)), r"up.shape is \(4, 2, 5\); accepted: \(4, 2, 3\)"),
    (dict(down=FLOAT(4, 2, 3)), r"down.shape is \(4, 2, 3\); accepted: \(4, 3, 2\)"),
    (dict(gate=np.ones((4, 2, 3), np.float16)), "gate.dtype is 'float16'"),
    (dict(top_k=0), "top_k is 0"),
    (dict(top_k=5), "top_k is 5; accepted: at most 4"),
    (dict(implementation="sonic"), "xla, xla_ragged, pallas"),
)
