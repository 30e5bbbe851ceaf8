"""XLA's compiler for NVIDIA's GPUs, on a machine without one: plugin, options, dumps, tables.

Private: `jax._src.lib.xla_client` (a plugin loaded by path), the methods of a topology, XLA's
options, the names and the text of what it dumps, and that there are tables of times in it. Seen in
JAX 0.10.2 and 0.12.0.1, whose measurements of an H100 differ. An option
that is gone is refused by name when a program is compiled; a dump that is named otherwise is not
read.
"""

import contextlib
import importlib
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from kernels.machines.compat import changed

# Custom calls in which Pallas hands a kernel over; jax.export wants to be told that they may.
TRITON, MOSAIC = "__gpu$xla.gpu.triton", "mosaic_gpu_v2"


def target(chip: Any) -> str:
    """XLA's description of a GpuChip, a text proto: as xla_gpu.txt, all of it published figures."""
    features = "ACCELERATED_FEATURES" if chip.capability[0] >= 9 else "NONE"
    form = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    return form.format(chip, features=features, clock=chip.clock_hz / 1e9)


class Plugin:
    """XLA's plugin, loaded by its path, so that JAX does not know of it."""

    def __init__(self, path: str) -> None:
        """Load the library."""
        from jax._src.lib import xla_client

        self._client = xla_client
        with _silent():  # it says that there is no CUDA runtime
            self._api = xla_client.load_pjrt_plugin_dynamically("cuda", path)
        xla_client.initialize_pjrt_plugin("cuda")

    def devices(self, spec: str, count: int) -> Sequence[Any]:
        """So many devices to compile for, side by side in a machine, as `target` describes them."""
        from jax.experimental import topologies

        topology: Any = self._client.make_c_api_device_topology(
            self._api, "gpu", target_config=spec, topology=f"1x1x{count}"
        )
        return topologies.TopologyDescription(topology._make_compile_only_devices()).devices


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def known(device_kind: str, capability: tuple[int, int]) -> Iterator[None]:
    """Within it, Triton's side of Pallas knows what a GPU can do that JAX has no name for.

    Since JAX 0.12 it asks by the device's kind, and of one that is not in its list the GPU in the
    machine. Private: `_get_device_arch_name` of jax._src.pallas.triton.gpu_info.
    """
    try:
        module: Any = importlib.import_module("jax._src.pallas.triton.gpu_info")
        before = module._get_device_arch_name
    except (ImportError, AttributeError):  # before 0.12
        yield
        return

    def arch_name(kind: str) -> str:
        return ".".join(map(str, capability)) if kind == device_kind else before(kind)

    with mock.patch.object(module, "_get_device_arch_name", arch_name):
        yield


def exportable() -> list[Any]:
    """For jax.export's disabled_checks: both ways in which a Pallas kernel travels."""
    import jax

    return [jax.export.DisabledSafetyCheck.custom_call(name) for name in (TRITON, MOSAIC)]


# --- options --------------------------------------------------------------------------------------


def gemm(form: str, tile: Mapping[str, int]) -> dict[str, Any]:
    """The options that make XLA take one form of a matrix product: "library", "triton" with a tile
    (block_m, block_n, block_k, num_stages, num_warps, split_k), or "emitted"."""
    if form == "triton":
        text = " ".join(f"{name}: {value}" for name, value in tile.items())
        return {"xla_gpu_override_gemm_autotuner": f"{text} num_ctas: 1"}
    # What is smaller than the threshold, XLA writes itself.
    own = {"xla_gpu_gemm_rewrite_size_threshold": 1 << 60} if form == "emitted" else {}
    return {"xla_gpu_enable_triton_gemm": False, **own}


def dumping(folder: Path, passes: bool) -> dict[str, Any]:
    """The options that make XLA write what it does, or what each pass does too, into a folder."""
    options: dict[str, Any] = {"xla_dump_to": str(folder), "xla_dump_disable_metadata": True}
    options["xla_dump_emitter_re"] = ".*"  # since JAX 0.12, no LLVM IR and PTX without it
    return options | ({"xla_dump_hlo_pass_re": ".*"} if passes else {})


# --- dumps ----------------------------------------------------------------------------------------


