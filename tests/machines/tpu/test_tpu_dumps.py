"""The readers of what the compiler writes, on recorded files."""

from pathlib import Path

import numpy as np
import pytest

from kernels.machines.compat import libtpu
from kernels.machines.compat.libtpu import Bundle
from kernels.machines.hlo import Array, arrays, listing, parse
from kernels.machines.tpu import scheduler

DATA = Path(__file__).with_name("data")


@pytest.fixture(scope="module")
def dump():
    """What the compiler wrote of an addition, the first, the last and some bundles between."""
    [dump] = libtpu.dumps(DATA / "dumps")
    return dump


def test_bundles_and_their_utilisation(dump):
    assert dump.kernel == "add_vectors.1" and len(dump.bundles) == len(dump.used) == 26
    assert [b.address for b in dump.bundles] == sorted(b.address for b in dump.bundles)
    assert {b.mark for b in dump.bundles} >= {"LB", "PF"}
    assert dump.bundles[0].depth == 0 and max(b.depth for b in dump.bundles) >= 1
    assert any("dma.hbm_to_vmem" in o for b in dump.bundles for o in b.operations)
    assert all(o and o != "{" for b in dump.bundles for o in b.operations)
    assert dump.slots[0] == "MXU" and dump.slots[-1] == "SALU"
    assert dump.capacity.tolist() == [4, 3, 4, 2, 1, 3, 3, 1, 1, 2]
    assert (dump.used <= dump.capacity).all()
    adds = sum("vadd" in o for b in dump.bundles for o in b.operations)
    assert 0 < adds <= dump.used[:, dump.slots.index("VALU")].sum()


FETCH = """  %4 = dma.hbm_to_vmem [thread:$0]  /*hbm=*/%s1, /*size_in_granules=*/512 /*
base_bounds: (16032, 32, 4)
window_bounds: (1, 32, 1)
iteration_bounds: (1)
element_size_in_bytes: 512 */"""
WRITE = FETCH.replace("hbm_to_vmem", "vmem_to_hbm").replace("(1, 32, 1)", "(2, 32)")


def gather(rows=2, wait=True):
    """A loop that fetches rows, works for three bundles, and writes a block."""
    waits = ["%5 = dma.done.wait [#allocation3], 1024"] if wait else []
    body = [*[FETCH] * rows, *waits, "vst", "vst", "vst", WRITE, "%6 = dma.done.wait %s2"]
    lines = ["   0   :  { nop }", *(f" {hex(i + 1)}   : > {{ {o} }}" for i, o in enumerate(body))]
    return "\n".join([*lines, " 0x99   :  { nop }"])


def test_a_gathers_round():
    one = libtpu.by_hand(libtpu.read_bundles(gather()))
    assert (one.fetched, one.written) == (2 * 32 * 512, 2 * 32 * 512)
    assert (one.asking, one.working) == (2, 6)
    many = libtpu.by_hand(libtpu.read_bundles(gather(rows=128)))
    assert many.fetched == 64 * one.fetched and many.asking == 128
    assert many.working == one.working
    plain = libtpu.by_hand(libtpu.read_bundles(gather(wait=False)))
    assert plain.asking + plain.working == one.asking + one.working - 1


def test_what_fetches_no_rows_is_no_gather():
    assert libtpu.by_hand(()) is None
    assert libtpu.by_hand(libtpu.read_bundles(gather(rows=1))) is None
    assert libtpu.by_hand(libtpu.read_bundles(gather().replace("vmem_to_hbm", "other"))) is None


@pytest.mark.parametrize("text", ["", "nothing here", "A, B\n", "A, B\n1 2 3\n", "\x00\x01"])
def test_unknown_formats_give_nothing(text, tmp_path):
    assert libtpu.read_utilisation(text) == ((), None, None)
    assert libtpu.read_bundles(text) == ()
    (tmp_path / "1-kernel-00-final_bundles.txt").write_text(text)
    assert list(libtpu.dumps(tmp_path)) == list(libtpu.dumps(tmp_path / "none")) == []


def test_flags():
    env = libtpu.environment("DIR", ("schedule", "profile"))
    assert env["LIBTPU_INIT_ARGS"].count("DIR") == 2
    without = libtpu.environment("DIR", ("profile",), {"xla_jf_dump_static_llo_profile_to"})
    assert without["LIBTPU_INIT_ARGS"] == ""
    assert libtpu.lost("profile", {"xla_jf_dump_static_llo_profile_to"})
    assert not libtpu.lost("schedule", {"xla_jf_dump_llo_pass_label_regex"})
    said = "ERROR: Unknown command line flag 'xla_jf_dump_bogus'. Did you mean: xla_jf_dump_to ?"
    assert libtpu.unknown_flag(said) == "xla_jf_dump_bogus"
    assert libtpu.unknown_flag("all is well") is None


