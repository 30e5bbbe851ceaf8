"""Wrong answers to the exercises of "A GPU without a GPU", and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def blocks(threads, registers, shared_bytes):
    return min(2048 // threads, 65536 // (registers * threads))


def place(row, column):
    return row * 32 + column


def padded(row, column):
    return row * 33 + column


RACE = """
__global__ void sums(float* out, const float* in) {
  __shared__ float s[64];
  int i = threadIdx.x;
  s[i] = in[blockIdx.x * 64 + i];
  __syncthreads();
  for (int half = 32; half > 0; half /= 2)
    if (i < half) s[i] += s[i + half];
  if (i == 0) out[blockIdx.x] = s[0];
}"""


def block_sums():
    return RACE


def first_numbers():
    """No thread reads what another wrote, and nothing is summed."""
    return RACE.replace("if (i < half) s[i] += s[i + half];", ";")


def row_sums(x, *, interpret):
    def kernel(x_ref, o_ref):
        o_ref[pl.program_id(0)] = x_ref[pl.program_id(0), jnp.arange(1024)].sum()

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
        grid=(x.shape[0],),
        compiler_params=plgpu.CompilerParams(),
        interpret=interpret,
    )(x)


def product(x, y, *, interpret, tile=128, warps=4):
    def kernel(x_ref, y_ref, o_ref):
        def step(i, acc):
            at = pl.ds(i * 64, 64)
            return acc + plgpu.dot(x_ref[:, at], y_ref[at, :])

        zeros = jnp.zeros(o_ref.shape, jnp.float32)
        o_ref[...] = jax.lax.fori_loop(0, x_ref.shape[1] // 64, step, zeros)

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        grid=(m // tile, n // tile),
        in_specs=[
            pl.BlockSpec((tile, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, tile), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((tile, tile), lambda i, j: (i, j)),
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=3),
        interpret=interpret,
    )(x, y)


WRONG = (
    ("gpu_blocks", blocks, "interpret", "the reference 2"),
    ("bank_places", place, "interpret", "the 32 numbers of column 0 lie in 1 of the banks"),
    ("bank_places", padded, "interpret", "993 of the 1,024 places are taken"),
    ("gpu_halves", block_sums, "interpret", "data race in line 8"),
    ("gpu_halves", first_numbers, "interpret", "the reference"),
    ("gpu_row_sums", row_sums, "interpret", "the numbers are not"),
    ("gpu_product", product, "compile", "registers a thread, at most 128 wanted"),
)
