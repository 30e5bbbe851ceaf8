"""Every entry climbs every rung that it claims, and planted faults fall."""

import functools
import itertools

import choice
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import ladder, optional
from kernels.catalog import OPERATORS, RUNGS, find
from kernels.workload import Workload

CLAIMS = [
    pytest.param(operator, implementation, rung, id=f"{operator.name}/{implementation.name}-{rung}")
    for operator, implementation in find()
    for rung in implementation.rungs
]


@pytest.mark.parametrize(("operator", "implementation", "rung"), CLAIMS)
def test_every_claim_holds(operator, implementation, rung, status, pytestconfig, monkeypatch):
    tier = pytestconfig.getoption("tier")
    subject = ladder.Subject.of(operator, implementation)
    problems = choice.workloads(tier, operator, implementation, rung)
    checks = []
    for chips, part in choice.chips(tier, operator, implementation, problems, ladder.CHIPS):
        monkeypatch.setattr(ladder, "CHIPS", chips)
        checks += ladder.climb(subject, rung, part, choice.SEED)
    status(checks)
    if pytestconfig.getoption("strict_rungs"):
        assert unproven(implementation, checks) == []
    if all(c.status == ladder.SKIPPED for c in checks):  # a tool is missing; the message names it
        pytest.skip(checks[0].message)
    assert sorted(c.workload for c in checks) == sorted(map(str, problems))
    assert [c for c in checks if c.status != ladder.PASSED] == []


# Compilers that no package index has: without them, a kernel is linted or built against stubs.
ELSEWHERE = {("NKI", "compile"), ("GpSimd C++", "compile")}


def unproven(implementation, checks):
    """Those that were skipped, or passed with a note that they did part of the work."""
    return [
        c
        for c in checks
        if (c.status == ladder.SKIPPED or (c.status == ladder.PASSED and c.message))
        and (implementation.language, c.rung) not in ELSEWHERE
    ]


def test_what_a_strict_run_refuses(monkeypatch):
    """Without libtpu a kernel is only lowered, which passes with a note."""
    monkeypatch.setattr(optional, "available", lambda module: module != "libtpu")
    implementation = MATMUL["pallas"]
    subject = ladder.Subject.of(MATMUL, implementation)
    checks = [
        check
        for rung in ("interpret", "compile", "measure")
        for check in ladder.climb(subject, rung, SMALL)
    ]
    assert [c.rung for c in unproven(implementation, checks)] == ["compile", "measure"]


class TestTheChoiceOfWorkloads:
    """The tier test covers what the tier full runs through."""

    @pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
    @pytest.mark.parametrize("rung", RUNGS)
    @pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "libraries"])
    def test_every_workload_stands_at_every_rung(self, operator, rung, kernels):
        alike = [
            each
            for each in operator.implementations
            if rung in each.rungs and (len(each.rungs) > 1) == kernels
        ]
        full, test = (
            {each.name: choice.workloads(tier, operator, each, rung) for each in alike}
            for tier in ("full", "test")
        )

        def pairs(chosen):
            return {
                (
                    str(workload),
                    choice.has_gradient(operator, each, workload) and rung != "simulate",
                )
                for each in alike
                for workload in chosen[each.name]
            }

        proven = pairs(test)
        assert {name for name, _ in pairs(full)} == {name for name, _ in proven}
        assert {pair for pair in pairs(full) if pair[1]} <= proven
        assert all(set(map(str, test[name])) <= set(map(str, full[name])) for name in full)
        assert all(len(found) >= min(choice.FEW, len(full[name])) for name, found in test.items())

    def test_it_is_much_less(self):
        sizes = {
            tier: sum(
                len(choice.workloads(tier, operator, each, rung))
                for operator, each in find()
                for rung in each.rungs
            )
            for tier in choice.TIERS
        }
        assert sizes["quick"] < sizes["test"] < sizes["full"] / 2

    @pytest.mark.parametrize("tier", choice.TIERS)
    def test_every_kernel_is_compiled_for_every_chip(self, tier):
        for operator, each in find():
            if "compile" not in each.rungs:
                continue
            problems = choice.workloads(tier, operator, each, "compile")
            parts = choice.chips(tier, operator, each, problems, ladder.CHIPS)
            assert {str(w) for _, part in parts for w in part} == set(map(str, problems))
            if tier == "quick":
                assert {chips for chips, _ in parts} == {ladder.CHIPS[:1]}
                continue
            assert set(itertools.chain(*(chips for chips, _ in parts))) == set(ladder.CHIPS)
            if any(choice.has_gradient(operator, each, w) for w in problems):
                smooth = {
                    chip
                    for chips, part in parts
                    for chip in chips
                    if any(choice.has_gradient(operator, each, w) for w in part)
                }
                assert smooth == set(ladder.CHIPS)


