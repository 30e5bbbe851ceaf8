"""The child process that holds libtpu: it compiles one program after another for its parent.

It is started as `python worker.py FOLDER DUMPS` with the environment that kernels.tpu.undocumented
makes, imports nothing of this package, and ends as soon as its parent is gone. For each line N on
stdin it reads N.json and N.program from FOLDER, writes its findings there, and answers with a line
on stdout. Everything that libtpu itself prints goes to stderr.
"""

import contextlib
import json
import os
import queue
import shutil
import sys
import threading
import time
from pathlib import Path

MARK = "kernels.tpu"  # begins each answer, so that nothing else can be mistaken for one


def main(folder: Path, dumps: Path) -> None:
    """Compile what the parent asks for until it says quit."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libtpu prints to stdout at times
    jobs: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(line.strip())
            if line.strip() == "quit":
                return
        # The parent died without a word: leave nothing behind.
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the last child takes the folder of all
            folder.parent.rmdir()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()

    def answer(**words: object) -> None:
        print(MARK, json.dumps(words), file=answers)

    import jax
    from jax import export
    from jax.experimental import topologies

    known = {}
    answer(ready=True)
    while (job := jobs.get()) != "quit":
        answer(started=job)
        spec = json.loads((folder / f"{job}.json").read_text())
        start = time.perf_counter()
        try:
            name = spec["topology"]
            if name not in known:
                known[name] = topologies.get_topology_desc(platform="tpu", topology_name=name)
            sharding = jax.sharding.SingleDeviceSharding(known[name].devices[0])
            program = export.deserialize(bytearray((folder / f"{job}.program").read_bytes()))
            # The results name the chip too: a program without arguments has nothing else to.
            options = {"out_shardings": sharding}
            shardings = [sharding] * len(program.in_avals)
            if spec["mesh"]:
                shardings, results = on_mesh(program, known[name].devices, spec["mesh"])
                options = {"out_shardings": results}
            shapes = [
                jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
                for a, s in zip(program.in_avals, shardings)
            ]
            args, kwargs = jax.tree.unflatten(program.in_tree, shapes)
            if spec["row_major"]:
                options = row_major(program, sharding)
            compiled = jax.jit(program.call, **options).lower(*args, **kwargs).compile()
            seconds = time.perf_counter() - start
            found = describe(compiled) | {"seconds": seconds}
            if spec["executable"]:
                found["executable"] = keep_executable(compiled, folder / f"{job}.executable")
            (folder / f"{job}.hlo").write_text(compiled.as_text())
            (folder / f"{job}.result").write_text(json.dumps(found))
            done = {"done": job}
        except Exception as error:
            seconds = time.perf_counter() - start
            done = {"failed": job, "error": f"{error}", "seconds": seconds}
            if isinstance(error, OSError):
                done["errno"] = error.errno
        # The next program's dumps must not be taken for this one's.
        try:
            if any(dumps.iterdir()):
                dumps.rename(folder / f"{job}.dumps")
                dumps.mkdir()
        except OSError as error:
            done = {"failed": job, "error": f"{error}", "errno": error.errno}
        answer(**done)


def on_mesh(program, devices, axes: dict) -> tuple:
    """The shardings of the arguments, and of the results, on a mesh of these devices."""
    import jax

    kinds = (jax.sharding.AxisType.Auto,) * len(axes)  # the compiler cuts what has no spec
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), kinds, devices=devices)
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    args = [s or whole for s in program.in_shardings_jax(mesh)]
    # What the program does not say of a result, the partitioner chooses.
    return args, jax.tree.unflatten(program.out_tree, program.out_shardings_jax(mesh))


def row_major(program, sharding) -> dict:
    """Options of jax.jit that lay each array out row by row, as Pallas kernels want them."""
    import jax
    from jax.experimental.layout import Format, Layout

    def formats(avals):
        return [Format(Layout(tuple(range(a.ndim))), sharding) for a in avals]

    args, _ = jax.tree.unflatten(program.in_tree, formats(program.in_avals))
    results = jax.tree.unflatten(program.out_tree, formats(program.out_avals))
    return {"in_shardings": args, "out_shardings": results}


def describe(compiled) -> dict:
    """Memory and cost analysis as plain numbers."""
    memory = compiled.memory_analysis()
    cost = compiled.cost_analysis() or {}
    if isinstance(cost, (list, tuple)):  # jax before 0.5 gave one for each device
        cost = cost[0] if cost else {}
    names = ("argument", "output", "alias", "temp", "generated_code")
    sizes = {name: getattr(memory, f"{name}_size_in_bytes", 0) for name in names}
    return {"memory": sizes, "cost": {str(k): float(v) for k, v in cost.items()}}


def keep_executable(compiled, path: Path) -> bool:
    """Write the serialised executable; False where this JAX cannot serialise it."""
    try:
        from jax.experimental import serialize_executable

        path.write_bytes(serialize_executable.serialize(compiled)[0])
    except OSError:
        raise
    except Exception:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
