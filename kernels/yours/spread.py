"""How a function that each of several devices calls is spread over them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.machines.checks import fail, positive_int

MESH = 'axis name → size, such as {"x": 4}'
SPECS = "a jax.sharding.PartitionSpec for each, or one for all, as jax.shard_map takes them"


@dataclass(frozen=True)
class Devices:
    """How arrays are cut over a mesh, axis name → size, by trees of jax.sharding.PartitionSpec, or
    prefixes of such trees. ValueError for a mesh of no devices and for specs not of its axes."""

    mesh: Mapping[str, int]
    in_specs: Any
    out_specs: Any

    def __post_init__(self) -> None:
        import jax

        if not isinstance(self.mesh, Mapping) or not self.mesh:
            fail("mesh", repr(self.mesh), MESH)
        for axis, size in self.mesh.items():
            positive_int(f"mesh[{axis!r}]", size)
        for argument in ("in_specs", "out_specs"):
            value = getattr(self, argument)
            specs = jax.tree.leaves(value, is_leaf=_is_spec)
            if not specs or any(not _is_spec(s) or set(_axes(s)) - set(self.mesh) for s in specs):
                known = ", ".join(map(repr, self.mesh))
                fail(argument, repr(value), f"{SPECS}, of the axes {known}")

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        return f"{math.prod(self.mesh.values())} devices ({sizes})"

    def specs(self, argument: str, values: Any) -> list[Any]:
        """The spec of each leaf of the arguments ("in_specs") or results ("out_specs"); ValueError
        where the specs are no prefix of that tree, or do not cut an array evenly."""
        import jax

        prefix = getattr(self, argument)
        try:
            whole = jax.tree.broadcast(prefix, values, is_leaf=_is_spec)
        except ValueError:
            fail(argument, repr(prefix), f"{SPECS}, of {jax.tree.structure(values)}")
        specs = jax.tree.leaves(whole, is_leaf=_is_spec)
        for spec, leaf in zip(specs, jax.tree.leaves(values), strict=True):
            shape = getattr(leaf, "shape", None)
            cuts = [self.count(_axes([axes])) for axes in spec]
            if shape is not None and (len(cuts) > len(shape) or any(map(int.__mod__, shape, cuts))):
                fail(f"the shape of what {argument} cut", shape, f"what {spec} cuts over {self}")
        return specs

    def cut(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """What kernels.tpu.compile is told of a function of the arrays in these arguments; beside
        positional ones, those by name are whole."""
        import jax

        specs = self.specs("in_specs", tuple(args) if args else dict(named))
        leaves = jax.tree.leaves((tuple(args), dict(named)))
        specs += [jax.sharding.PartitionSpec()] * (len(leaves) - len(specs))
        ins = tuple(s for s, leaf in zip(specs, leaves, strict=True) if hasattr(leaf, "shape"))
        return {"mesh": self.mesh, "in_specs": ins, "out_specs": self.out_specs}

    def copied(self, spec: Any) -> tuple[str, ...]:
        """The axes along which each device has a copy of its own of a result."""
        return tuple(a for a, size in self.mesh.items() if a not in _axes(spec) and size > 1)

    def count(self, axes: Sequence[str]) -> int:
        """How many devices there are along axes."""
        return math.prod(self.mesh[axis] for axis in axes)


def spread_over(mesh: Any, in_specs: Any, out_specs: Any) -> Devices | None:
    """What three options say together: None where nobody gives them; ValueError where only some."""
    if mesh is in_specs is out_specs is None:
        return None
    for argument, value in (("mesh", mesh), ("in_specs", in_specs), ("out_specs", out_specs)):
        if value is None:
            fail(argument, None, f"{MESH if argument == 'mesh' else SPECS}, where others are given")
    return Devices(mesh, in_specs, out_specs)


def _is_spec(value: Any) -> bool:
    import jax

    return isinstance(value, jax.sharding.PartitionSpec)


def _axes(spec: Any) -> list[str]:
    """The names in a spec, flat."""
    return [n for axes in spec if axes for n in ([axes] if isinstance(axes, str) else axes)]
