"""python -m kernels"""

from kernels.cli import app

app(prog_name="python -m kernels")
