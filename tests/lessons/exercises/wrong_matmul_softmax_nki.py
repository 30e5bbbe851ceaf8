"""Wrong answers to the exercises of this chapter, and what is said of each."""

from kernels.machines.neuron.api import nisa, nki, nl


@nki.jit
def crowded(xt, y):
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = []
    for i in range((m + 127) // 128):
        sums.append(nl.ndarray((min(128, m - i * 128), n), dtype=nl.float32, buffer=nl.psum))
    for step in range(k // 128):
        here = step * 128
        a, b = nl.load(xt[here : here + 128, :]), nl.load(y[here : here + 128, :])
        for i in range(len(sums)):
            part = a[:, i * 128 : min(i * 128 + 128, m)]
            nisa.nc_matmul(dst=sums[i], stationary=part, moving=b)
    for i in range(len(sums)):
        c = nl.ndarray(sums[i].shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=c, src=sums[i])
        nisa.dma_copy(dst=z[i * 128 : min(i * 128 + 128, m), :], src=c)
    return z


@nki.jit
def last_only(xt, y):
    """Each product overwrites the sum."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range((m + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, m)
        total = nl.ndarray((last - first, n), dtype=nl.float32, buffer=nl.psum)
        for step in range(k // 128):
            here = step * 128
            a, b = nl.load(xt[here : here + 128, first:last]), nl.load(y[here : here + 128, :])
            nisa.nc_matmul(dst=total, stationary=a, moving=b, accumulate=False)
        c = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=c, src=total)
        nisa.dma_copy(dst=z[first:last, :], src=c)
    return z


@nki.jit
def by_dma(x):
    """Right, and the Tensor engine has nothing to do."""
    m, n = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range((n + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, n)
        tile = nl.ndarray((last - first, m), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile, src=x[:, first:last])
        nisa.dma_copy(dst=out[first:last, :], src=tile)
    return out


@nki.jit
def out_of_psum(x):
    """A DMA of PSUM, and one tile whatever the size."""
    m, n = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    turned = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=nl.load(x), engine=nisa.engine.tensor)
    nisa.dma_copy(dst=out, src=turned)
    return out


@nki.jit
def by_vector(x):
    """The sums are the Vector engine's."""
    rows = x.shape[0]
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for part in nl.affine_range((rows + 127) // 128):
        first, last = part * 128, min(part * 128 + 128, rows)
        a = nl.load(x[first:last, :])
        total = nl.ndarray((last - first, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=a, op=nl.exp, data=a)
        nisa.tensor_reduce(dst=total, op=nl.add, data=a, axis=1)
        nisa.dma_copy(dst=out[first:last, :], src=total)
    return out


@nki.jit
def along_rows(x):
    """A softmax of the other dimension."""
    m = x.shape[0]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range((m + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, m)
        a = nl.load(x[first:last, :])
        lowest = nl.ndarray((last - first, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((last - first, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=a, axis=1, negate=True)
        nisa.activation_reduce(
            dst=a, op=nl.exp, data=a, reduce_op=nl.add, reduce_res=total, bias=lowest
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[first:last, :], src=a)
    return out


@nki.jit
def fetched_again(xt, y):
    """Right, and every product fetches its tiles."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(m // 128):
        for j in range(n // 512):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for step in range(k // 128):
                here = step * 128
                a = nl.load(xt[here : here + 128, i * 128 : i * 128 + 128])
                b = nl.load(y[here : here + 128, j * 512 : j * 512 + 512])
                nisa.nc_matmul(dst=total, stationary=a, moving=b)
            c = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=c, src=total)
            nisa.dma_copy(dst=z[i * 128 : i * 128 + 128, j * 512 : j * 512 + 512], src=c)
    return z


@nki.jit
def fetched_first(xt, y):
    """Everything is fetched once, but the first sum waits for all of k."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = [], []
    for here in range(0, k, 128):
        a.append(nl.load(xt[here : here + 128, :]))
        b.append(nl.load(y[here : here + 128, :]))
    for i in range(m // 128):
        for j in range(n // 512):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for step in range(k // 128):
                nisa.nc_matmul(
                    dst=total,
                    stationary=a[step][:, i * 128 : i * 128 + 128],
                    moving=b[step][:, j * 512 : j * 512 + 512],
                )
            c = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=c, src=total)
            nisa.dma_copy(dst=z[i * 128 : i * 128 + 128, j * 512 : j * 512 + 512], src=c)
    return z


@nki.jit
def with_float32(xt, y):
    """Everything is fetched once, and multiplied in float32: four times the cycles."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = []
    for _ in range((m // 128) * (n // 512)):
        sums.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))
    for step in range(k // 128):
        here = step * 128
        a = nl.ndarray((128, m), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=a, src=nl.load(xt[here : here + 128, :]))
        nisa.tensor_copy(dst=b, src=nl.load(y[here : here + 128, :]))
        for i in range(m // 128):
            for j in range(n // 512):
                nisa.nc_matmul(
                    dst=sums[i * (n // 512) + j],
                    stationary=a[:, i * 128 : i * 128 + 128],
                    moving=b[:, j * 512 : j * 512 + 512],
                )
    for i in range(m // 128):
        for j in range(n // 512):
            c = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=c, src=sums[i * (n // 512) + j])
            nisa.dma_copy(dst=z[i * 128 : i * 128 + 128, j * 512 : j * 512 + 512], src=c)
    return z


@nki.jit
def zeros_of_one(x):
    out = nl.ndarray(x.shape[::-1], dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range((x.shape[1] + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, x.shape[1])
        none = nl.ndarray((last - first, x.shape[0]), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=none, value=0.0)
        nisa.dma_copy(dst=out[first:last, :], src=none)
    return out


@nki.jit
def zeros_of_sums(x):
    out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range((x.shape[0] + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, x.shape[0])
        none = nl.ndarray((last - first, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=none, value=0.0)
        nisa.dma_copy(dst=out[first:last, :], src=none)
    return out


@nki.jit
def zeros_of_columns(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range((x.shape[0] + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, x.shape[0])
        none = nl.ndarray((last - first, x.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=none, value=0.0)
        nisa.dma_copy(dst=out[first:last, :], src=none)
    return out


@nki.jit
def zeros_of_product(xt, y):
    out = nl.ndarray((xt.shape[1], y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range((xt.shape[1] + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, xt.shape[1])
        none = nl.ndarray((last - first, y.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=none, value=0.0)
        nisa.dma_copy(dst=out[first:last, :], src=none)
    return out


@nki.jit
def streamed(xt, y):
    """The narrow matrix stays, and the wide one streams past; then the result is turned."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(m // 128):
        total = nl.ndarray((n, 128), dtype=nl.float32, buffer=nl.psum)
        for step in range(k // 128):
            here = slice(step * 128, step * 128 + 128)
            a, b = nl.load(xt[here, i * 128 : i * 128 + 128]), nl.load(y[here, :])
            nisa.nc_matmul(dst=total, stationary=b, moving=a)
        c = nl.ndarray((n, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=c, src=total)
        turned = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=c, engine=nisa.engine.tensor)
        d = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=d, src=turned)
        nisa.dma_copy(dst=z[i * 128 : i * 128 + 128, :], src=d)
    return z


@nki.jit
def banks_of_their_own(xt, y):
    """Each product has a tile, and leaves alone."""
    b, _, m = xt.shape
    n = y.shape[2]
    z = nl.ndarray((b, m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(b):
        total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=nl.load(xt[i]), moving=nl.load(y[i]))
        c = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=c, src=total)
        nisa.dma_copy(dst=z[i], src=c)
    return z


@nki.jit
def all_into_one(xt, y):
    """The products of eight are added up: they share a tile, and each all of it."""
    b, _, m = xt.shape
    n = y.shape[2]
    z = nl.ndarray((b, m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for first in range(0, b, 8):
        total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
        for i in range(first, min(first + 8, b)):
            nisa.nc_matmul(dst=total, stationary=nl.load(xt[i]), moving=nl.load(y[i]))
        c = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=c, src=total)
        for i in range(first, min(first + 8, b)):
            nisa.dma_copy(dst=z[i], src=c)
    return z


@nki.jit
def zeros_of_batches(xt, y):
    b, _, m = xt.shape
    out = nl.ndarray((b, m, y.shape[2]), dtype=nl.float32, buffer=nl.shared_hbm)
    none = nl.ndarray((m, y.shape[2]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=none, value=0.0)
    for i in range(b):
        nisa.dma_copy(dst=out[i], src=none)
    return out


WRONG = (
    ("nki_matrix_stays", streamed, "simulate", "cycles, and may for"),
    ("nki_matrix_stays", last_only, "interpret", "allowed"),
    ("nki_matrix_stays", zeros_of_product, "interpret", "every element is zero"),
    ("nki_shared_bank", banks_of_their_own, "simulate", "16 products out of PSUM; 2 can"),
    ("nki_shared_bank", all_into_one, "interpret", "allowed"),
    ("nki_shared_bank", zeros_of_batches, "interpret", "every element is zero"),
    ("nki_psum", crowded, "simulate", "which has 16 KiB"),
    ("nki_psum", last_only, "interpret", "allowed"),
    ("nki_psum", zeros_of_product, "interpret", "every element is zero"),
    ("nki_transpose", by_dma, "simulate", "the Tensor engine has nothing to do"),
    ("nki_transpose", out_of_psum, "simulate", "a DMA does not reach PSUM"),
    ("nki_transpose", zeros_of_one, "interpret", "every element is zero"),
    ("nki_exp_sums", by_vector, "simulate", "the Vector engine has 1 instructions"),
    ("nki_exp_sums", zeros_of_sums, "interpret", "every element is zero"),
    ("nki_softmax_columns", along_rows, "interpret", "allowed"),
    ("nki_softmax_columns", zeros_of_columns, "interpret", "every element is zero"),
    ("nki_fast_product", fetched_again, "speed", "the bar is 24.0"),
    ("nki_fast_product", fetched_first, "speed", "26.0 µs, estimated for an Inf2; the bar is 24.0"),
    ("nki_fast_product", with_float32, "speed", "the bar is 24.0"),
    ("nki_fast_product", zeros_of_product, "interpret", "every element is zero"),
)