MATMUL = OPERATORS["matmul"]
SMALL = [Workload("small", {"m": 5, "k": 7, "n": 3})]


def fall(function, rung="interpret", problems=SMALL, **more):
    subject = ladder.Subject(MATMUL, "planted", "Pallas TPU", function, **more)
    (check,) = ladder.climb(subject, rung, problems)
    return check


def multiply(x, y, *, interpret, **_):
    return MATMUL.function(x, y, interpret=interpret)


def test_the_unharmed_function_passes():
    assert fall(multiply).status == "passed"


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda z: z * 1.0001, "allowed"),
        (lambda z: jnp.zeros_like(z), "every element is zero"),
        (lambda z: z.at[4, 2].set(jnp.nan), "element [4, 2] is nan"),
        (lambda z: z[:, :2], "shape is (5, 2)"),
        (lambda z: z.T, "shape is (3, 5)"),
    ],
)
def test_a_harmed_result_fails(harm, says):
    check = fall(lambda x, y, *, interpret: harm(multiply(x, y, interpret=interpret)))
    assert check.status == "failed" and says in check.message


def test_an_exception_is_a_finding():
    def broken(x, y, *, interpret):
        raise KeyError("/some/folder/kernel.py is gone")

    check = fall(broken)
    assert check.status == "failed" and check.message == "KeyError: 'kernel.py is gone'"


def test_a_missing_tool_skips_by_name():
    def needs_a_tool(x, y, *, interpret):
        raise optional.MissingPackage("g++ is needed for this test, and is not installed.")

    check = fall(needs_a_tool)
    assert check.status == "skipped" and "g++ is needed" in check.message


def test_a_wrong_gradient_fails():
    @jax.custom_vjp
    def crooked(x, y):
        return multiply(x, y, interpret=True)

    crooked.defvjp(
        lambda x, y: (crooked(x, y), (x, y)), lambda s, dz: (dz @ s[1].T, s[0].T @ dz * 2)
    )

    def function(x, y, *, interpret):
        return crooked(jnp.asarray(x), jnp.asarray(y))

    assert fall(function).status == "passed"
    check = fall(function, differentiable=True)
    assert check.status == "failed" and check.message.startswith("gradient of y")


def test_a_result_that_depends_on_the_order_fails(monkeypatch):
    from kernels.tpu import simulator

    turns = iter((0.0, 1e-7))

    def simulate(function, *arguments, seed, **options):
        result = np.asarray(multiply(*arguments, interpret=True)) + np.float32(next(turns))
        return simulator.Simulation(result, (), np.zeros((2, 3)), np.arange(2))

    monkeypatch.setattr(simulator, "simulate", simulate)
    check = fall(multiply, "simulate")
    assert check.status == "failed" and "order" in check.message


@pytest.mark.parametrize(("cores", "times"), [([0, 0], 1), ([0, 1], 2)])
def test_another_order_is_tried_where_there_is_one(cores, times, monkeypatch):
    from kernels.tpu import simulator

    seeds = []

    def simulate(function, *arguments, seed, **options):
        seeds.append(seed)
        result = np.asarray(multiply(*arguments, interpret=True))
        return simulator.Simulation(result, (), np.zeros((2, 3)), np.array(cores))

    monkeypatch.setattr(simulator, "simulate", simulate)
    assert fall(multiply, "simulate").status == "passed"
    assert len(set(seeds)) == len(seeds) == times


def test_an_index_map_that_leaves_the_array_fails_at_compile():
    """Interpreters and compilers clamp it; only our own reading of the index map reports it."""
    from jax.experimental import pallas as pl

    def past_the_end(x, y, *, interpret):
        def kernel(x_ref, y_ref, z_ref):
            z_ref[...] = jnp.dot(x_ref[...], y_ref[...], precision="highest")

        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype),
            grid=(1,),
            in_specs=[
                pl.BlockSpec(x.shape, lambda i: (i + 1, 0)),
                pl.BlockSpec(y.shape, lambda i: (0, 0)),
            ],
            out_specs=pl.BlockSpec((x.shape[0], y.shape[1]), lambda i: (0, 0)),
            interpret=interpret,
        )(x, y)

    check = fall(past_the_end, "compile")
    assert check.status == "failed" and "starts at 5 in dimension 0" in check.message


def test_an_implementation_is_offered_what_it_accepts():
    """Chapter 7's levels take no options; JAX's flash attention wants whole lanes."""
    for operator, name in (("matmul", "v3"), ("attention", "jax_flash")):
        operator = OPERATORS[operator]
        offered = ladder.workloads(operator, operator[name], draws=2)
        assert 2 < len(offered) < len(ladder.workloads(operator, operator["pallas"], draws=2))
        assert all(operator[name].accepts(w) for w in offered)


