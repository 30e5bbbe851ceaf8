"""nki.collectives: what the cores of several ranks do together.

One rank is simulated, so each of these refuses the call. The names are there, so that a kernel
that uses them for several ranks only runs on one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.machines.neuron.errors import nothing_but, refuse

NAMES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "rank_id",
    "reduce_scatter",
)


@dataclass
class ReplicaGroup:
    """Which ranks belong together, in lists."""

    replica_group: Any = None


def _refusing(name: str) -> Callable[..., Any]:
    def collective(*arguments, **options) -> None:
        refuse(
            f"not simulated: nki.collectives.{name}, which takes several ranks; one is simulated, "
            "and its cores exchange tiles by nki.isa.sendrecv"
        )

    collective.__name__ = name
    return collective


globals().update({name: _refusing(name) for name in NAMES})
__getattr__ = nothing_but("nki.collectives", ["ReplicaGroup", *NAMES])
