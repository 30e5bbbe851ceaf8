"""What an operation of XLA's own costs: bytes at the bandwidth reached, or its work, by its HLO."""

import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from pallas_samples import shape

from kernels import tpu
from kernels.figures.schema import LATE
from kernels.machines import hlo
from kernels.machines.compat.libtpu import Bundle, Dump
from kernels.machines.hlo import Array
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate import bands, estimate_all, profile
from kernels.machines.tpu.estimate.cost import Cost
from kernels.machines.tpu.estimate.rates import RATES, WAITS, together
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import Memory, TpuProgram
from kernels.vector import add_vectors

LARGE = "bf16[16384,16384]{1,0:T(8,128)}"
SIZE = 2 * 16384**2


def compiled(body, chip="v5e", bundles=None):
    """A compiled program of these lines of HLO; bundles: of each fusion, those of one window."""
    dumps = []
    for name, count in (bundles or {}).items():
        steps = tuple(Bundle(i, "", 1, ("x",)) for i in range(count))
        dumps.append(Dump(name, steps, ("MXU",), np.array([4]), np.zeros((count, 1), int)))
    text = "\n".join(["HloModule m", *body, ""])
    return TpuProgram("m", chip, Memory(*[0] * 5), {}, text, None, 1.0, "0", tuple(dumps))


def costs(body, chip="v5e", bundles=None):
    """Its operations by name."""
    return {op.name: op for op in Cost(compiled(body, chip, bundles), {}, {}).operations()}


def config(cycles, *bounds, shared=False):
    window = {"estimated_cycles": str(cycles), "iteration_bounds": [str(b) for b in bounds]}
    found = {"window_config": window}
    if shared:
        found["megacore_config"] = {"megacore_split_dim": "1"}
    return f"backend_config={json.dumps(found, separators=(',', ':'))}"


def entry(*lines):
    return ["ENTRY %main {", *(f"  {line}" for line in lines), "}"]


def fused(name, *lines):
    return [f"%{name} {{", *(f"  {line}" for line in lines), "}", ""]


def doubled(cycles=4_832_512, bounds=(256, 1), shared=False, space=""):
    large = LARGE.replace("}", f"{space}}}")
    body = fused("double", f"%p = {large} parameter(0)", f"ROOT %a = {large} add(%p, %p)")
    said = f"kind=kLoop, calls=%double, {config(cycles, *bounds, shared=shared)}"
    return [*body, *entry(f"%x = {large} parameter(0)", f"ROOT %f = {large} fusion(%x), {said}")]


@pytest.mark.parametrize("limit", [7, 8])
def test_a_loop_whose_counter_goes_up_by_two_runs_half_as_often(limit):
    def counter(of):
        return f"%{of} = (s32[]) parameter(0)", f"%{of}i = s32[] get-tuple-element(%{of}), index=0"

    after = "%two = s32[] constant(2)", "%next = s32[] add(%bi, %two)"
    body = fused("body", *counter("b"), *after, "ROOT %out = (s32[]) tuple(%next)")
    below = "ROOT %less = pred[] compare(%ci, %limit), direction=LT"
    condition = fused("condition", *counter("c"), f"%limit = s32[] constant({limit})", below)
    first = "%zero = s32[] constant(0)", "%first = (s32[]) tuple(%zero)"
    loop = "ROOT %loop = (s32[]) while(%first), condition=%condition, body=%body"
    module = hlo.parse("\n".join([*body, *condition, *entry(*first, loop), ""]))
    assert module.trips(module.computations["main"][-1]) == 4


