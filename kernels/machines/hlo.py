"""Read the HLO of a program, as traced or as compiled: its instructions, their bytes and cycles."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from kernels.machines.compat import libtpu

__all__ = ["listing", "parse"]
# Bits of an element, by HLO's names.
BITS = {
    "pred": 8,
    **{f"{kind}{bits}": bits for kind in "su" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    **{"bf16": 16, "c64": 64, "c128": 128},
}
# What NumPy and JAX call those of them that they sort.
DTYPES = {
    **{"pred": "bool", "bf16": "bfloat16"},
    **{
        f"{kind}{bits}": f"{word}{bits}"
        for kind, word in zip("suf", ("int", "uint", "float"), strict=True)
        for bits in (8, 16, 32)
        if (kind, bits) != ("f", 8)
    },
}
_ARRAY = re.compile(r"([a-z]+\d*\w*)\[([\d,]*)\](?:\{([^{}]*)\})?")


@dataclass(frozen=True)
class Array:
    """One array of HLO: dtype, shape, and the layout that the compiler gave it."""

    dtype: str
    shape: tuple[int, ...]
    layout: tuple[int, ...] = ()  # dimensions from the fastest to the slowest
    tiles: tuple[tuple[int, ...], ...] = ()  # of each level of tiling, such as ((8, 128), (2, 1))
    space: int = 0  # 0 is HBM, 1 VMEM

    @property
    def bytes(self) -> int:
        """Bytes in memory, the padding to whole tiles included."""
        sizes = [self.shape[i] for i in reversed(self.layout)] or list(self.shape)
        for i, step in enumerate(reversed(self.tiles[0] if self.tiles else ()), 1):
            if i <= len(sizes):
                sizes[-i] = -(-sizes[-i] // step) * step
        return self._in_bytes(sizes)

    @property
    def elements_bytes(self) -> int:
        """Bytes of its elements, without padding."""
        return self._in_bytes(self.shape)

    def _in_bytes(self, sizes: Sequence[int]) -> int:
        bits = BITS.get(self.dtype, 8 if self.dtype.startswith("f8") else 0)
        return math.prod(sizes) * bits // 8

    def __str__(self) -> str:
        order = ",".join(map(str, self.layout))
        tiles = "".join(f"({','.join(map(str, tile))})" for tile in self.tiles)
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{{{order}{tiles and ':T' + tiles}}}"


def arrays(text: str) -> tuple[Array, ...]:
    """Every array in the text of a shape; a tuple has several."""
    parsed = []
    for dtype, shape, layout in _ARRAY.findall(text):
        if dtype not in BITS and not dtype.startswith("f8"):
            continue
        order, _, rest = layout.partition(":")
        tiles = tuple(map(_numbers, re.findall(r"(?<=[T)])\(([\d,]+)\)", rest)))
        space = re.search(r"S\((\d+)\)", rest)
        place = int(space[1]) if space else 0
        parsed.append(Array(dtype, _numbers(shape), _numbers(order), tiles, place))
    return tuple(parsed)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n.strip().isdigit())


@dataclass(frozen=True)
class HloInstruction:
    """One HLO instruction, with the arrays it reads and writes."""

    name: str
    opcode: str
    results: tuple[Array, ...]
    operands: tuple[Array, ...]
    attributes: str = field(repr=False)
    called: tuple[str, ...] = ()
    value: str = ""  # of a constant, or a parameter's number
    times: int = 1  # that it runs, as the trip counts of the loops around it tell
    counted: bool = True  # False where one of them does not tell
    inputs: tuple[str, ...] = ()  # the names of its operands

    @cached_property
    def config(self) -> dict:
        """The backend_config, as far as it is JSON."""
        try:
            text = "{" + self.attributes.partition("backend_config={")[2]
            return json.JSONDecoder().raw_decode(text)[0]
        except ValueError:  # none is no JSON either
            return {}

    @property
    def origin(self) -> str:
        """The path of JAX operations behind it, such as jit(f)/dot_general."""
        path = re.search(r'op_name="([^"]*)"', self.attributes)
        return path[1] if path else ""

    @property
    def is_collective(self) -> bool:
        """Whether chips exchange data in it; of an asynchronous one, its start."""
        return self.opcode.removesuffix("-start") in COLLECTIVES

    @property
    def group_size(self) -> int:
        """How many chips take part in each group of a collective; 1 where it does not say."""
        text = self.attributes
        if groups := re.search(r"replica_groups=\{\{([\d,]*)\}", text):
            return len(groups[1].split(","))
        if groups := re.search(r"replica_groups=\[\d+,(\d+)\]<=", text):
            return int(groups[1])
        if groups := re.search(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}", text):
            sizes = dict(re.findall(r"'([^']+)'=(\d+)", groups[1]))
            return math.prod(int(sizes[axis]) for axis in re.findall(r"'([^']+)'", groups[2]))
        return 1

    def sent_within(self, step: HloInstruction) -> tuple[str, float]:
        """Name and bytes of one run of a collective, as Module.sent counts them; `step` is what the
        program runs: the collective itself, or the fusion that it stands in."""
        kind, share = self.opcode.removesuffix("-start"), 1 - 1 / self.group_size
        size = sum(a.elements_bytes for a in self.operands)
        if kind == "all-gather":
            return kind, size * (self.group_size - 1)
        if kind == "all-reduce" and step is not self:
            kept = sum(math.prod(a.shape) for a in step.results)
            if kept * self.group_size <= sum(math.prod(a.shape) for a in self.operands):
                return "reduce-scatter", size * share
        if kind in ("collective-permute", "collective-broadcast"):
            return kind, self.operands[0].elements_bytes
        return kind, size * share * (2 if kind == "all-reduce" else 1)

    @property
    def is_kernel(self) -> bool:
        """Whether it is a Pallas kernel."""
        return 'custom_call_target="tpu_custom_call"' in self.attributes

    @property
    def allocates(self) -> bool:
        """Whether it only names memory, and does nothing."""
        return 'custom_call_target="AllocateBuffer"' in self.attributes

    def grouped_flops(self, groups: Sequence[Sequence[int]] = ()) -> float:
        """Operations of a product of groups of rows, each with a matrix of its own, or of that
        matrix's gradient: jax.lax's ragged_dot, for which XLA brings a kernel; 0 for any other.

        It goes tile by tile, and once more over a tile in which a group ends. Of `groups`, the
        lists of integers that the program is given, one with as many as there are matrices is taken
        for the lengths of the groups. Without it, every group is taken to end within a tile: the
        lengths of the kernel's tables tell how many visits that makes.
        """
        shapes = [a.shape for a in self.operands]
        result = self.results[0].shape if len(self.results) == 1 else ()
        rows = next((s for s in shapes if len(s) == 2), ())
        matrices = next((s for s in (*shapes, result) if len(s) == 3), ())
        if not rows or not matrices or not result:
            return 0.0
        [m, k], [count, *sides] = rows, matrices
        if k not in sides or (result[0] != m and result != matrices):
            return 0.0
        tables = [a.shape[0] for a in self.operands if a.dtype == "s32" and len(a.shape) == 1]
        visits = max(tables, default=0)
        tiles = visits - count + 1
        if tiles <= 0:
            return 2.0 * m * k * result[-1]
        known = next((sizes for sizes in groups if len(sizes) == count and sum(sizes) <= m), None)
        if known is not None:
            ends = list(itertools.accumulate(map(int, known)))
            spans = [(start, end) for start, end in zip([0, *ends], ends) if end > start]
            visits = sum(-(-end * tiles // m) - start * tiles // m for start, end in spans)
        return 2.0 * m * k * result[-1] * visits / tiles

    @property
    def hbm_bytes(self) -> int:
        """Bytes of its operands and results that live in HBM, once each."""
        return sum(a.bytes for a in (*self.operands, *self.results) if a.space == 0)

    @property
    def across_programs(self) -> bool:
        """Whether the program before this one makes the copy, at its end: XLA's cross-program
        prefetch of an argument."""
        return "cross_program_prefetch_index=" in self.attributes

    @property
    def window_bytes(self) -> float:
        """Bytes of the blocks of HBM that XLA's own matmul takes at a time; 0 where unknown."""
        if len(self.operands) != 2 or len(self.results) != 1:
            return 0
        sizes = libtpu.windows(self.config)
        arrays = zip(("input", "kernel", "output"), (*self.operands, *self.results))
        return sum(
            min(1.0, sizes.get(name, 0) / math.prod(a.shape)) * a.bytes
            for name, a in arrays
            if a.space == 0
        )

    @property
    def fetches(self) -> tuple[int, ...]:
        """How often XLA's own matmul reads each of its two operands; () where it does not say. It
        goes over the windows of columns, then of rows, then of what is summed, the last fastest."""
        bounds = libtpu.bounds(self.config)
        if len(self.operands) != 2 or len(bounds) != 3:
            return ()
        columns, rows, summed = bounds
        return (columns if rows * summed > 1 else 1, rows if summed > 1 else 1)

    @property
    def iterations(self) -> int:
        """How often XLA's own fusion runs through its loop; 1 where it does not say."""
        return math.prod(libtpu.bounds(self.config))

    @property
    def shared(self) -> bool:
        """Whether the cores of a chip share XLA's own fusion."""
        return libtpu.shared(self.config)

    @property
    def classic_cycles(self) -> int | None:
        """XLA's own estimate for one run; None where XLA made none."""
        return libtpu.classic_cycles(self.config)

    @property
    def profiled_cycles(self) -> int | None:
        """The static profile's cycles for one run; None without a profile."""
        return libtpu.profiled_cycles(self.config)


