"""Every entry climbs every rung that it claims, and planted faults fall."""

import dataclasses
import functools
import itertools

import choice
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import ladder, neuron, optional
from kernels.machines.gpu import toolchain
from kernels.machines.tpu import pool
from kernels.proof.backends.base import CompiledJob
from kernels.proof.backends.cuda import CUDA
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.nki import NKI, NKI_BETA1
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.backends.torch import TORCH
from kernels.proof.catalog import OPERATORS, RUNGS, find
from kernels.proof.workload import Workload

# Not for make quick: what g++ builds anew for each workload, once for each sanitizer; and of Mosaic
# GPU and of rings, what takes seconds beside simulation, which judges the same results and finds
# races too; and what is no kernel of ours: the forms of libraries, and the kernels that JAX ships.
SIMULATED = ("interpret", "compile")
# These take seconds where others of their backend do not.
ALONE = ["experts/pallas-interpret", "ring_attention/pallas-simulate"]
ALONE += ["layer_norm/mosaic_gpu-simulate", "rms_norm/mosaic_gpu-simulate"]
TAKE_SECONDS = {CUDA: RUNGS, MOSAIC_GPU: SIMULATED, PALLAS_TPU_MESH: SIMULATED}


def is_slow(operator, implementation, rung):
    others = choice.is_of_a_library(implementation)
    alone = f"{operator.name}/{implementation.name}-{rung}" in ALONE
    return others or alone or rung in TAKE_SECONDS.get(implementation.backend, ())


CLAIMS = [
    pytest.param(
        *(operator, implementation, rung),
        id=f"{operator.name}/{implementation.name}-{rung}",
        marks=[pytest.mark.slow] * is_slow(operator, implementation, rung),
    )
    for operator, implementation in find()
    for rung in implementation.rungs
]


@pytest.mark.parametrize(("operator", "implementation", "rung"), CLAIMS)
def test_every_claim_holds(operator, implementation, rung, status, pytestconfig):
    tier = pytestconfig.getoption("tier")
    subject = ladder.Subject.of(operator, implementation)
    problems = choice.workloads(tier, operator, implementation, rung)
    checks = []
    parts = [((), problems)]
    if rung == "compile":
        parts = choice.chips(tier, operator, implementation, problems)
    for chips, part in parts:
        checks += ladder.climb(subject, rung, part, choice.SEED, chips)
    status(checks)
    if pytestconfig.getoption("strict_rungs"):
        assert unproven(implementation, checks) == []
    if all(c.status == ladder.SKIPPED for c in checks):  # a tool is missing; the message names it
        pytest.skip(checks[0].message)
    assert sorted(c.workload for c in checks) == sorted(map(str, problems))
    assert [c for c in checks if c.status not in (ladder.PASSED, ladder.PARTIAL)] == []


# Compilers that no package index has: without them, a kernel is linted or built against stubs.
ELSEWHERE = {(backend, "compile") for backend in (NKI, NKI_BETA1, GPSIMD)}


def unproven(implementation, checks):
    """Those that were skipped, or did part of their work."""
    return [
        c
        for c in checks
        if c.status in (ladder.SKIPPED, ladder.PARTIAL)
        and (implementation.backend, c.rung) not in ELSEWHERE
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
    compiled, _ = left = unproven(implementation, checks)
    assert [c.rung for c in left] == ["compile", "measure"] and compiled.status == "partial"
    assert "lowered only" in compiled.message and "libtpu" in compiled.message


class TestTheChoiceOfWorkloads:
    """The tier test covers what the tier full runs through."""

    @pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
    def test_every_kind_stands_at_every_rung_and_every_workload_at_one(self, operator):
        judged = {"full": set(), "test": set()}
        for rung in RUNGS:
            able = [i for i in operator.implementations if rung in i.rungs]
            kernels = [i for i in able if not choice.is_of_a_library(i)]
            kinds = {"full": set(), "test": set()}
            for kernel, tier in itertools.product(kernels, kinds):
                chosen = choice.workloads(tier, operator, kernel, rung)
                assert chosen and set(chosen) <= set(choice.offered(operator, kernel))
                few = tier == "full" and choice.on_mesh(kernel) and rung != "simulate"
                judged[tier].update(() if few or rung == "compile" else chosen)
                for w in chosen:  # without gradients, a simulation judges the same numbers
                    if rung != "interpret" or choice.has_gradient(operator, kernel, w):
                        kinds[tier] |= choice.kinds(operator, kernel, w, rung)
            if rung == "simulate" or not any(map(choice.on_mesh, kernels)):
                assert kinds["full"] == kinds["test"]
        assert {w for w in judged["full"] if w.why} <= judged["test"]

    @pytest.mark.parametrize("tier", choice.TIERS)
    def test_every_kernel_is_compiled_for_every_chip(self, tier):
        for operator, each in find():
            if "compile" not in each.rungs:
                continue
            known = each.backend.compiled_for
            problems = choice.workloads(tier, operator, each, "compile")
            parts = choice.chips(tier, operator, each, problems)
            assert {str(w) for _, part in parts for w in part} == set(map(str, problems))
            if tier == "quick":
                assert {chips for chips, _ in parts} == {known[:1]}
                continue
            covered = set(itertools.chain(*(chips for chips, _ in parts)))
            assert covered == set(known) or len(covered) == len(problems)
            gradients = [w for w in problems if choice.has_gradient(operator, each, w)]
            if known and len(gradients) >= len(known):
                smooth = {
                    chip
                    for chips, part in parts
                    for chip in chips
                    if any(choice.has_gradient(operator, each, w) for w in part)
                }
                assert smooth == set(known)

    def test_a_program_is_compiled_for_no_other_chip(self, monkeypatch):
        asked = []

        def compile_each(programs, **options):
            asked.extend(program.chip for program in programs)
            return iter(())

        monkeypatch.setattr(pool, "compile_each", compile_each)
        monkeypatch.setattr(optional, "available", lambda module: True)
        subject = ladder.Subject.of(MATMUL, MATMUL["pallas"])
        for chips in (("v5e",), ("v6e",), ("v5e", "v6e"), ()):
            del asked[:]
            list(ladder.climb(subject, "compile", SMALL, chips=chips))
            assert set(asked) == set(chips or PALLAS_TPU.compiled_for)
        with pytest.raises(ValueError, match="'v9'; accepted: v5e, v6e, v7x"):
            list(ladder.climb(subject, "compile", SMALL, chips=("v9",)))


MATMUL = OPERATORS["matmul"]
SMALL = [Workload("small", {"m": 5, "k": 7, "n": 3})]


def fall(function, rung="interpret", problems=SMALL, **more):
    subject = ladder.Subject(MATMUL, "planted", PALLAS_TPU, function, **more)
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


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyError("/some/folder/kernel.py is gone"), "failed", "KeyError: 'kernel.py is gone'"),
        (optional.MissingPackage("g++ is needed for this"), "skipped", "g++ is needed for this"),
    ],
)
def test_an_exception_is_a_finding_and_a_missing_tool_is_none(error, status, says):
    def broken(x, y, *, interpret):
        raise error

    check = fall(broken)
    assert (check.status, check.message) == (status, says)