@pytest.mark.parametrize("chip", tpu.CHIPS)
def test_a_stream_takes_its_bytes_at_the_bandwidth_reached(chip):
    """XLA's own cycles, 2.5 times as many, are no time."""
    op = costs(doubled(), chip, {"f": 671})["f"]
    rate, rates = tpu.CHIPS[chip].hbm_bytes_per_second, RATES[chip]
    expected = SIZE / rate * (1 / rates.read + 1 / rates.write)
    seconds = op.cycles / tpu.CHIPS[chip].clock_hz
    assert seconds == pytest.approx(expected, rel=0.02) and op.bound == "HBM"
    assert op.hbm_bytes == 2 * SIZE
    if chip == "v5e":  # 1.633 ms were measured
        assert seconds == pytest.approx(1.633e-3, rel=0.03)


def test_work_that_takes_longer_than_the_bytes_binds():
    slow = costs(doubled(), bundles={"f": 40_000})["f"]
    assert slow.bound == "compute"
    assert slow.cycles == pytest.approx(256 * 40_000, rel=0.02) and slow.method == "schedule"
    both = costs(doubled(), bundles={"f": int(slow.floor_cycles / 256)})["f"]
    assert both.cycles == pytest.approx(2**0.25 * slow.floor_cycles, rel=0.02)


def test_two_cores_share_the_windows():
    took = lambda shared: costs(doubled(shared=shared), "v5p", {"f": 40_000})["f"].model_cycles
    assert took(False) == 256 * 40_000 == 2 * took(True)


def test_nothing_hides_the_only_window():
    """In a single window, the bytes and the work follow one another."""
    cost = lambda windows, bundles: costs(doubled(bounds=(windows, 1)), bundles={"f": bundles})["f"]
    few, many = cost(1, 256 * 40), cost(256, 40)
    assert few.model_cycles == many.model_cycles
    assert few.cycles - many.cycles == pytest.approx(few.model_cycles * 255 / 256)


def test_a_v6e_reaches_large_arrays_more_slowly():
    huge = "bf16[131072,131072]{1,0:T(8,128)}"  # 32 GiB
    body = [line.replace(LARGE, huge) for line in doubled()]
    for chip, op in {chip: costs(body, chip)["f"] for chip in tpu.CHIPS}.items():
        rate, rates = tpu.CHIPS[chip].hbm_bytes_per_cycle, RATES[chip]
        usual = (1 << 35) / rate * (1 / rates.read + 1 / rates.write)
        assert op.floor_cycles / usual == pytest.approx(8**rates.large)
        assert (rates.large > 0) == (chip == "v6e") and op.hbm_bytes == 1 << 36


def test_what_lies_in_vmem_costs_its_schedule_alone():
    """A fusion loads and stores it where it lies: no copy stands in its schedule."""
    op = costs(doubled(space="S(1)"), bundles={"f": 100})["f"]
    assert op.hbm_bytes == 0 and op.floor_cycles == 0 and op.bound == "compute"
    assert op.cycles == pytest.approx(256 * 100) and op.method == "schedule"
    # Memory that is only named costs nothing.
    line = f'ROOT %b = {LARGE} custom-call(), custom_call_target="AllocateBuffer"'
    assert costs(entry(line))["b"].cycles == 0


def product(cycles, bounds, results=LARGE):
    x, y = f"{LARGE} parameter(0)", f"{LARGE} parameter(1)"
    dot = f"ROOT %c = {results} convolution(%p, %q), dim_labels=bf_io->bf"
    said = f"kind=kOutput, calls=%dot, {config(cycles, *bounds)}"
    fusion = f"ROOT %f = {results} fusion(%x, %y), {said}"
    return [*fused("dot", f"%p = {x}", f"%q = {y}", dot), *entry(f"%x = {x}", f"%y = {y}", fusion)]


def test_a_product_takes_what_xla_says_or_its_schedule():
    """16384³ took 46.17 ms on a v5e."""
    op = costs(product(72_759_736, (16, 25, 16)), bundles={"f": 11000})["f"]
    assert op.kind == "matmul" and op.bound == "compute"
    assert op.cycles / 1.5e9 == pytest.approx(46.17e-3, rel=0.04)
    # Where XLA believes the product to wait for HBM, at a rate far below the real one.
    waits = int(16 * 25 * 16 * 11000 * WAITS / RATES["v5e"].product * 1.01)
    op = costs(product(waits, (16, 25, 16)), bundles={"f": 11000})["f"]
    assert op.method.startswith("schedule")
    assert op.cycles == pytest.approx(16 * 25 * 16 * 11000, rel=0.08)


