"""The child process that holds libtpu: it compiles one program after another for its parent.

It is started with the environment that compat.libtpu makes, and answers questions by child.run.
What libtpu dumps of a program lies in a folder that this environment names; the parent reads that,
and empties it, before it asks again.
"""

import time
from collections.abc import Callable
from typing import Any

from kernels.machines import child

_known: dict[str, Any] = {}


def prepare() -> Callable[[dict], dict]:
    """Load JAX, which takes about a second."""
    from jax import export  # noqa: F401
    from jax.experimental import topologies  # noqa: F401

    return answer


def answer(question: dict) -> dict:
    """Compile one program.

    Args:
        question: topology: its name. mesh: axis name → size, or {}. program: what jax.export made.
            row_major: lay its arrays out row by row. donated: the numbers of the arguments whose
            memory results may take. executable: whether the answer holds it.

    Returns:
        memory: sizes by JAX's names. cost: XLA's analysis. hlo: the optimised text. executable:
        bytes or None. seconds: that it took. Of a program that is refused: error, and seconds.
    """
    start = time.perf_counter()
    try:
        compiled = _compile(**{k: v for k, v in question.items() if k != "executable"})
        seconds = time.perf_counter() - start
        executable = _executable(compiled) if question["executable"] else None
        found = {"hlo": compiled.as_text(), "executable": executable, "seconds": seconds}
        return describe(compiled) | found
    except Exception as error:
        return {"error": f"{error}", "seconds": time.perf_counter() - start}


def _compile(
    topology: str, mesh: dict, program: bytes, row_major: bool, donated: tuple[int, ...]
) -> Any:
    import jax
    from jax import export
    from jax.experimental import topologies

    if topology not in _known:
        _known[topology] = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    devices = _known[topology].devices
    sharding = jax.sharding.SingleDeviceSharding(devices[0])
    exported = export.deserialize(bytearray(program))
    # The results name the chip too: a program without arguments has nothing else to.
    options: dict[str, Any] = {"out_shardings": sharding}
    shardings = [sharding] * len(exported.in_avals)
    if mesh:
        shardings, results = on_mesh(exported, devices, mesh)
        options = {"out_shardings": results}
    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
        for a, s in zip(exported.in_avals, shardings)
    ]
    if donated and not mesh:

        def program_of_leaves(*leaves: Any) -> Any:
            args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
            return exported.call(*args, **kwargs)

        jitted = jax.jit(program_of_leaves, donate_argnums=donated, **options)
        return jitted.lower(*shapes).compile()
    args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    if row_major:
        options = in_rows(exported, sharding)
    return jax.jit(exported.call, **options).lower(*args, **kwargs).compile()


def on_mesh(program: Any, devices: Any, axes: dict) -> tuple:
    """The shardings of the arguments, and of the results, on a mesh of these devices."""
    import jax

    kinds = (jax.sharding.AxisType.Auto,) * len(axes)  # the compiler cuts what has no spec
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), kinds, devices=devices)
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    args = [s or whole for s in program.in_shardings_jax(mesh)]
    # What the program does not say of a result, the partitioner chooses.
    return args, jax.tree.unflatten(program.out_tree, program.out_shardings_jax(mesh))


def in_rows(program: Any, sharding: Any) -> dict:
    """Options of jax.jit that lay each array out row by row, as Pallas kernels want them."""
    import jax
    from jax.experimental.layout import Format, Layout

    def formats(avals):
        return [Format(Layout(tuple(range(a.ndim))), sharding) for a in avals]

    args, _ = jax.tree.unflatten(program.in_tree, formats(program.in_avals))
    results = jax.tree.unflatten(program.out_tree, formats(program.out_avals))
    return {"in_shardings": args, "out_shardings": results}


def describe(compiled: Any) -> dict:
    """Memory and cost analysis as plain numbers."""
    memory = compiled.memory_analysis()
    cost = compiled.cost_analysis() or {}
    if isinstance(cost, (list, tuple)):  # jax before 0.5 gave one for each device
        cost = cost[0] if cost else {}
    names = ("argument", "output", "alias", "temp", "generated_code")
    sizes = {name: getattr(memory, f"{name}_size_in_bytes", 0) for name in names}
    return {"memory": sizes, "cost": {str(k): float(v) for k, v in cost.items()}}


def _executable(compiled: Any) -> bytes | None:
    """The serialised executable; None where this JAX cannot serialise it."""
    try:
        from jax.experimental import serialize_executable

        return bytes(serialize_executable.serialize(compiled)[0])
    except Exception:
        return None


if __name__ == "__main__":
    child.serve(prepare)
