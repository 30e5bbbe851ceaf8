"""The checker accepts what is right, and says of what is wrong why."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from kernels import optional
from kernels.exercises import check, exercises
from kernels.neuron.gpsimd import compiler


def axpy(a_ref, x_ref, y_ref, o_ref):
    o_ref[...] = a_ref[0] * x_ref[...] + y_ref[...]


def squares_backwards(o_ref):
    i = pl.num_programs(0) - 1 - pl.program_id(0)
    o_ref[i] = i * i


def table(o_ref):
    i, j = pl.program_id(0), pl.program_id(1)
    o_ref[i, j] = i * j


def running_maximum(x_ref, o_ref, highest_ref):
    b = pl.program_id(0)

    @pl.when(b == 0)
    def _():
        highest_ref[0] = -jnp.inf

    highest_ref[0] = jnp.maximum(highest_ref[0], jnp.max(x_ref[...]))
    o_ref[b] = highest_ref[0]


def matmul_bias(x, y, b, *, interpret):
    def kernel(x_ref, y_ref, b_ref, z_ref):
        z = jnp.dot(x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = jnp.maximum(z + b_ref[...], 0)

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128),
        in_specs=[
            pl.BlockSpec((128, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, 128), lambda i, j: (0, j)),
            pl.BlockSpec((1, 128), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, j)),
        interpret=interpret,
    )(x, y, b[None, :])


def giou_loss(first="core * part", step="cores * part"):
    return f"""
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {{
  constexpr size_t part = 400;
  torch::Tensor t_losses = get_dst_tensor();
  const size_t pairs = t_preds.sizes()[0] * t_preds.sizes()[1];
  const size_t core = get_cpu_id(), cores = get_cpu_count();
  Tcm preds(4 * part), targets(4 * part), losses(part);
  if (!preds.at || !targets.at || !losses.at || core >= cores) abort();
  auto losses_accessor = t_losses.tcm_accessor();
  for (size_t first = {first}; first < pairs; first += {step}) {{
    const size_t n = std::min(part, pairs - first);
    t_preds.tcm_accessor().tensor_to_tcm<float>(preds.at, 4 * first, 4 * n);
    t_targets.tcm_accessor().tensor_to_tcm<float>(targets.at, 4 * first, 4 * n);
    for (size_t i = 0; i < n; ++i) losses.at[i] = 1 - score(preds.at + 4 * i, targets.at + 4 * i);
    losses_accessor.tcm_to_tensor<float>(losses.at, first, n);
  }}
  return t_losses;
}}
"""


RIGHT = {
    f.__name__: f for f in (axpy, squares_backwards, table, running_maximum, matmul_bias, giou_loss)
}


def needs_a_compiler(name):
    if exercises()[name].language == "GpSimd C++" and not optional.available("g++"):
        pytest.skip("needs g++; on Debian and Ubuntu: sudo apt install g++")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_answer_passes(name):
    needs_a_compiler(name)
    answer = check(name, RIGHT[name])
    assert answer.passed is True, str(answer)
    assert "interpret, simulate, compile" in str(answer)


def forgets_y(a_ref, x_ref, y_ref, o_ref):
    o_ref[...] = a_ref[0] * x_ref[...]


def writes_nothing(a_ref, x_ref, y_ref, o_ref):
    y_ref[...]


def writes_half(a_ref, x_ref, y_ref, o_ref):
    half = o_ref.shape[0] // 2 or 1
    o_ref[:half] = a_ref[0] * x_ref[:half] + y_ref[:half]


def starts_at_zero(x_ref, o_ref, highest_ref):
    b = pl.program_id(0)

    @pl.when(b == 0)
    def _():
        highest_ref[0] = 0.0

    highest_ref[0] = jnp.maximum(highest_ref[0], jnp.max(x_ref[...]))
    o_ref[b] = highest_ref[0]


def never_starts(x_ref, o_ref, highest_ref):
    highest_ref[0] = jnp.maximum(highest_ref[0], jnp.max(x_ref[...]))
    o_ref[pl.program_id(0)] = highest_ref[0]


def mixed_up(o_ref):
    i, j = pl.program_id(0), pl.program_id(1)
    o_ref[i, j] = i + j


def no_kernel(x, y, b, *, interpret):
    return jnp.maximum(jnp.dot(x, y, precision="highest") + b, 0)


def in_bfloat16(x, y, b, *, interpret):
    narrow = (a.astype(jnp.bfloat16) for a in (x, y, b))
    return matmul_bias(*(a.astype(jnp.float32) for a in narrow), interpret=interpret)


def all_cores_do_everything():
    return giou_loss(first="0", step="part")


def cores_count_pairs():
    return giou_loss(first="core")


def raises(o_ref):
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("name", "answer", "rung", "says"),
    [
        ("axpy", forgets_y, "interpret", "element ["),
        ("axpy", writes_nothing, "interpret", "is this element ever written?"),
        ("axpy", writes_half, "interpret", "is this element ever written?"),
        ("running_maximum", starts_at_zero, "interpret", "negative"),
        ("running_maximum", never_starts, "interpret", "is nan"),
        ("table", mixed_up, "interpret", "integers are exact"),
        ("matmul_bias", no_kernel, "compile", "call pl.pallas_call"),
        ("matmul_bias", in_bfloat16, "interpret", "allowed"),
        ("squares_backwards", raises, "interpret", "KeyError: 'no such thing'"),
        ("axpy", lambda *refs: None, "interpret", "is nan"),
        ("giou_loss", all_cores_do_everything, "simulate", "Two cores met at one place"),
        ("giou_loss", cores_count_pairs, "simulate", "on prime"),
    ],
)
def test_a_wrong_answer_is_told_why(name, answer, rung, says):
    needs_a_compiler(name)
    found = check(name, answer)
    assert found.passed is False
    assert f"refused at {rung}" in str(found) and says in str(found), str(found)
    assert "not yet right" in found._repr_html_()


def test_what_cannot_run_is_not_right(monkeypatch):
    monkeypatch.setattr(optional.shutil, "which", lambda name: None)
    compiler.gpp.cache_clear()
    compiler._version.cache_clear()
    try:
        found = check("giou_loss", giou_loss)
    finally:
        compiler.gpp.cache_clear()
    assert found.passed is False and "cannot be proven at interpret" in str(found)


def test_an_untouched_cell_asks_for_the_kernel():
    def kernel(a_ref, x_ref, y_ref, o_ref):
        """To be written."""
        ...

    found = check("axpy", kernel)
    assert found.passed is None
    assert "not written yet" in str(found) and "o = a x + y" in str(found)


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [("cholesky", axpy, "name is 'cholesky'; accepted: axpy"), ("axpy", 3, "answer is a int")],
)
def test_what_is_refused(name, answer, says):
    with pytest.raises(ValueError, match=says):
        check(name, answer)


def test_each_exercise_says_what_it_wants():
    for each in exercises().values():
        assert each.task.startswith("Write ") and each.task.endswith(".")
        assert len(each.workloads.named) >= 2
