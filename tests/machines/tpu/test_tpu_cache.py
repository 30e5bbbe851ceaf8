"""What the TPU compiler made is kept, and never believed of another program."""

import numpy as np
import pytest
from pallas_samples import blockwise

from kernels.machines import cache
from kernels.machines.tpu import TpuCompileError, pool
from kernels.machines.tpu.export import export

pytestmark = pytest.mark.libtpu


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """The programs that a compiler was asked for."""
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    programs = []
    submit = pool._Pool._submit

    def submitted(self, compiler):
        programs.append(self.programs[self.pending[0]].name)
        submit(self, compiler)

    monkeypatch.setattr(pool._Pool, "_submit", submitted)
    return programs


def scaled(factor=2, rows=64, block=8, line=0, **options):
    """A kernel called mine, exported; `line` is that of its file where it is written."""
    source = f"def body(x_ref, o_ref):\n    o_ref[...] = {factor} * x_ref[...]"
    exec(compile("\n" * line + source, f"{line}.py", "exec"), space := {})
    body = space["body"]
    call, array = blockwise((rows, 1024), (block, 1024), body=body)
    return export(call, array, name="mine", **options)


def test_a_program_is_compiled_once(sent):
    first = pool.compile_program(scaled(), purposes=("schedule",))
    again = pool.compile_program(scaled(), purposes=("schedule",))
    assert sent == ["mine"] and again == first and len(again.dumps) == len(first.dumps) == 1
    assert pool.compile_program(scaled(line=9), purposes=("schedule",)) == first  # moved
    pool.compile_program(scaled())  # for which the compiler dumps nothing
    for other in scaled(3), scaled(rows=128), scaled(chip="v6e"):
        assert pool.compile_program(other) != first
    assert sent == ["mine"] * 5


def test_a_profile_that_gives_up_is_asked_once(sent):
    program = export(lambda x, i: x[i], np.arange(4096), np.full(64, 1))
    for _ in range(2):
        with pytest.raises(TpuCompileError, match="gave up on"):
            pool.compile_program(program, purposes=("profile",))
    assert len(sent) == 1


def test_a_wrong_kernel_is_refused_whatever_is_kept_of_a_right_one(sent, tmp_path, monkeypatch):
    """One of the same name, where somebody put the right one's answer in the place of its own."""
    right, wrong = scaled(), scaled(rows=1 << 15, block=1 << 13)
    kept, keys = pool.compile_program(right), []
    key = pool._Pool._key
    monkeypatch.setattr(pool._Pool, "_key", lambda *which: keys.append(key(*which)) or keys[-1])
    with pytest.raises(TpuCompileError, match="of VMEM"):
        pool.compile_program(wrong)
    [passed] = (tmp_path / "tpu").iterdir()
    (tmp_path / "tpu" / keys[0]).write_bytes(passed.read_bytes())
    with pytest.warns(UserWarning, match="is made anew"), pytest.raises(TpuCompileError):
        pool.compile_program(wrong)
    assert sent == ["mine"] * 3 and pool.compile_program(right) == kept


def test_what_decides_on_an_answer_is_in_its_key(sent, monkeypatch):
    pool.compile_program(scaled())
    monkeypatch.setattr(pool, "MAKERS", pool.MAKERS[:-1])
    pool.compile_program(scaled())
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "")  # is replaced, and decides on nothing
    pool.compile_program(scaled())
    monkeypatch.setenv("TPU_MORE", "1")
    pool.compile_program(scaled())
    assert sent == ["mine"] * 3