def test_profile_abort():
    text = "F1 llo_dumper.cc:1585] Static LLO profiling of matmul.1 failed: INVALID: no."
    assert "INVALID" in libtpu.profile_abort(text)
    text = "Unsupported DMA direction for latency modeling: dma-general"
    assert "dma-general" in libtpu.profile_abort(text) and libtpu.profile_abort("Killed") is None


def test_a_libtpu_that_aborts_on_a_chip_is_not_asked_for_a_profile():
    assert libtpu.profiles("v5e", "0.0.42.1") and libtpu.profiles("v5e", "unknown")
    assert libtpu.profiles("v7x", "0.0.50.1") and libtpu.profiles("v7x", "0.1.0")
    assert not libtpu.profiles("v7x", "0.0.42.1") and not libtpu.profiles("v7x", "unknown")


def test_arrays():
    [array] = arrays("bf16[1024,256,4]{1,2,0:T(4,128)(2,1)S(1)}")
    assert array == Array("bf16", (1024, 256, 4), (1, 2, 0), ((4, 128), (2, 1)), 1)
    assert str(array) == "bf16[1024,256,4]{1,2,0:T(4,128)(2,1)}"
    assert array.bytes == 1024 * 256 * 4 * 2
    [padded] = arrays("f32[1024,256,4]{2,1,0:T(8,128)}")
    assert padded.bytes == 1024 * 256 * 128 * 4  # four lanes of 128 are used
    assert [a.shape for a in arrays("(f32[], u32[3]{0:T(128)})")] == [(), (3,)]
    assert [a.bytes for a in arrays("pred[7]{0} s4[8,128]{1,0:T(8,128)}")] == [7, 8 * 128 // 2]


def test_hlo():
    module = parse((DATA / "program.hlo.txt").read_text())
    run = {i.name: i for i in module.run}
    kernel = run["matmul.1"]
    assert kernel.is_kernel and kernel.profiled_cycles > 0
    assert "pallas_call" in kernel.origin
    assert [a.shape for a in kernel.operands] == [(256, 256)] * 2
    assert module.only_moves(run["copy.1"])
    assert run["fusion.8"].times == 7 and run["fusion.8"].counted  # the scan's length
    assert module.multiplies(run["fusion.8"])
    assert kernel.hbm_bytes == 0  # XLA put all of it into VMEM
    assert run["copy-start"].opcode == "copy-start"


def test_windows_of_xlas_own_matmul():
    run = {i.name: i for i in parse((DATA / "matmul.hlo.txt").read_text()).run}
    # 4096 × 128 of y and 1368 × 128 of z; x is in VMEM already.
    assert run["z"].window_bytes == 2 * (4096 * 128 + 171 * 8 * 128)
    assert run["copy-start"].across_programs and not run["z"].across_programs
    assert run["copy-done"].window_bytes == 0


@pytest.mark.parametrize("end", ["}", ',xla_allow_dce_side_effecting_op="true"}'])
def test_an_instruction_goes_over_several_lines(end):
    """Where a kernel has metadata, as those of splash attention and of rings have."""
    text = (DATA / "metadata.hlo.txt").read_text().replace("END", end)
    module = parse(text)
    assert [i.name for i in module.run] == ["k.1", "n"]
    assert module.run[0].origin == "jit(f)/k"
    assert listing(text).splitlines()[2] == "  %k.1 = f32[8]{0} custom-call(%p)"


def branching(jumps=(), lands=(), products=(), slots=("MXU",)):
    """60 bundles in a loop, with jumps over branches and where they land, some with products."""
    bundles = tuple(
        Bundle(i, "PF" if i in lands else "", 1, ("sbr.rel",) * (i in jumps)) for i in range(60)
    )
    busy = np.zeros((60, len(slots)), int)
    busy[list(products), 0] = 1
    return scheduler.KernelSchedule("k", bundles, slots, np.ones(len(slots), int), busy, None)


def test_a_step_takes_one_branch():
    """Bundles as a kernel of three pl.when has them, one of them with another inside."""
    kernel = branching((3, 14, 16, 50), (13, 20, 44, 55))
    assert kernel.loop_bundles == 60 and kernel.step_bundles == 60 - 10 - 30 - 5 + 30
    assert branching().step_bundles == branching().loop_bundles == 60


def test_branches_with_products_are_counted_whole():
    """A pl.when with another inside and a product beside it, and one without products."""
    branches = (3, 14, 16), (13, 20, 44)
    assert branching(*branches, products=(30,)).multiplying == (30,)
    assert branching(*branches, products=(5,), slots=("VPU",)).multiplying == ()
    # As in splash attention: a condition around a start, two bodies of which one runs, an end.
    branches = (2, 5, 10, 31), (9, 30, 51, 58)
    assert branching(*branches, products=(20, 40)).multiplying == (20, 20)
    assert branching(*branches, products=(20, 40, 55)).multiplying == (56,)  # one beside them