class XlaDump:
    """What XLA wrote of one program into a folder."""

    def __init__(self, folder: Path) -> None:
        # The caller's program is the last: XLA compiles small modules of its own before.
        whole = sorted(folder.glob("*.thunk_sequence.txt"))
        if not whole:
            changed("jaxlib", "XLA dumps no sequence of thunks: nothing to show of a program")
        self.folder = folder
        self.module = whole[-1].name.removesuffix(".thunk_sequence.txt") if whole else "-"

    def _read(self, ending: str) -> dict[str, str]:
        """Name → text of the program's files with that ending, in the order of their names."""
        paths = sorted(self.folder.glob(f"{self.module}.{ending}"))
        return {path.name: path.read_text(encoding="utf-8", errors="replace") for path in paths}

    def text(self, ending: str) -> str:
        """The file whose name ends so after the module's; empty where there is none."""
        return next(iter(self._read(ending).values()), "")

    def passes(self) -> list[tuple[str, str, str, str]]:
        """Pipeline, name, text before and text after of each pass that changed the program."""
        changes = []
        before = ""
        named = re.compile(r"\.(\d{4})\.(.+?)\.after_(.+?)(?:\.before_.+)?\.txt$")
        for file, content in self._read("*.txt").items():
            if not (name := named.search(file)):
                continue
            after = plain(content)
            if before and after != before:
                pipeline, step = name[2], name[3]
                step = f"before {pipeline}" if step == "pipeline-start" else step
                changes.append((pipeline, step, before, after))
            before = after
        return changes

    def _numbered(self, ending: str, word: str) -> list[str]:
        """The files with a word in them, one for each kernel, in the order of their numbers."""
        numbered = [
            (int(number[1]), text)
            for name, text in self._read(f"*.{ending}").items()
            if (number := re.search(rf"\.(\d+)\.{re.escape(ending)}$", name)) and word in text
        ]
        return [text for _, text in sorted(numbered)]

    def assembly(self) -> list[str]:
        """The PTX of every kernel, in the order in which XLA made it."""
        return self._numbered("ptx", ".entry")

    def llvm(self) -> list[str]:
        """The optimised LLVM IR of every kernel that XLA emitted itself, in order."""
        return self._numbered("ir-with-opt.ll", "define")

    def triton(self) -> list[str]:
        """The TritonIR of every kernel that XLA has Triton write, before any pass of Triton's."""
        files = self._read("*.ttir.txt").items()
        return [text for name, text in files if "before_validation" not in name]


_NOISE = re.compile(
    r", metadata=\{[^{}]*\}|, frontend_attributes=\{(?:[^{}]|\{[^{}]*\})*\}"
    r"|, sharding=\{replicated\}"
)


