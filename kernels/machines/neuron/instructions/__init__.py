"""The instructions of nki.isa: dst comes first, always.

Names, arguments and limits are those of the AWS Neuron documentation of nki.isa, 0.3 to 0.7; both
generations of the language stand on them. Engines compute in float32 and cast to dst's dtype. Costs
are those that the documents give for each instruction, in cycles of its engine for N elements a
partition; where they give none, N. `what` is what an instruction is called in a refusal and in an
estimate, where another function makes it; the vendor's `name` is ignored.
"""

from collections.abc import Callable
from typing import Any

from kernels.machines.neuron.instructions import along, dma, elementwise, places, tensor_engine

_OURS = ("choose", "count", "identity", "reduce_axes", "spread")  # for beta 1 and nki.language
NAMES: dict[str, Callable[..., Any]] = {  # of nki.isa
    name: function
    for module in (along, dma, elementwise, places, tensor_engine)
    for name, function in vars(module).items()
    if getattr(function, "__module__", "") == module.__name__
    and not name.startswith("_")
    and name not in _OURS
}