def test_a_wrong_gradient_fails():
    @jax.custom_vjp
    def crooked(x, y):
        return multiply(x, y, interpret=True)

    # As exact as the claim: the interpreter multiplies as the chip does.
    dot = functools.partial(jnp.dot, precision="highest")
    crooked.defvjp(
        lambda x, y: (crooked(x, y), (x, y)), lambda s, dz: (dot(dz, s[1].T), 2 * dot(s[0].T, dz))
    )

    def function(x, y, *, interpret):
        return crooked(jnp.asarray(x), jnp.asarray(y))

    assert fall(function).status == "passed"
    check = fall(function, differentiable=True)
    assert check.status == "failed" and check.message.startswith("gradient of y")


@pytest.mark.parametrize(
    ("cores", "off", "seeds"), [([0, 1], 1e-7, 2), ([0, 0], 1e-7, 1), ([0, 1], 0, 2)]
)
def test_another_order_is_tried_where_there_is_one_and_may_change_nothing(
    cores, off, seeds, monkeypatch
):
    from kernels.machines.tpu import simulator

    tried = []

    def simulate(function, *arguments, seed, **options):
        result = np.asarray(multiply(*arguments, interpret=True)) + np.float32(off * len(tried))
        tried.append(seed)
        return simulator.Simulation(result, (), np.zeros((2, 3)), np.array(cores))

    monkeypatch.setattr(simulator, "simulate", simulate)
    check = fall(multiply, "simulate")
    assert len(set(tried)) == len(tried) == seeds
    assert (check.status == "failed" and "order" in check.message) == (off > 0 and seeds == 2)


def test_an_index_map_that_leaves_the_array_fails_at_compile():
    """Interpreters and compilers clamp it; only our own reading of the index map reports it."""
    from jax.experimental import pallas as pl

    def past_the_end(x, y, *, interpret):
        def kernel(x_ref, y_ref, z_ref):
            z_ref[...] = jnp.dot(x_ref[...], y_ref[...], precision="highest")

        out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
        ahead, whole = pl.BlockSpec(x.shape, lambda i: (i + 1, 0)), pl.BlockSpec()
        options = {"grid": (1,), "in_specs": [ahead, whole], "out_specs": whole}
        return pl.pallas_call(kernel, out_shape=out, interpret=interpret, **options)(x, y)

    check = fall(past_the_end, "compile")
    assert check.status == "failed" and "starts at 5 in dimension 0" in check.message


def test_an_implementation_is_offered_what_it_accepts():
    """The levels of matmul take no options; JAX's flash attention wants whole lanes."""
    for operator, name in (("matmul", "v3"), ("attention", "jax_flash")):
        operator = OPERATORS[operator]
        offered = ladder.workloads(operator, operator[name], draws=2)
        assert 2 < len(offered) < len(ladder.workloads(operator, operator["pallas"], draws=2))
        assert all(operator[name].accepts(w) for w in offered)