# Instructions in which chips exchange data.
COLLECTIVES = {
    *("all-reduce", "all-gather", "all-to-all", "ragged-all-to-all"),
    *("reduce-scatter", "collective-permute", "collective-broadcast"),
}
# Instructions that cost nothing, or whose cost is that of what they call.
FREE = {
    *("parameter", "constant", "partition-id"),
    *("tuple", "get-tuple-element", "bitcast", "after-all"),
}
# What a fusion that only moves data is made of.
MOVING = FREE | {"copy", "transpose", "reshape", "broadcast", "convert", "copy-start", "copy-done"}
_CONTROL = {"while", "conditional", "call", "call-start", "async-start"}
_BEGUN = {"call-update", "call-done", "async-update", "async-done"}  # its start has counted all


@dataclass(frozen=True)
class Module:
    """An HLO module: its computations by name, each a list of instructions."""

    computations: dict[str, tuple[HloInstruction, ...]] = field(repr=False)
    entry: str  # the computation that the program begins with
    # Of each, the name of its result.
    roots: dict[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def run(self) -> list[HloInstruction]:
        """What the program executes: the entry computation, loops and calls unrolled into times. Of
        a conditional, the branch with the larger estimate counts."""
        return list(self._run(self.entry, 1, True))

    @property
    def collectives(self) -> list[HloInstruction]:
        """The exchanges between chips that the program executes, in order."""
        return [i for step in self.run for i in (step, *self.inside(step)) if i.is_collective]

    @property
    def sent(self) -> list[tuple[str, float]]:
        """What each chip sends to others, in order: the collective's name, and its bytes on a ring.

        On a ring of n, which no other way beats, an all-gather sends (n - 1) / n of its result; a
        reduce-scatter and an all-to-all as much of what each chip brings, and an all-reduce twice
        that. A TPU's program has its reduce-scatter as an all-reduce of which a fusion keeps a
        part. Padding is not counted.
        """
        return [
            (kind, sent * step.times)
            for step in self.run
            for inner in (step, *self.inside(step))
            if inner.is_collective
            for kind, sent in [inner.sent_within(step)]
        ]

    def _run(self, name: str, times: int, counted: bool) -> Iterator[HloInstruction]:
        for step in self.computations.get(name, ()):
            if step.opcode == "while":
                count = self.trips(step)
                if body := re.search(r"\bbody=%([^\s,]+)", step.attributes):
                    yield from self._run(body[1], times * (count or 1), counted and bool(count))
            elif step.opcode == "conditional":
                branches = [list(self._run(c, times, counted)) for c in step.called]
                cycles = lambda branch: sum((i.classic_cycles or 0) * i.times for i in branch)
                yield from max(branches, key=cycles, default=[])
            elif step.opcode in _CONTROL:
                for called in step.called:
                    yield from self._run(called, times, counted)
            elif step.opcode not in FREE | _BEGUN:
                yield replace(step, times=times, counted=counted)

    def trips(self, loop: HloInstruction) -> int | None:
        """How often a while loop runs; None where its text does not tell. XLA says it, or the
        condition is that of a scan: a counter, from a constant up, below one; XLA may unroll it."""
        if said := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(said[1])
        name = re.search(r"\bcondition=%([^\s,]+)", loop.attributes)
        inside = list(self._nested(name[1])) if name else []
        limits = {i.value for i in inside if i.opcode == "constant" and i.value.isdigit()}
        below = [i for i in inside if i.opcode == "compare" and "direction=LT" in i.attributes]
        if len(limits) != 1 or len(below) != 1:
            return None
        counters = [i for i in inside if "index=" in i.attributes and i.name in below[0].inputs]
        index = _INDEX.search(counters[0].attributes) if counters else None
        first = self._constant(loop.inputs[0], int(index[1])) if index else None
        body = re.search(r"\bbody=%([^\s,]+)", loop.attributes)
        if first is None or index is None or body is None:
            return None
        own = {i.name: i for i in self.computations[body[1]]}
        carried = own[self.roots[body[1]]]
        after = own.get(carried.inputs[int(index[1])]) if carried.opcode == "tuple" else None
        added = [self._constant(i) for i in after.inputs] if after and after.opcode == "add" else []
        return max(-((first - int(limits.pop())) // max(filter(None, added), default=1)), 0)

    def _constant(self, name: str, place: int = 0) -> int | None:
        """The constant that a value is, or the part of it at a place; through loops that only hand
        it on. None where it is none."""
        named = {c: {i.name: i for i in some} for c, some in self.computations.items()}
        where, own = next((c, some) for c, some in named.items() if name in some)
        value = own[name]
        if value.opcode == "constant":
            return int(value.value) if value.value.isdigit() else None
        if value.opcode == "tuple":
            return self._constant(value.inputs[place])
        if value.opcode == "get-tuple-element" and (index := _INDEX.search(value.attributes)):
            return self._constant(value.inputs[0], int(index[1]))
        if value.opcode in ("copy", "copy-done", "copy-start", "bitcast"):
            return self._constant(value.inputs[0], place)
        for loop in (i for some in self.computations.values() for i in some):
            if value.opcode == "parameter" and f"body=%{where}," in f"{loop.attributes},":
                kept = own[own[self.roots[where]].inputs[place]]
                index = _INDEX.search(kept.attributes)
                if index and int(index[1]) == place and name in kept.inputs:
                    return self._constant(loop.inputs[0], place)
        return None

    def _nested(self, name: str) -> Iterator[HloInstruction]:
        for instruction in self.computations.get(name, ()):
            yield instruction
            yield from self.inside(instruction)

    def inside(self, instruction: HloInstruction) -> Iterator[HloInstruction]:
        """What stands in the computations that an instruction calls, and in those they call."""
        for name in instruction.called:
            yield from self._nested(name)

    def _opcodes(self, instruction: HloInstruction) -> set[str]:
        """Its own, and those of what stands inside it."""
        return {instruction.opcode, *(i.opcode for i in self.inside(instruction))}

    @property
    def parameters(self) -> tuple[HloInstruction, ...]:
        """The program's arguments."""
        return tuple(i for i in self.computations.get(self.entry, ()) if i.opcode == "parameter")

    def multiplies(self, instruction: HloInstruction) -> bool:
        """Whether a matrix product is in it, which HLO for a TPU calls a convolution."""
        return bool({"convolution", "dot"} & self._opcodes(instruction))

    def gathers(self, instruction: HloInstruction) -> bool:
        """Whether it is a fusion that fetches rows by their numbers."""
        return "gather" in self._opcodes(instruction) and instruction.opcode == "fusion"

    def product_flops(self, instruction: HloInstruction) -> dict[str, float]:
        """What the products in an instruction of XLA's own for a TPU do at least: "int8" or
        "bfloat16", as Chip.peak takes it → operations, a multiply-add counting two.

        A batch of products is a convolution whose windows hold one product each, so what is summed
        is the right operand's input features alone.
        """
        by_dtype: dict[str, float] = defaultdict(float)
        for product in (instruction, *self.inside(instruction)):
            labels = re.search(r"dim_labels=\w+_(\w+)->", product.attributes)
            if product.opcode != "convolution" or not labels or len(product.operands) != 2:
                continue
            summed = product.operands[1].shape[labels[1].index("i")]
            narrow = all(BITS.get(a.dtype, 8) <= 8 for a in product.operands)
            flops = 2.0 * math.prod(product.results[0].shape) * summed
            by_dtype["int8" if narrow else "bfloat16"] += flops
        return dict(by_dtype)

    def dots(self, instruction: HloInstruction) -> list[tuple[HloInstruction, int]]:
        """The products in a fusion of HLO for a GPU, and their operations, a multiply-add two."""
        products = []
        for product in self.inside(instruction):
            summed = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", product.attributes)
            if product.opcode == "dot" and summed and len(product.operands) == 2:
                sizes = product.operands[0].shape
                depth = math.prod(sizes[axis] for axis in _numbers(summed[1]))
                products.append((product, 2 * math.prod(product.results[0].shape) * depth))
        return products

    def only_moves(self, instruction: HloInstruction) -> bool:
        """Whether it computes nothing: a copy, a transpose, or a fusion of such."""
        if instruction.opcode in ("copy", "transpose"):
            return True
        if instruction.opcode != "fusion":
            return False
        opcodes = {i.opcode for name in instruction.called for i in self.computations.get(name, ())}
        return bool(opcodes - FREE) and opcodes <= MOVING


_INDEX = re.compile(r"\bindex=(\d+)")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT\s+)?%?(\S+)\s+=\s+(.*)$")
_COMPUTATION = re.compile(r"^(ENTRY\s+)?%?([^\s({]+)\s*(?:\(.*)?\{\s*$")
_OPERAND = re.compile(r"%?([A-Za-z_][\w.\-]*)")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([^\s,}]+)"
    r"|\bbranch_computations=\{([^}]*)\}"
)


