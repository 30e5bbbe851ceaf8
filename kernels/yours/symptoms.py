"""Where the book's page of symptoms speaks of an error."""

import re

# Words of a compiler's message, or of ours for it, and the anchor of its entry; the first counts.
ANCHORS = (
    (r"memory space vmem\. Used", "vmem-chip"),
    (r"exceeded scoped vmem limit|of VMEM and may have", "vmem"),
    (r"Ran out of memory on HBM", "hbm"),
    (r"divisible by \d+ and \d+|no whole number of tiles", "block-shape"),
    (r"number of dimensions as|give one size, or None, for each", "block-rank"),
    (r"prove that index in dimension|compiler cannot prove it", "e2003"),
    (r"Offsets along tiled dimensions", "dma-tile"),
    (r"E2001|chip has no such matmul|Bad lhs/rhs type", "e2001"),
    (r"acc to be 32-bit|MXU adds up in 32 bits", "acc-32-bit"),
    (r"Unimplemented primitive in Pallas TPU|kernel language has no", "primitive"),
    (r"take_along_axis-like|int indexing on TPU", "gather"),
    (r"Invalid vector type for load|vector unit cannot load|operation tpu\.load", "float16"),
    (r"X\{64\|128\}|TPU kernel takes no \S+ arrays", "x64-arrays"),
    (r"operation 'func\.return'|index map gives 64-bit", "x64-index-map"),
    (r"Only vector<i16> and vector<i32>", "narrow-arithmetic"),
    (r"arith\.shr[su]i", "narrow-shift"),
    (r"unsupported shape cast", "shape-cast"),
    (r"Only float32 is supported|support this comparison", "bfloat16-only"),
    (r"Cannot store scalars to VMEM", "scalar-to-vmem"),
    (r"Can only load scalars from SMEM", "vector-from-smem"),
    (r"only allowed on VMEM and SMEM", "load-from-hbm"),
    (r"captures constants", "captures-constants"),
    (r"is a power of 2|be a power of 2", "power-of-two"),
    (r"of shared memory and may have|available shared memory", "shared-memory"),
    (r"nan, the reference.*not finite", "nan-everywhere"),
    (r"Out-of-bounds block index", "halts"),
)


def see(message: str) -> str:
    """Where to read on, put after a message; empty where the page has nothing on it."""
    known = (anchor for words, anchor in ANCHORS if re.search(words, message))
    return next((f" (see book/symptoms.md#{anchor})" for anchor in known), "")
