"""Machine-learning kernels, each proven rung by rung. Importing this package imports nothing heavy.

>>> from kernels.matmul import matmul
>>> from kernels.vector import add_vectors, iota

`python -m kernels list` shows every operator, `python -m kernels verify` proves them; and
`kernels.prove` proves a kernel of your own.
"""

from kernels.own import prove, proves

__all__ = ["prove", "proves"]

__version__ = "0.1.0"
