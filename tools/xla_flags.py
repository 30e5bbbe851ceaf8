"""How XLA compiles for the CPU: options whose names it promises nobody."""

from importlib.metadata import version

from packaging.version import Version


def quick_to_compile():
    """For XLA_FLAGS: code for the CPU that is compiled sooner, and runs slower."""
    options = {name: min(values) for name, values in _optimisations().items()}
    options["xla_cpu_parallel_codegen_split_count"] = 1
    return " ".join(f"--{name}={value}" for name, value in options.items())


def optimised():
    """The options that make code quick to run, as XLA sets them, for jax.jit's compiler_options."""
    return {name: max(values) for name, values in _optimisations().items()}


def _optimisations():
    """Without the optimisation, and as XLA sets it; an option that is gone ends the process."""
    known = {"xla_backend_optimization_level": (0, 3)}
    if Version(version("jaxlib")).release < (0, 11):
        known["xla_cpu_use_fusion_emitters"] = (False, True)
    return known
