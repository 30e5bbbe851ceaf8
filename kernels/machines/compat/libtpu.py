"""All that the TPU compiler does without documenting it: flags, dump files, figures in its HLO.

Nothing outside this module knows a flag's name or a dump's format. A libtpu version may drop or
change any of them; each reader here then returns nothing, and the callers say what they fall back
to. What is written down here was seen with libtpu 0.0.42.1.
"""

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

# The compiler writes what a purpose asks for into a folder; {} stands for it.
FLAGS = {
    "schedule": (
        "xla_jf_dump_to={}",
        "xla_jf_dump_llo_text=true",
        # Only the passes that are read here: 1 MB instead of 40 MB a kernel.
        "xla_jf_dump_llo_pass_label_regex=final_",
    ),
    "profile": ("xla_jf_dump_static_llo_profile_to={}",),
}
# A purpose is lost without these; the other flags only make it cheaper.
NEEDED = {
    "schedule": ("xla_jf_dump_to", "xla_jf_dump_llo_text"),
    "profile": ("xla_jf_dump_static_llo_profile_to",),
}

# The compiler's own model of one DMA between HBM and VMEM, as its static profile charges it:
# chip → cycles before the first byte, bytes a cycle after it. It knows no contention. A v7x's are
# of libtpu 0.0.50.1, whose profile is the first seen to know that chip: an earlier one aborts.
DMA_MODEL = {
    "v5e": (587.0, 982.0),
    "v6e": (299.0, 1551.0),
    "v5p": (364.0, 2500.0),
    "v7x": (374.0, 3376.0),
}
_PROFILED_SINCE = {"v7x": (0, 0, 50)}

_UNKNOWN_FLAG = re.compile(r"Unknown command line flag '(\w+)'")
_PROFILE_ABORT = re.compile(
    r"Static LLO profiling of \S+ failed: (.*)|(Unsupported DMA direction for latency model\S*.*)"
)


def names(purposes: Collection[str]) -> set[str]:
    """The flags that serve `purposes`, without what they are set to."""
    return {flag.split("=")[0] for purpose in purposes for flag in FLAGS[purpose]}


def environment(
    folder: Path, purposes: Collection[str], dropped: Collection[str] = ()
) -> dict[str, str]:
    """The variables that make libtpu compile without a TPU and dump for `purposes`, of "schedule"
    and "profile", into a folder that exists; `dropped` are flags that this libtpu has not."""
    flags = [
        "--" + flag.format(folder)
        for purpose in purposes
        for flag in FLAGS[purpose]
        if flag.split("=")[0] not in dropped
    ]
    return {
        "LIBTPU_INIT_ARGS": " ".join(flags),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",  # no TPU VM's metadata server to ask
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # two children may compile at the same time
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "TPU_LOG_DIR": "disabled",  # each child would leave log files in /tmp/tpu_logs
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # the reader's own is not for these
    }


def lost(purpose: str, dropped: Collection[str]) -> str | None:
    """The dropped flag without which `purpose` cannot be served, or None."""
    return next((flag for flag in NEEDED[purpose] if flag in dropped), None)


def profiles(chip: str, version: str) -> bool:
    """Whether the static profile of a libtpu of that version knows a chip."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    return numbers >= _PROFILED_SINCE.get(chip, ())


def unknown_flag(stderr: str) -> str | None:
    """The flag that libtpu refused to start with, or None."""
    refused = _UNKNOWN_FLAG.search(stderr)
    return refused[1] if refused else None


def profile_abort(stderr: str) -> str | None:
    """Why the static profile aborted the compiler, or None where it was not the profile."""
    said = _PROFILE_ABORT.search(stderr)
    return (said[1] or said[2]).strip() if said else None


def profiled_cycles(backend_config: dict) -> int | None:
    """The static profile's cycles in an HLO instruction's backend_config; None where it has none.
    The profile gives 0 for a DMA that it cannot follow, which is none too."""
    cycles = int(backend_config.get("bundle_analysis_data", {}).get("estimated_cycles", 0))
    return cycles if cycles > 0 else None


def classic_cycles(backend_config: object) -> int | None:
    """XLA's own estimated_cycles in a backend_config, wherever it stands; None without one."""
    if isinstance(backend_config, dict):
        for key, value in backend_config.items():
            if key == "bundle_analysis_data":
                continue
            if key == "estimated_cycles" and int(value) > 0:
                return int(value)
            if (cycles := classic_cycles(value)) is not None:
                return cycles
    return None