def test_a_gradient_runs_the_forward_pass_once_and_takes_the_cotangent():
    """Two forward kernels would be compiled, and estimated, for nothing."""
    from kernels.machines.pallas import calls

    operator = OPERATORS["attention"]
    subject = ladder.Subject.of(operator, operator["pallas"])
    (_, arrays), (gradient, given) = ladder.programs(subject, operator.workloads["tiny"])
    names = [call.name for call in calls(gradient, *given)]
    assert names == ["flash_attention_forward", "flash_attention_backward"]
    results = jax.eval_shape(gradient, *given)
    q, k, v = arrays
    assert [r.shape for r in results] == [q.shape, q.shape, k.shape, v.shape]
    assert [each.shape for each in given] == [q.shape, q.shape, k.shape, v.shape]


@pytest.mark.parametrize(
    ("name", "device"), [("pallas", "a TPU"), ("nki", "an AWS Neuron device"), ("gpsimd", "an AWS")]
)
def test_measuring_names_the_device_that_a_language_needs(name, device, monkeypatch):
    monkeypatch.setattr(neuron, "device", lambda: False)
    operator = OPERATORS["giou"]
    subject = ladder.Subject.of(operator, operator[name])
    (check,) = ladder.climb(subject, "measure", [operator.workloads["tiny"]])
    assert check.status == "skipped" and f"needs {device}" in check.message


def test_an_unknown_rung_is_refused():
    subject = ladder.Subject(MATMUL, "x", PALLAS_TPU, multiply)
    with pytest.raises(ValueError, match="accepted: interpret, simulate, compile, measure"):
        list(ladder.climb(subject, "guess", SMALL))


def test_the_same_seed_draws_the_same_workloads():
    draw = functools.partial(ladder.workloads, MATMUL, MATMUL["pallas"], 9)
    assert list(map(str, draw(seed=4))) == list(map(str, draw(seed=4)))
    assert list(map(str, draw(seed=4))) != list(map(str, draw(seed=5)))


def test_a_rung_that_did_part_of_its_work_does_not_pass(monkeypatch):
    def compile(jobs):
        return (CompiledJob(None, "one chip of two", 0.1) for _ in jobs)

    monkeypatch.setattr(PALLAS_TPU, "compile", compile)
    check = fall(multiply, "compile")
    assert check.status == "partial" and check.message == "one chip of two"


def test_lowering_for_a_gpu_is_part_of_compiling(monkeypatch, tmp_path):
    monkeypatch.setenv(toolchain.FOLDER, str(tmp_path))  # where no compiler is
    add = OPERATORS["add_vectors"]
    subject = ladder.Subject.of(add, add["triton"])
    (check,) = ladder.climb(subject, "compile", [add.workloads["tiny"]])
    assert check.status == "partial" and "lowered only" in check.message


def test_the_worst_status_speaks_for_all():
    assert ladder.worst(["passed", "partial", "passed"]) == "partial"
    assert ladder.worst(["skipped", "partial"]) == "skipped"
    assert ladder.worst(["failed", "skipped"]) == "failed" and ladder.worst([]) == "passed"


def test_another_seed_brings_other_cotangents():
    from kernels.proof import judge

    cotangent = lambda workload, seed: judge._pulled(MATMUL, workload, seed).cotangents[0]
    other = dataclasses.replace(SMALL[0], name="other")
    drawn = [cotangent(*asked) for asked in ((SMALL[0], 0), (SMALL[0], 1), (other, 0))]
    assert all(a.shape == (5, 3) for a in drawn)
    assert all(not np.array_equal(*pair) for pair in itertools.combinations(drawn, 2))


def test_the_order_is_judged_for_every_output():
    from kernels.proof import judge

    a, b = np.zeros(3), np.ones(3)
    assert judge.same((a, b), (a, b)) and not judge.same((a, b), (a, a))


BRICKS = OPERATORS["brick_pad"]
WALL = [BRICKS.workloads["tiny"]]


def one(function, backend, rung):
    (check,) = ladder.climb(ladder.Subject(BRICKS, "planted", backend, function), rung, WALL)
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
    assert one(padded, TAICHI, rung).status == "passed"
    check = one(lambda tile, **options: padded(tile, **options)[::-1], TAICHI, rung)
    assert check.status == "failed" and "the reference" in check.message


@pytest.mark.parametrize("dies", [False, True])
def test_threads_that_change_a_result_and_last_words_are_findings(dies, monkeypatch):
    from kernels import taichi

    def simulate(function, *arguments, threads, **options):
        if dies:
            raise taichi.TaichiError("the process died of signal 6")
        result = function(*arguments, **options)
        return result if threads == 1 else np.nextafter(result, 9)

    monkeypatch.setattr(taichi, "simulate", simulate)
    check = one(padded, TAICHI, "simulate")
    assert check.status == "failed"
    assert check.message == "the process died of signal 6" if dies else "order" in check.message


@pytest.mark.parametrize("rung", ["simulate", "compile"])
def test_a_rung_that_a_language_has_not_is_skipped_by_name(rung):
    check = one(padded, TORCH, rung)
    assert check.status == "skipped" and "PyTorch" in check.message
