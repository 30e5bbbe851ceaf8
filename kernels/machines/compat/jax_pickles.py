"""Functions for a child process, by cloudpickle: with gradients of their own, too.

A jax.custom_vjp or jax.custom_jvp is pickled, and cannot be loaded, since its `__new__` wants the
function. Private: that its attributes are all that it is. Seen in JAX 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import copyreg
import sys
from typing import Any


def dumps(value: Any) -> bytes:
    """cloudpickle.dumps(value)."""
    import cloudpickle
    import jax

    for kind in (jax.custom_vjp, jax.custom_jvp):
        copyreg.pickle(kind, lambda f: (object.__new__, (type(f),), dict(vars(f))))
    data: bytes = cloudpickle.dumps(value)
    return data


def sources() -> tuple[str, ...]:
    """The files of what is pickled by value: running them changes other modules as it did here."""
    import cloudpickle

    named = map(sys.modules.get, sorted(cloudpickle.list_registry_pickle_by_value()))
    return tuple(filter(None, (getattr(module, "__file__", None) for module in named)))
