"""XLA's programs, each compiled fast and once: jax.jit does not know those again that were traced
where the CPU multiplies otherwise, though most are the same operation.

Private: `jax._src.compiler.backend_compile_and_load`. Seen in JAX 0.10.2 and 0.12.0.1.
"""

from typing import Any

LONGEST = 1 << 14  # characters of a program that is remembered
# What runs once or twice takes longer to compile than to run; not so what has a loop.
FAST = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
LOOPS = {"xla_backend_optimization_level": 2}


def remember() -> None:
    """From now on a text that calls nothing of this process is compiled once for a device, and each
    for the CPU by what compiles fast."""
    from jax._src import compiler

    own, known = compiler.backend_compile_and_load, {}

    def once(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
        text = str(module)
        if backend.platform == "cpu":
            chosen = FAST | (LOOPS if "stablehlo.while" in text else {})
            options.env_option_overrides = [*options.env_option_overrides, *chosen.items()]
        if callbacks or len(text) > LONGEST or "custom_call" in text:
            return own(backend, module, devices, options, callbacks)
        key = text, id(backend), str(devices), options.SerializeAsString()
        if key not in known:
            known[key] = own(backend, module, devices, options, callbacks)
        return known[key]

    compiler.backend_compile_and_load = once