def _lines(text: str) -> list[str]:
    """One for each instruction: the metadata of a kernel goes over several lines."""
    return re.sub(r'\n(?="|\}\}|\},)', "", text).splitlines()


def parse(text: str) -> Module:
    """Read an HLO module as `compiled.as_text()` or `lowered.as_text("hlo")` gives it."""
    raw: dict[str, list[tuple[str, str, str, str, str]]] = {}
    roots: dict[str, str] = {}
    entry = name = ""
    for line in _lines(text):
        if line and not line[0].isspace():
            matched = _COMPUTATION.match(line)
            name = matched[2] if matched else ""
            if matched and matched[1]:
                entry = name
            continue
        matched = _INSTRUCTION.match(line) if name else None
        if matched:
            raw.setdefault(name, []).append((matched[1], *_split(matched[2])))
            if line.lstrip().startswith("ROOT "):
                roots[name] = matched[1]
    computations = {}
    for name, lines in raw.items():
        results = {label: arrays(shape) for label, shape, *_ in lines}
        inputs = {
            label: tuple(o for o in _OPERAND.findall(inside) if o in results)
            for label, _, opcode, inside, _ in lines
        }
        computations[name] = tuple(
            HloInstruction(
                label,
                opcode,
                results[label],
                tuple(a for o in inputs[label] for a in results[o]),
                attributes,
                tuple(re.findall(r"[^\s,%]+", ",".join(map("".join, _CALLED.findall(attributes))))),
                inside if opcode in ("constant", "parameter") else "",
                inputs=inputs[label],
            )
            for label, shape, opcode, inside, attributes in lines
        )
    return Module(computations, entry, roots)


