"""GpSimd on a CPU: a custom operator run by emulated cores in a child process, and looked after."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines import checks, child
from kernels.machines.neuron.gpsimd import compiler
from kernels.machines.neuron.gpsimd.errors import GpSimdError, GpSimdFault

CORES = 8  # of a GpSimd engine
TCM_BYTES = 16 * 1024  # of a core's 64 KiB that an operator may take
MOST_CORES = 64
MOST_TCM_BYTES = 1 << 24
DTYPES = ("float32", "int32", "int8", "int64", "int16", "uint8")
MOST_DIMENSIONS, LONGEST_DIMENSION = 8, 65535  # of a tensor, by the reference guide
SECONDS = 60  # that a core may take


@dataclass(frozen=True)
class Traffic:
    """What one core moved.

    Args:
        core: its number.
        loads, loaded_bytes: transfers to TCM.
        stores, stored_bytes: transfers from it.
        tcm_bytes: the most that it held at a time.
    """

    core: int
    loads: int
    loaded_bytes: int
    stores: int
    stored_bytes: int
    tcm_bytes: int


@dataclass(frozen=True)
class Run:
    """What a run left behind.

    Args:
        result: the array; what no core wrote is NaN, or all bits set.
        written: how often each element was written, up to 255.
        writer: by which core last; 255 where none wrote it.
        traffic: of each core, by its number.
        findings: faults in the order in which they were met, the first of each kind by each
            core at each place of the code, and 64 at most; empty where checks were on,
            since the first one is raised then.
        printed: what the operator printed.
    """

    result: np.ndarray = field(repr=False)
    written: np.ndarray = field(repr=False)
    writer: np.ndarray = field(repr=False)
    traffic: tuple[Traffic, ...]
    findings: tuple[GpSimdFault, ...]
    printed: str


def run(
    sources: Sequence[Path | str],
    function: str,
    *arrays,
    cores: int = CORES,
    order: Sequence[int] | None = None,
    tcm_bytes: int = TCM_BYTES,
    checks: bool = True,
) -> Run:
    """Run the kernel `function` of a custom operator on emulated GpSimd cores.

    Each core is a process of its own: they share the result and nothing else, and a crash is a
    finding. What is caught: every load, store, memcpy, memset and memcmp of the operator that goes
    to TCM, byte by byte (beyond a buffer, never written, freed, null); every transfer and accessor
    beyond a tensor; elements of the result written twice, by one core and read by another, or
    never; TCM that is not freed. What is not: a wrong index into the operator's own stack or heap;
    a TCM index so wrong that it lands in another buffer, further away than the whole pool is large;
    what other functions of the C library read; inline assembly; alignment; the engine's own limits
    of stack and code; time.

    Raises ValueError for arguments that make no sense, GpSimdCompileError for C++ that does not
    compile, and kernels.optional.MissingPackage where there is no g++.

    Args:
        sources: the operator as AWS's build takes it, unchanged: the files of the kernel
            and that of the shape function with its NEURON_LIBRARY. A Path is a file, a str
            is C++ text.
        function: the kernel's name there, the last argument of m.def.
        arrays: its tensors, of one of DTYPES, of at most 8 dimensions of at most 65535.
        cores: 1 to 64; the machine has 8.
        order: the numbers of the cores in the order in which they take turns, ascending for
            None.
        tcm_bytes: the pool that each core has for itself.
        checks: whether the first finding is raised as GpSimdError. Without, the run goes on
            where it can: transfers are cut at the end of a tensor, and Run.findings tells.
    """
    tensors = _checked(arrays, cores, order, tcm_bytes)
    turns = list(range(cores)) if order is None else [int(core) for core in order]
    program = compiler.program(sources, function)
    with tempfile.TemporaryDirectory(prefix="gpsimd-") as folder:
        for number, array in enumerate(tensors):
            (Path(folder) / str(number)).write_bytes(array.tobytes())
        specs = [f"{a.dtype}:{','.join(map(str, a.shape))}" for a in tensors]
        command = [str(program), function, folder, str(tcm_bytes), "01"[checks], str(SECONDS)]
        # Whoever still runs at the end, the cores included, is ended.
        command += [",".join(map(str, turns)), *specs]
        done = child.run(command, seconds=SECONDS * (cores + 1))
        if done.status:  # the shape function or the loading of the library took it down
            said = f", {line}" if (line := child.last_line(done.stderr)) else ""
            words = f"the operator ended before any core ran: {child.how(done.status)}{said}"
            raise GpSimdError(GpSimdFault("crash", None, words))
        outcome = _read(Path(folder), program, done.stdout)
    if checks and outcome.findings:
        raise GpSimdError(outcome.findings[0])
    fatal = [f for f in outcome.findings if f.kind == "library"]
    if fatal:
        raise GpSimdError(fatal[0])
    return outcome


def _checked(
    arrays: Sequence[Any], cores: int, order: Sequence[int] | None, tcm_bytes: int
) -> list[np.ndarray]:
    checks.positive_int("cores", cores)
    if cores > MOST_CORES:
        checks.fail("cores", cores, f"at most {MOST_CORES}; the machine has {CORES}")
    checks.positive_int("tcm_bytes", tcm_bytes)
    if tcm_bytes > MOST_TCM_BYTES:
        checks.fail("tcm_bytes", tcm_bytes, f"at most {MOST_TCM_BYTES}; the machine has 16384")
    if order is not None and sorted(order) != list(range(cores)):
        checks.fail("order", list(order), f"each of 0 to {cores - 1} once")
    tensors = []
    for number, value in enumerate(arrays):
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        checks.one_of(f"arrays[{number}].dtype", str(array.dtype), DTYPES)
        if array.ndim > MOST_DIMENSIONS or max(array.shape, default=0) > LONGEST_DIMENSION:
            accepted = f"at most {MOST_DIMENSIONS} dimensions of at most {LONGEST_DIMENSION}"
            checks.fail(f"arrays[{number}].shape", array.shape, accepted)
        tensors.append(array)
    return tensors


def _read(folder: Path, program: Path, printed: str) -> Run:
    result, written, writer = np.empty(0), *np.empty((2, 0), np.uint8)
    traffic, findings = [], []
    for line in (folder / "report").read_text(errors="replace").splitlines():
        what, *words = line.split("\t")
        if what == "result":
            shape = [int(size) for size in words[1:]]
            result = np.fromfile(folder / "result", words[0]).reshape(shape)
            bytes_ = (np.fromfile(folder / n, np.uint8) for n in ("written", "writer"))
            written, writer = (array.reshape(shape) for array in bytes_)
        elif what == "core":
            traffic.append(Traffic(*map(int, words)))
        else:
            kind, core, code, text = words
            source = compiler.line_of(program, int(code)) if int(code) else None
            findings.append(GpSimdFault(kind, int(core) if int(core) >= 0 else None, text, source))
    return Run(result, written, writer - np.uint8(1), tuple(traffic), tuple(findings), printed)
