"""Read the kernels inside a lowered program, in the compiler's own language (MLIR).

A TPU kernel is a Mosaic module in the backend_config of a tpu_custom_call, base64 in JSON; a GPU
kernel is a Triton module in an attribute. Both are MLIR bytecode.

Private: all of that, `jax._src.lib.tpu`, `jax._src.interpreters.mlir`, `jaxlib.mlir` and
`jaxlib.triton`. Seen in JAX 0.10.2, 0.11.2 and 0.12.0.1.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

TPU, GPU = "tpu_custom_call", "__gpu$xla.gpu.triton"


def kernels(lowered: Any, target: str) -> list[str]:
    """The text of each kernel in a jax.stages.Lowered; target is TPU or GPU."""
    module = lowered.compiler_ir()
    read = {TPU: _mosaic, GPU: _triton}[target]
    with module.context:
        calls = [
            call
            for call in _operations(module.operation)
            if call.name == "stablehlo.custom_call"
            and _text(call.attributes["call_target_name"]) == target
        ]
        return [read(call.attributes) for call in calls]


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner)


def unlocated(body: Any) -> str:
    """The text of the Mosaic kernel in a match of its base64, without source locations."""
    return _mosaic_module(body[0]).operation.get_asm(enable_debug_info=False)


def _mosaic(attributes: Any) -> str:
    body = json.loads(_text(attributes["backend_config"]))["custom_call_config"]["body"]
    # Kernels travel in a form that outlives versions; this pass turns it back.
    return _print(_mosaic_module(body), "mosaic-serde{serialize=false},")


def _mosaic_module(body: str) -> Any:
    from jax._src.lib import tpu

    context = _context()
    tpu.register_dialect(context)
    return _parse(context, base64.b64decode(body))


def _triton(attributes: Any) -> str:
    from jaxlib.mlir import ir
    from jaxlib.triton import dialect

    body = ir.StringAttr(ir.DictAttr(attributes["mhlo.backend_config"])["ir"]).value_bytes
    context = _context()
    dialect.register_dialect(context)
    return _print(_parse(context, body))


def _context() -> Any:
    from jax._src.interpreters import mlir

    # A dialect prints in its own syntax once its module has been imported.
    from jaxlib.mlir.dialects import arith, func, math, memref, scf, vector  # noqa: F401

    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    return context


def _parse(context: Any, bytecode: bytes) -> Any:
    from jaxlib.mlir import ir

    with context:
        return ir.Module.parse(bytecode)


def _print(module: Any, passes: str = "") -> str:
    """The module's text, after the clean-up with which every compiler begins."""
    from jaxlib.mlir.passmanager import PassManager

    with module.context:
        PassManager.parse(f"builtin.module({passes}canonicalize,cse)").run(module.operation)
    return module.operation.get_asm(enable_debug_info=False)


def _text(attribute: Any) -> str:
    from jaxlib.mlir import ir

    return ir.StringAttr(attribute).value