def listing(text: str) -> str:
    """The entry computation, without metadata and configuration."""
    lines, inside = [], False
    for line in _lines(text):
        matched = _COMPUTATION.match(line) if line and not line[0].isspace() else None
        if matched:
            inside = bool(matched[1])
        if inside:
            lines.append(_without(line, ("metadata", "backend_config", "frontend_attributes")))
            inside = line != "}"
    return "\n".join(lines)


def _without(line: str, names: tuple[str, ...]) -> str:
    """A line of HLO without the attributes of those names, which are in braces."""
    for name in names:
        start = line.find(f", {name}={{")
        if start >= 0:
            opening = start + len(f", {name}={{")
            end = opening + _at_depth_0(line[opening:], "}") + 1
            line = line[:start] + line[end:]
    return line


def _split(text: str) -> tuple[str, str, str, str]:
    """shape, opcode, operands and attributes of what stands right of the equals sign."""
    end = _at_depth_0(text, " ")
    shape, rest = text[:end], text[end:].lstrip()
    opcode, _, rest = rest.partition("(")
    end = _at_depth_0(rest, ")")
    return shape, opcode.strip(), rest[:end], rest[end + 1 :]


def _at_depth_0(text: str, sign: str) -> int:
    depth = 0
    for i, c in enumerate(text):
        if depth == 0 and c == sign:
            return i
        depth += (c in "([{") - (c in ")]}")
    return len(text)
