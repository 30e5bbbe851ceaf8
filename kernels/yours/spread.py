"""A function of one device's parts, as one of whole arrays: jax.shard_map calls it on a mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.machines.checks import fail, positive_int

MESH = 'axis name → size, such as {"x": 4}'
SPECS = "a jax.sharding.PartitionSpec for each, or one for all, as jax.shard_map takes them"


@dataclass(frozen=True)
class Spread:
    """How arrays are cut over a mesh.

    Args:
        mesh: axis name → size.
        in_specs, out_specs: trees of jax.sharding.PartitionSpec, or prefixes of such trees.

    Raises:
        ValueError: for a mesh of no devices, and for specs that are none or name no axis of it.
    """

    mesh: Mapping[str, int]
    in_specs: Any
    out_specs: Any

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mapping) or not self.mesh:
            fail("mesh", repr(self.mesh), MESH)
        for axis, size in self.mesh.items():
            positive_int(f"mesh[{axis!r}]", size)
        for argument in ("in_specs", "out_specs"):
            specs = _leaves(value := getattr(self, argument))
            if not specs or any(not _is_spec(s) or set(_axes(s)) - set(self.mesh) for s in specs):
                known = ", ".join(map(repr, self.mesh))
                fail(argument, repr(value), f"{SPECS}, of the axes {known}")

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod(self.mesh.values())

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        return f"{self.devices} devices ({sizes})"

    def specs(self, argument: str, values: Any) -> list[Any]:
        """The spec of each leaf.

        Args:
            argument: "in_specs" or "out_specs".
            values: the tree of what they cut.

        Raises:
            ValueError: where the specs are no prefix of that tree, or do not cut an array evenly.
        """
        import jax

        try:
            whole = jax.tree.broadcast(getattr(self, argument), values, is_leaf=_is_spec)
        except ValueError:
            tree = jax.tree.structure(values)
            fail(argument, repr(getattr(self, argument)), f"{SPECS}, of {tree}")
        specs = jax.tree.leaves(whole, is_leaf=_is_spec)
        for spec, leaf in zip(specs, jax.tree.leaves(values), strict=True):
            shape = tuple(getattr(leaf, "shape", ()))
            cuts = [self._size(axes) for axes in spec]
            if hasattr(leaf, "shape") and (
                len(cuts) > len(shape) or any(n % cut for n, cut in zip(shape, cuts))
            ):
                what = "arguments draws" if argument == "in_specs" else "reference returns"
                accepted = f"what {spec} cuts evenly over {self}"
                fail(f"an array that {what}", f"of shape {shape}", accepted)
        return specs

    def in_specs_of(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The spec of each leaf of arguments; beside positional ones, what is named is whole."""
        import jax
        from jax.sharding import PartitionSpec

        if not args:
            return self.specs("in_specs", dict(named))
        rest = [PartitionSpec()] * len(jax.tree.leaves(named))
        return self.specs("in_specs", tuple(args)) + rest

    def missing(self, spec: Any) -> tuple[str, ...]:
        """The axes along which devices have copies of a result, each its own."""
        used = set(_axes(spec))
        return tuple(a for a, size in self.mesh.items() if a not in used and size > 1)

    def copies(self, spec: Any) -> int:
        """How many copies of a result there are."""
        return self._size(self.missing(spec))

    def stacked(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        """The specs of results whose copies stand one behind the other, along a new dimension."""
        from jax.sharding import PartitionSpec

        behind = [(self.missing(spec), spec) for spec in specs]
        return tuple(PartitionSpec(axes, *spec) if axes else spec for axes, spec in behind)

    def _size(self, axes: Any) -> int:
        return math.prod(self.mesh[axis] for axis in _axes([axes]))

    def __call__(
        self, function: Callable[..., Any], in_specs: Any, out_specs: Any
    ) -> Callable[..., Any]:
        """A function of one device's parts as one of whole arrays, on the mesh that is set."""
        from kernels.proof.backends.pallas_tpu_mesh import over

        return over(function, self.mesh, in_specs, out_specs)


def spread_over(mesh: Any, in_specs: Any, out_specs: Any) -> Spread | None:
    """What three options say together: None where nobody gives them; ValueError where only some."""
    if mesh is in_specs is out_specs is None:
        return None
    for argument, value in (("mesh", mesh), ("in_specs", in_specs), ("out_specs", out_specs)):
        if value is None:
            fail(argument, None, f"{MESH if argument == 'mesh' else SPECS}, where others are given")
    return Spread(mesh, in_specs, out_specs)


def _is_spec(value: Any) -> bool:
    from jax.sharding import PartitionSpec

    return isinstance(value, PartitionSpec)


def _leaves(specs: Any) -> list[Any]:
    import jax

    return jax.tree.leaves(specs, is_leaf=_is_spec)


def _axes(spec: Any) -> list[str]:
    """The names in a spec, flat."""
    names: list[str] = []
    for axes in spec:
        names += axes if isinstance(axes, (tuple, list)) else [axes] if axes is not None else []
    return names