@pytest.mark.parametrize("chip", list(tpu.CHIPS))
def test_no_product_is_faster_than_the_chip(chip):
    for large, dtype in ((LARGE, "bfloat16"), (LARGE.replace("bf16", "s8"), "int8")):
        lines = [line.replace(LARGE, large) for line in product(1000, (16, 25, 16))]
        op = costs(lines, chip, bundles={"f": 1})["f"]
        least = 2 * 16384**3 / tpu.CHIPS[chip].peak(dtype)
        assert op.model_cycles / tpu.CHIPS[chip].clock_hz == pytest.approx(least)


def test_what_the_windows_of_a_product_fetch_again_counts_again():
    moved = lambda *bounds: costs(product(1000, bounds))["f"].hbm_bytes / SIZE
    assert moved(1, 1, 1) == 3  # each array once
    assert moved(4, 1, 1) == 3  # the rows stay, the columns pass by
    assert moved(4, 2, 1) == 4 + 1 + 1 and moved(4, 2, 8) == 4 + 2 + 1


@pytest.mark.parametrize(("between", "share"), [("", 1 / 128), ("copy", 1 / 128), ("negate", 1)])
def test_what_is_not_touched_of_an_array_does_not_count(between, share):
    """Nor does it where a fusion of its own, inside, copies the array for the slice; but a fusion
    that computes may read all of it."""
    nested = f"%c = {LARGE} fusion(%p), kind=kLoop, calls=%again"
    array, inner = ("%c", [nested]) if between else ("%p", [])
    part, index = "bf16[16384,128]{1,0:T(8,128)}", "s32[]{:T(128)}"
    body = [
        *fused("update", f"%p = {LARGE} parameter(0)", f"%u = {part} parameter(1)",
            f"%i = {index} parameter(2)", f"%v = {part} negate(%u)",
            f"ROOT %d = {LARGE} dynamic-update-slice(%p, %v, %i, %i)"),
        *fused("again", f"%q = {LARGE} parameter(0)", f"ROOT %k = {LARGE} {between or 'copy'}(%q)"),
        *fused("cut", f"%p = {LARGE} parameter(0)", f"%i = {index} parameter(1)", *inner,
            f"ROOT %d = {part} dynamic-slice({array}, %i, %i), dynamic_slice_sizes={{16384,128}}"),
        *entry(f"%x = {LARGE} parameter(0)", f"%u = {part} parameter(1)",
            f"%i = {index} parameter(2)",
            f"%f = {LARGE} fusion(%x, %u, %i), kind=kLoop, calls=%update, {config(9, 1)}",
            f"ROOT %g = {part} fusion(%f, %i), kind=kLoop, calls=%cut, {config(9, 1)}"),
    ]  # fmt: skip
    found = costs(body)
    scalar = 512  # an index takes a tile
    assert found["f"].hbm_bytes == pytest.approx(2 * SIZE / 128, abs=2 * scalar)
    assert found["g"].hbm_bytes == pytest.approx(SIZE * (share + 1 / 128), abs=2 * scalar)


