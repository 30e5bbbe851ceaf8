"""nki.isa: one function for each instruction; dst comes first.

They stand in kernels.machines.neuron.instructions, with the arguments of the vendor's.
"""

from kernels.machines.neuron.errors import nothing_but
from kernels.machines.neuron.instructions import NAMES
from kernels.machines.neuron.instructions.common import (
    ENUMERATIONS,
    GPSIMD,
    SCALAR,
    VECTOR,
    get_nc_version,
)
from kernels.machines.neuron.instructions.common import constants as _constants

vector_engine, scalar_engine, gpsimd_engine = VECTOR, SCALAR, GPSIMD
constants = _constants("nki.isa.constants")
globals().update(ENUMERATIONS | NAMES)
__all__ = ["get_nc_version", "gpsimd_engine", "scalar_engine", "vector_engine"]
__all__ += [*ENUMERATIONS, *NAMES]
__getattr__ = nothing_but("nki.isa", __all__)
