"""The tuner's best block sizes: chip and dtype → shape (m, k, n) → block sizes (bm, bk, bn).

Chosen by `python -m kernels tune matmul/pallas`, whose records are in results/tuned.csv; a test
holds this table against them. Other shapes take those of the nearest one, made to fit:
see blocks.BlockSizes.default.
"""

TABLE = {
    ("v5e", "bfloat16"): {
        (1024, 1024, 1024): (512, 1024, 512),
        (4096, 4096, 4096): (512, 4096, 512),
        (8192, 8192, 8192): (512, 8192, 512),
    },
    ("v5e", "int8"): {
        (1024, 1024, 1024): (512, 1024, 512),
        (4096, 4096, 4096): (512, 4096, 512),
    },
    ("v6e", "bfloat16"): {
        (1024, 1024, 1024): (512, 1024, 512),
        (4096, 4096, 4096): (1024, 4096, 1024),
        (8192, 8192, 8192): (1024, 8192, 1024),
    },
    ("v6e", "int8"): {
        (1024, 1024, 1024): (1024, 1024, 512),
        (4096, 4096, 4096): (2048, 4096, 512),
        (8192, 8192, 8192): (1024, 8192, 1024),
    },
}
# Nothing was tuned for a v5p, whose cores have a v5e's MXUs, nor for a v7x, which has a v6e's.
TABLE.update({("v5p", dtype): TABLE["v5e", dtype] for dtype in ("bfloat16", "int8")})
TABLE.update({("v7x", dtype): TABLE["v6e", dtype] for dtype in ("bfloat16", "int8")})
