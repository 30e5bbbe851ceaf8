"""The tuner's best block sizes: chip and dtype → shape (m, k, n) → blocks.

Chosen by `python -m kernels tune matmul/pallas`, whose records are in results/tuned.csv; a test
holds this table against them. Other shapes take those of the nearest one (see blocks.default).
"""

from kernels.matmul.blocks import BlockSizes

TUNED = {
    ("v5e", "bfloat16"): {
        (1024, 1024, 1024): BlockSizes(512, 1024, 512),
        (4096, 4096, 4096): BlockSizes(512, 4096, 512),
        (8192, 8192, 8192): BlockSizes(512, 8192, 512),
    },
    ("v5e", "int8"): {
        (1024, 1024, 1024): BlockSizes(512, 1024, 512),
        (4096, 4096, 4096): BlockSizes(512, 4096, 512),
    },
    ("v6e", "bfloat16"): {
        (1024, 1024, 1024): BlockSizes(512, 1024, 512),
        (4096, 4096, 4096): BlockSizes(1024, 4096, 1024),
        (8192, 8192, 8192): BlockSizes(1024, 8192, 1024),
    },
    ("v6e", "int8"): {
        (1024, 1024, 1024): BlockSizes(512, 1024, 512),
        (4096, 4096, 4096): BlockSizes(1024, 4096, 1024),
    },
}
# Nothing was tuned for a v5p, whose cores have a v5e's MXUs.
TUNED.update({("v5p", dtype): TUNED["v5e", dtype] for dtype in ("bfloat16", "int8")})