def windows(backend_config: dict) -> dict[str, int]:
    """Elements of the blocks that XLA's matmul takes at a time: of its left operand, "input", its
    right one, "kernel", and its "output"; empty where the backend_config does not say. It counts in
    register tiles of 8 × 128, whatever the dtype."""
    config = backend_config.get("window_config", {})
    elements = {}
    for name in ("input", "kernel", "output"):
        bounds = [int(b) for b in config.get(f"{name}_window_bounds", ())]
        if len(bounds) == 2:
            elements[name] = bounds[0] * 8 * bounds[1] * 128
    return elements


def bounds(backend_config: dict) -> tuple[int, ...]:
    """How many windows XLA's own fusion cuts its arrays into, a number for each of its loops. Of a
    plain matmul: columns of the result, rows of it, and what is summed; () where it does not say.
    """
    counts = backend_config.get("window_config", {}).get("iteration_bounds", ())
    return tuple(max(int(b), 1) for b in counts)


def shared(backend_config: dict) -> bool:
    """Whether the cores of a chip share the windows of XLA's own fusion."""
    return bool(backend_config.get("megacore_config", {}).get("megacore_split_dim"))


def has_cost(backend_config: dict) -> bool:
    """Whether a kernel's backend_config has the cost estimate that its author gave."""
    return "cost_estimate" in backend_config.get("custom_call_config", {})


def scoped_vmem_bytes(backend_config: dict) -> int | None:
    """Bytes of VMEM that the compiler laid out for one instruction; None where it does not say."""
    used = backend_config.get("used_scoped_memory_configs", ())
    sizes = [int(u.get("size", 0)) for u in used if str(u.get("memory_space")) == "1"]
    return sum(sizes) if sizes else None


@dataclass(frozen=True)
class Bundle:
    """One VLIW instruction bundle: what the units of the core do in the same cycle."""

    address: int  # its place in the program
    # LH loop header, LB first bundle of a loop body, LE loop exit, PB and PF predicated body and
    # its fallthrough, CT another target of a jump, or "".
    mark: str
    depth: int  # how many loops it stands in
    operations: tuple[str, ...] = field(repr=False)  # one text each


@dataclass(frozen=True)
class ByHand:
    """A round of a loop that copies rows one by one, waits for all of them, and writes a block."""

    # Bytes of a round.
    fetched: int
    written: int
    asking: int  # bundles from its first copy until it waits for the last
    working: int  # bundles from there until the round ends


def by_hand(bundles: Collection[Bundle]) -> ByHand | None:
    """Of a gather by XLA, what a round of its loop does; None of a program that is built otherwise.
    It is read off the descriptions of the copies: an element's bytes, and how many of them a window
    holds. A row of a tiled array is fetched with those that share its words."""
    inside = [bundle for bundle in bundles if bundle.depth]
    moved: dict[str, list[tuple[int, int]]] = {"hbm_to_vmem": [], "vmem_to_hbm": []}
    waits = []
    for place, bundle in enumerate(inside):
        for operation in bundle.operations:
            if copied := _COPY.search(operation):
                size = math.prod(int(n) for n in copied[2].split(",")) * int(copied[3])
                moved[copied[1]].append((place, size))
            elif "dma.done.wait" in operation:
                waits.append(place)
    fetched, written = moved["hbm_to_vmem"], moved["vmem_to_hbm"]
    if len(fetched) < 2 or not written:
        return None
    first, last = fetched[0][0], fetched[-1][0]
    waited = next((place for place in waits if place >= last), last)
    return ByHand(
        sum(size for _, size in fetched),
        sum(size for _, size in written),
        waited - first,
        len(inside) - (waited - first),
    )


