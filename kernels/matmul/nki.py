"""Matrix multiplication in NKI, for a NeuronCore: blocks of both matrices stay in SBUF.

The Tensor engine multiplies a stationary tile of at most 128 × 128, transposed, by a moving one of
at most 128 × 512, and adds the product up in a bank of PSUM. So x comes in transposed, k in the
partitions of both. A block of y is fetched once for all rows of x, a block of x for all columns of
that block, and what a block of k gives is added to sums in SBUF.
"""

from kernels.machines.checks import one_of
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl

__all__ = ["COLUMNS", "DEPTH", "ROWS", "matmul_kernel"]
# In tiles. Of a partition's 192 KiB, in bfloat16 (twice that in float32): 16 of x are 4 KiB a tile
# of k, 2 of y are 2 KiB, eight tiles of k are held of each, twice: 96 KiB; and the sums 64 KiB.
ROWS, COLUMNS, DEPTH = 16, 2, 8
M, N, K = 128, 512, 128  # of a product


@nki.jit
def matmul_kernel(xt, y, rows=ROWS, columns=COLUMNS, depth=DEPTH):
    """The product of two matrices in HBM, of which the first comes transposed.

    Args:
        xt: [k, m], float32 or bfloat16.
        y: [k, n], the same dtype.
        rows, columns, depth: tiles of m, n and k in a block.

    Returns:
        [m, n] of their dtype.
    """
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
    for right in nl.affine_range(parts(n, columns * N)):
        j = right * columns * N
        width = min(columns * N, n - j)
        for below in nl.affine_range(parts(m, rows * M)):
            i = below * rows * M
            height = min(rows * M, m - i)
            sums = []
            for _ in range(parts(height, M)):
                sums.append(nl.ndarray((M, columns * N), dtype=nl.float32, buffer=nl.sbuf))
            for block in nl.sequential_range(parts(k, depth * K)):
                first = block * depth * K
                last = min(first + depth * K, k)
                a = fetched(xt, first, last, i, height)
                b = fetched(y, first, last, j, width)
                for row in range(parts(height, M)):
                    add_products(sums[row], a, b, row, height, width, block > 0)
            for row in range(parts(height, M)):
                tall = min(M, height - row * M)
                c = nl.ndarray((tall, width), dtype=z.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=c, src=sums[row][0:tall, 0:width])
                top = i + row * M
                nisa.dma_copy(dst=z[top : top + tall, j : j + width], src=c)
    return z


def parts(size, block):
    """How many blocks cover a size."""
    return (size + block - 1) // block


def fetched(x, first, last, left, width):
    """Tiles of 128 rows of x, from `first` to `last`, of some columns, in SBUF."""
    tiles = []
    for part in range(parts(last - first, K)):
        top = first + part * K
        end = min(top + K, last)
        tile = nl.ndarray((end - top, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[top:end, left : left + width])
        tiles.append(tile)
    return tiles


def add_products(total, a, b, row, height, width, adds):
    """total [128, …] = or += the sum over tiles of one row of tiles of a, times b."""
    top = row * M
    tall = min(M, height - top)
    for column in range(parts(width, N)):
        left = column * N
        wide = min(N, width - left)
        product = nl.ndarray((tall, wide), dtype=nl.float32, buffer=nl.psum)
        for part in range(len(a)):
            nisa.nc_matmul(
                dst=product,
                stationary=a[part][:, top : top + tall],
                moving=b[part][:, left : left + wide],
            )
        dst = total[0:tall, left : left + wide]
        if adds:
            nisa.tensor_tensor(dst=dst, data1=dst, data2=product, op=nl.add)
        else:
            nisa.tensor_copy(dst=dst, src=product)


def matmul(x, y, *, transpose_rhs=False, interpret=None):
    """[m, k], [k, n] (or [n, k]) → [m, n]; a NumPy array where the kernel is simulated."""
    one_of("x.dtype", str(x.dtype), ("float32", "bfloat16"))
    return run(matmul_kernel, x.T, y.T if transpose_rhs else y, interpret=interpret)