def plain(text: str) -> str:
    """A module's HLO without what says where it came from, nor tables of files and lines."""
    text = _NOISE.sub("", text)
    text = re.sub(r"\n(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def brief(text: str) -> str:
    """A module's HLO without the backend's configuration, which is long."""
    return re.sub(r", backend_config=\{.*\}$", "", text, flags=re.M)


def defined(text: str) -> str:
    """The kernel that a piece of LLVM IR defines; empty where it defines none."""
    kernel = re.search(r"^define ptx_kernel void @(\w+)\(", text, re.M)
    return kernel[1] if kernel else ""


def mosaic(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """What Mosaic GPU wrote into the folder that MOSAIC_GPU_DUMP_TO named: for each kernel its PTX,
    and its grid, threads and shared_bytes where they are constants."""
    kernels = []
    for path in sorted(folder.glob("*.ptx"), key=lambda path: path.stat().st_mtime_ns):
        log = path.with_suffix(".mlir-passes.log")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        kernels.append((path.read_text(errors="replace"), _launch(lines)))
    return kernels


def _launch(lines: Sequence[str]) -> dict[str, Any]:
    """How the first pass of Mosaic GPU says that a kernel is launched."""
    constants: dict[str, int] = {}
    for line in lines:
        if constant := re.search(r"(%\w+) = arith\.constant (\d+) : ", line):
            constants[constant[1]] = int(constant[2])
        if "gpu.launch " not in line:
            continue
        grid, threads = (  # before them stand the blocks of a cluster, where there are clusters
            tuple(constants.get(name, 0) for name in re.findall(r"= (%\w+)", part))
            for part in re.findall(r" in \(([^)]*)\)", line)[-2:]
        )
        shared = re.search(r"dynamic_shared_memory_size (%\w+)", line)
        bytes_ = constants.get(shared[1], 0) if shared else 0
        return {"grid": grid, "threads": threads, "shared_bytes": bytes_}
    return {}


def graphs(sequence: str) -> list[tuple[str, ...]]:
    """The stretches of a program that are recorded as a CUDA graph, by the names of their steps."""
    recorded: list[list[str]] = []
    inside = -1  # columns that the steps of a graph are indented by, at least
    for line in sequence.splitlines():
        indent = len(line) - len(line.lstrip())
        if "kCommandBuffer" in line:
            recorded.append([])
            inside = indent
        elif line.strip() and inside >= 0:
            if indent <= inside:
                inside = -1
                continue
            recorded[-1] += [name or kind for kind, name, _ in thunks(line)]
    return [tuple(names) for names in recorded]


def lives(text: str) -> tuple[list[str], list[tuple[str, int, int]]]:
    """When each value of the program is alive: the instructions in the order in which they run; and
    of each value, whose name ends in {} where it is no part of a tuple, the first and the last
    place that it is alive at."""
    order = re.findall(r"^    \d+:(\S+)$", text.split("BufferLiveRange")[0], re.M)
    ranges = re.findall(r"^    (\S+\{[\d,]*\}):(\d+)-(\d+)$", text, re.M)
    return order, [(name, int(first), int(last)) for name, first, last in ranges]


def thunks(sequence: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The steps of a program: kind, name, and of a kernel its grid, threads and shared_bytes."""
    steps = []
    for line in sequence.splitlines():
        if not (step := re.match(r"\s*\d+: k(\w+)\s+\[[^\]]*\]\s*(.*)$", line)):
            continue
        launch = re.search(
            r"grid: \[([\d, ]+)\] threads: \[([\d, ]+)\]\s+shared_memory: (\d+)", step[2]
        )
        details: dict[str, Any] = {}
        if launch:
            details = {
                "grid": tuple(map(int, launch[1].split(","))),
                "threads": tuple(map(int, launch[2].split(","))),
                "shared_bytes": int(launch[3]),
            }
        name = step[2].split(" grid:")[0].strip()
        steps.append((step[1], name.removeprefix("k") if name == f"k{step[1]}" else name, details))
    return steps


def allocations(assignment: str) -> list[tuple[int, int, str, list[tuple[str, int, int, str]]]]:
    """XLA's plan of memory: for each allocation its number, its bytes, what it is, and its values:
    name, offset, bytes and shape."""
    plan: list[tuple[int, int, str, list[tuple[str, int, int, str]]]] = []
    for line in assignment.splitlines():
        if allocation := re.match(r"allocation (\d+): size (\d+), (?:page \d+, )?(.*?):?$", line):
            plan.append((int(allocation[1]), int(allocation[2]), allocation[3], []))
        value = re.match(r" value: <\d+ (\S+) @\d+> \(size=(\d+),offset=(\d+)\): (.*)$", line)
        if value and plan:
            plan[-1][3].append((value[1], int(value[3]), int(value[2]), value[4]))
        if line.startswith("Total bytes used"):
            break
    return plan


# XLA's names of the chips whose products its authors measured with cuBLAS (openxla/xla,
# service/gpu/model, under the Apache licence): tables in the plugin's own text.
MEASURED = {"h100": "sm_90", "b200": "sm_100_B200"}


def products(plugin: Path, dtype: str = "bf16") -> dict[tuple[str, int, int, int, int], float]:
    """Seconds of each measured product of two arrays of one dtype.

    Args:
        plugin: the library.
        dtype: XLA's name, of the operands and of the result.

    Returns:
        (chip, batch, m, n, k) → seconds; empty where there is no such table.
    """
    key = f"{dtype}x{dtype}->{dtype}"
    with open(plugin, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        place = whole.find(key.encode())
        if place < 0:
            return {}
        text = whole[whole.rfind(b"\0", 0, place) + 1 : whole.find(b"\0", place)].decode()
    names = {name: chip for chip, name in MEASURED.items()}
    seconds = {}
    for part in re.split(r'(?m)^\s{2,4}key: "(?=sm_)', text)[1:]:
        if (chip := names.get(part[: part.index('"')])) is None:
            continue
        entries = r"b: (\d+)\s+m: (\d+)\s+n: (\d+)\s+k: (\d+)((?:\s+flops \{[^}]*\})+)"
        for b, m, n, k, rates in re.findall(entries, part):
            rate = re.search(rf'key: "{re.escape(key)}" value: (\d+)', rates)
            if rate:
                sizes = int(b), int(m), int(n), int(k)
                flops = 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
                seconds[(chip, *sizes)] = flops / int(rate[1])
    return seconds