# A copy between HBM and VMEM, its window's sizes, and the bytes of one element of it.
_COPY = re.compile(
    r"dma\.(hbm_to_vmem|vmem_to_hbm) .*?window_bounds: \(([\d, ]+)\)"
    r".*?element_size_in_bytes: (\d+)",
    re.S,
)


@dataclass(frozen=True)
class Dump:
    """What the compiler wrote of one computation."""

    kernel: str  # the computation's name
    bundles: tuple[Bundle, ...] = ()  # its program, in order
    slots: tuple[str, ...] = ()  # names of the units
    capacity: np.ndarray | None = None  # int [slots], operations of each a bundle
    used: np.ndarray | None = None  # int [bundles, slots], what each bundle uses of them


_FILE = re.compile(r"\d+-(?P<kernel>.+)-\d+-(?P<label>[a-z].*)\.txt$", re.S)
_UTILISATION = "final_hlo-static-per-bundle-utilization"
_BUNDLES = "final_bundles"


def dumps(folder: Path) -> Iterator[Dump]:
    """Every computation that the compiler wrote its final schedule of into `folder`."""
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("*.txt")) if folder.is_dir() else ():
        named = _FILE.match(path.name)
        # TLP and the <late …> parts are the frame around the program's own computations.
        if named and named["kernel"] != "TLP" and not named["kernel"].startswith("<"):
            files.setdefault(named["kernel"], {})[named["label"]] = path
    for kernel, labels in files.items():
        slots, capacity, used = read_utilisation(_text(labels.get(_UTILISATION)))
        bundles = read_bundles(_text(labels.get(_BUNDLES)))
        if slots or bundles:
            yield Dump(kernel, bundles, slots, capacity, used)


def _text(path: Path | None) -> str:
    return path.read_text(errors="replace") if path else ""


def read_utilisation(text: str) -> tuple[tuple[str, ...], np.ndarray | None, np.ndarray | None]:
    """Slot names, capacity and use: a line of names, one of numbers, then a row for each bundle."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    names = next((i for i, line in enumerate(lines) if "," in line), None)
    if names is None:
        return (), None, None
    slots = tuple(name.strip() for name in lines[names].split(","))
    numbers = (line.split() for line in lines[names + 1 :] if re.fullmatch(r"[\d\s]+", line))
    rows = [list(map(int, row)) for row in numbers if len(row) == len(slots)]
    if not rows:
        return (), None, None
    table = np.array(rows, np.int32)
    return slots, table[0], table[1:]


# "  0x7 LB: >> { operation  ;;  operation } /* remark */"; each > is a loop around the bundle.
_BUNDLE = re.compile(r"^\s*(0x[0-9a-f]+|0)\s+(?:([A-Z]{2})\s*)?:\s*([>\s]*)\{(.*)$")


def read_bundles(text: str) -> tuple[Bundle, ...]:
    """The bundles of a final_bundles dump, in the order of their addresses."""
    bundles: list[Bundle] = []
    body: list[str] = []
    head: tuple[int, str, int] | None = None

    def close() -> None:
        if head:
            inside = "\n".join(body).rpartition("}")[0]
            operations = (" ".join(o.split()) for o in inside.split(";;"))
            bundles.append(Bundle(*head, tuple(o for o in operations if o)))

    for line in text.splitlines():
        if matched := _BUNDLE.match(line):
            close()
            head = (int(matched[1], 16), matched[2] or "", matched[3].count(">"))
            body = [matched[4]]
        elif head:
            body.append(line)  # a DMA's description runs over several lines
    close()
    return tuple(bundles)