def test_a_gradient_runs_the_forward_pass_once_and_takes_the_cotangent():
    """Two forward kernels would be compiled, and estimated, for nothing."""
    from kernels.pallas import calls

    operator = OPERATORS["attention"]
    subject = ladder.Subject.of(operator, operator["pallas"])
    (_, arrays), (gradient, given) = ladder.programs(subject, operator.workloads["tiny"])
    names = [call.name for call in calls(gradient, *given)]
    assert names == ["flash_attention_forward", "flash_attention_backward"]
    results = jax.eval_shape(gradient, *given)
    q, k, v = arrays
    assert [r.shape for r in results] == [q.shape, q.shape, k.shape, v.shape]
    assert [each.shape for each in given] == [q.shape, q.shape, k.shape, v.shape]


def test_measuring_is_skipped_by_name_on_a_cpu():
    check = fall(multiply, "measure")
    assert check.status == "skipped" and "needs a TPU" in check.message


def test_measuring_names_the_device_that_a_language_needs():
    operator = OPERATORS["giou"]
    for name in ("nki", "gpsimd"):
        subject = ladder.Subject.of(operator, operator[name])
        (check,) = ladder.climb(subject, "measure", [operator.workloads["tiny"]])
        assert check.status == "skipped" and "Neuron device" in check.message


def test_an_unknown_rung_is_refused():
    subject = ladder.Subject(MATMUL, "x", "Pallas TPU", multiply)
    with pytest.raises(ValueError, match="accepted: interpret, simulate, compile, measure"):
        list(ladder.climb(subject, "guess", SMALL))


def test_the_same_seed_draws_the_same_workloads():
    draw = functools.partial(ladder.workloads, MATMUL, MATMUL["pallas"], 9)
    assert list(map(str, draw(seed=4))) == list(map(str, draw(seed=4)))
    assert list(map(str, draw(seed=4))) != list(map(str, draw(seed=5)))


def test_rungs_are_the_catalog_s():
    assert tuple(ladder._CLIMB) == RUNGS


# --- Taichi -------------------------------------------------------------------------------------

BRICKS = OPERATORS["brick_pad"]
WALL = [BRICKS.workloads["tiny"]]


def one(function, language, rung):
    subject = ladder.Subject(BRICKS, "planted", language, function)
    (check,) = ladder.climb(subject, rung, WALL)
    return check


def padded(tile, **options):
    return BRICKS.function(tile, implementation="numpy", **options)


@pytest.mark.parametrize("rung", ["interpret", "simulate", "measure"])
def test_a_wrong_wall_falls(rung, monkeypatch):
    """The children are replaced: what they return is judged all the same."""
    from kernels import taichi

    def here(function, *arguments, threads=None, device=None, **options):
        return function(*arguments, **options)

    monkeypatch.setattr(taichi, "simulate", here)
    monkeypatch.setattr(taichi, "run", here)
    assert one(padded, "Taichi", rung).status == "passed"
    check = one(lambda tile, **options: padded(tile, **options)[::-1], "Taichi", rung)
    assert check.status == "failed" and "the reference" in check.message


def test_a_result_that_depends_on_the_threads_falls(monkeypatch):
    from kernels import taichi

    def simulate(function, *arguments, threads, **options):
        result = function(*arguments, **options)
        return result if threads == 1 else np.nextafter(result, 9)

    monkeypatch.setattr(taichi, "simulate", simulate)
    check = one(padded, "Taichi", "simulate")
    assert check.status == "failed" and "order" in check.message


def test_the_last_words_of_a_debug_run_are_the_finding(monkeypatch):
    from kernels import taichi

    def simulate(function, *arguments, **options):
        raise taichi.TaichiError("the process died of signal 6")

    monkeypatch.setattr(taichi, "simulate", simulate)
    check = one(padded, "Taichi", "simulate")
    assert check.status == "failed" and check.message == "the process died of signal 6"


@pytest.mark.parametrize("rung", ["simulate", "compile"])
def test_a_rung_that_a_language_has_not_is_skipped_by_name(rung):
    check = one(padded, "PyTorch", rung)
    assert check.status == "skipped" and "PyTorch" in check.message


def test_a_missing_package_is_a_reason_to_skip():
    def function(tile, **options):
        raise optional.MissingPackage("taichi is needed, and is not installed", name="taichi")

    check = one(function, "Taichi", "interpret")
    assert check.status == "skipped" and check.message.startswith("taichi is needed")