def test_what_runs_beside_the_core_counts_once(monkeypatch):
    """Of a copy that XLA gives to the SparseCore, the start and the end move nothing themselves."""
    tiled, core = (
        LARGE.replace("(8", "(16"),
        'async_execution_thread="sparsecore", to_apply=%copies',
    )
    start = f"%s = (({LARGE}), {tiled}, u32[]{{:S(8)}}) call-start(%p), {core}"
    parameter = f"%p = {LARGE} parameter(0)"
    copies = fused("copies", parameter, f"ROOT %c = {tiled} copy(%p)")
    body = [*copies, *entry(parameter, start, f"ROOT %d = {tiled} call-done(%s)")]
    moved = lambda: [(op.name, op.hbm_bytes) for op in costs(body, "v7x").values()]
    assert moved() == [("c", 2 * SIZE)]
    monkeypatch.setattr(hlo, "_BEGUN", set())
    assert moved() == [("c", 2 * SIZE), ("d", 3 * SIZE)]


def test_a_slice_is_fetched_in_whole_tiles():
    """One lane of 128 takes all of them; whole tiles and other dimensions take no neighbours."""
    whole = "f32[4,1024,256]{2,1,0:T(8,128)}"

    def read(*sizes):
        limits = ", ".join(f"[0:{size}]" for size in sizes)
        part = f"f32[{','.join(map(str, sizes))}]{{2,1,0:T(8,128)S(1)}}"
        inside = f"%p = {whole} parameter(0)", f"%s = {part} slice(%p), slice={{{limits}}}"
        cut = fused("cut", *inside, f"ROOT %n = {part} negate(%s)")
        fusion = f"ROOT %f = {part} fusion(%x), kind=kLoop, calls=%cut, {config(9, 4)}"
        return costs([*cut, *entry(f"%x = {whole} parameter(0)", fusion)])["f"].hbm_bytes / 4096

    assert read(4, 1024, 256) == read(4, 1024, 129) == 1024
    assert read(4, 1024, 128) == read(4, 1024, 1) == read(2, 1024, 256) == 512
    assert read(1, 9, 1) == 2 and read(1, 8, 128) == 1


@pytest.mark.parametrize(
    ("second", "result"), [("8,4096,14336", "8192,14336"), ("8192,14336", "8,4096,14336")]
)
def test_a_kernel_of_xla_s_own_takes_its_products(second, result):
    """jax.lax.ragged_dot: [M, K], [G, K, N] → [M, N]; [M, K], [M, N] → the gradient [G, K, N]."""
    line = (
        f"ROOT %ragged-dot = f32[{result}]{{1,0}} custom-call(%t, %x, %w), "
        'custom_call_target="tpu_custom_call"'
    )
    lines = entry(
        "%t = s32[71]{0:T(128)} parameter(0)",  # 64 tiles, and 7 in which a group ends
        "%x = bf16[8192,4096]{1,0:T(8,128)} parameter(1)",
        f"%w = bf16[{second}]{{1,0}} parameter(2)",
        line,
    )
    flops = 2 * 8192 * 4096 * 14336
    uneven = (0, 1, 127, 129, 1024, 1024, 1024, 1024)  # 35 tiles have rows; in 5, one ends
    for groups, visits in [((), 71), ([(1024,) * 8], 64), ([(3, 4), uneven], 40)]:
        ops = Cost(compiled(lines), {}, {}, groups).operations()
        [op] = [op for op in ops if op.name == "ragged-dot"]
        assert op.kind == "kernel" and op.call is None and op.bound == "compute"
        whole = flops * visits / 64 / tpu.CHIPS["v5e"].bf16_flops
        assert op.model_cycles / 1.5e9 == pytest.approx(whole / RATES["v5e"].mosaic)


def test_together():
    assert together() == together(0, 0) == 0 and together(3, 0) == 3
    assert together(3, 2) == pytest.approx((3**4 + 2**4) ** 0.25) and together(3, 3) < 3.6


