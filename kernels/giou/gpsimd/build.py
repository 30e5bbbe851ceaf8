"""Build and load libgiou.so with AWS's tools: `python -m kernels.giou.gpsimd.build` on an Inf2 or
Trn1 machine with torch-neuronx, aws-neuronx-gpsimd-tools and aws-neuronx-gpsimd-customop-lib."""

import os
from pathlib import Path

HERE = Path(__file__).parent


def build(folder: str | Path = ".") -> None:
    """Compile the operator for every core of GpSimd, write libgiou.so to `folder` and load it."""
    from torch_neuronx.xla_impl import custom_op

    custom_op.load(
        name="giou",
        compute_srcs=[str(HERE / "giou.cpp")],
        shape_srcs=[str(HERE / "shape.cpp")],
        build_directory=os.path.abspath(folder),
        multicore=True,
    )


if __name__ == "__main__":
    build()
