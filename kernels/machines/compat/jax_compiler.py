"""XLA's programs, each compiled once: jax.jit does not know those again that were traced where the
CPU multiplies otherwise, though most are the same operation.

Private: `jax._src.compiler.backend_compile_and_load`. Seen in JAX 0.10.2 and 0.12.0.1.
"""

from typing import Any

LONGEST = 1 << 14  # characters of a program that is remembered


def remember() -> None:
    """From now on a text that calls nothing of this process is compiled once for a device."""
    from jax._src import compiler

    own, known = compiler.backend_compile_and_load, {}

    def once(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
        text = str(module)
        if callbacks or len(text) > LONGEST or "custom_call" in text:
            return own(backend, module, devices, options, callbacks)
        key = text, id(backend), str(devices), options.SerializeAsString()
        if key not in known:
            known[key] = own(backend, module, devices, options, callbacks)
        return known[key]

    compiler.backend_compile_and_load = once