def test_a_regime_says_what_takes_most_of_the_time():
    def regime(*ops):
        made = [SimpleNamespace(cycles=c, kind=k, times=t, call=call) for c, k, t, call in ops]
        return bands.regime(SimpleNamespace(ops=made, bound="HBM"))

    kernel, product = (5, "kernel", 1, "a call"), (5, "matmul", 1, None)
    loop = (5, "fusion", 8, None)
    assert regime(kernel, (4, "fusion", 1, None)) == "Pallas, HBM"
    assert regime(product, (4, "fusion", 1, None)) == "XLA products, HBM"
    assert regime(product, (4, "matmul", 8, None)) == "XLA products, HBM"
    assert regime(loop, (4, "matmul", 1, None)) == "XLA loops, HBM"
    assert regime((5, "kernel", 1, None), (4, "fusion", 1, None)) == "XLA products, HBM"
    assert regime((4, "matmul", 1, None), (5, "fusion", 1, None)) == "XLA, HBM"


@pytest.mark.parametrize("dtype", ["f32", "s4"])
def test_a_profile_may_take_what_the_caller_allows(dtype, monkeypatch):
    """Of a dtype that is not sorted here, nothing is asked."""
    monkeypatch.setattr(profile, "_sort_alone", lambda *given: given)
    sort = SimpleNamespace(name="sort.1", opcode="sort", is_kernel=False)
    sort.attributes = "dimensions={1}, is_stable=true, to_apply=%before"
    sort.operands = Array(dtype, (8, 99)), Array("s32", (8, 99))
    module = SimpleNamespace(run=[sort, SimpleNamespace(**{**vars(sort), "name": "sort.2"})])
    program, made = SimpleNamespace(chip="v5e"), SimpleNamespace(module=module)
    notes = []
    steps = profile.Profile(program, made, {}, 300.0, 150.0, notes.append).run()
    if dtype == "s4":
        with pytest.raises(StopIteration) as end:
            next(steps)
        assert end.value.value == {}
        return
    asked = next(steps)
    assert asked.timeout == 150.0 and asked.purposes == ("profile",)
    assert asked.programs == [((((8, 99), "float32"), ((8, 99), "int32")), 1, True, "v5e")]
    with pytest.raises(StopIteration):  # records leave out what says that it was late
        steps.send([TpuCompileError("timeout", f"the compiler {LATE} a sort")])
    assert len(notes) == 1 and LATE in notes[0]


@pytest.mark.libtpu
def test_a_gather_takes_its_rounds_one_after_another():
    """Rows of bfloat16 share their words in twos, so twice the bytes are fetched; 0.501 ms were
    measured of this lookup on a v5e, and a stream of as many bytes would take 0.3 ms."""

    def lookup(dtype):
        arguments = shape(128256, 4096, dtype=dtype), shape(8192, dtype=jnp.int32)
        estimate = tpu.estimate(lambda table, rows: table[rows], *arguments)
        (op,) = (op for op in estimate.ops if op.kind == "gather")
        return estimate, op

    estimate, op = lookup(jnp.bfloat16)
    rows = 8192 * 4096 * 2
    assert op.hbm_bytes == 2 * rows + rows and op.bound == "latency"
    assert estimate.seconds == pytest.approx(0.501e-3, rel=0.1)
    assert op.cycles > 1.3 * (op.floor_cycles + 0.1 * op.model_cycles)  # nothing overlaps
    _, wide = lookup(jnp.float32)
    assert wide.hbm_bytes == 2 * (2 * rows)  # a float32 has a word to itself


@pytest.mark.libtpu
def test_a_sort_has_one_price():
    """Beside a kernel and without one; a schedule alone does not show what its bundles wait for."""

    def ranks(scores):
        return jnp.argsort(-scores, stable=True)

    def both(scores):
        return add_vectors(ranks(scores).astype(jnp.float32), scores, interpret=False)

    scores = shape(1000, dtype=jnp.float32)
    programs = [export(program, scores, chip="v5e") for program in (ranks, both)]
    [alone], [beside] = (
        [op for op in made.ops if op.kind == "sort"] for made in estimate_all(programs)
    )
    assert alone.model_cycles == beside.model_cycles > 0
    assert alone.method == beside.method == "static profile"
