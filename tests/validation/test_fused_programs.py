"""The whole programs that others timed compute what their publisher says, in float64."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp, softmax
from test_tpu_programs import drawn, key

from validation import fused_programs
from validation.tpu_programs import FAMILIES, program


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def norm(x, axis=-1):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def swish(x):
    return x * expit(x)


def groups(x, count, gain, offset):
    return norm(x.reshape(len(x), count, -1)).reshape(x.shape) * gain + offset


def batch_norm(y, mean, var, gain, offset):
    return (y - mean) / np.sqrt(var + 1e-5) * gain + offset


def experts(x, router, gate, up, down):
    scores = x @ router
    out = np.zeros(x.shape)
    for place in np.ndindex(x.shape[:2]):
        best = np.argsort(-scores[place])[:2]
        for expert, share in zip(best, softmax(scores[place][best])):
            hidden = swish(x[place] @ gate[expert]) * (x[place] @ up[expert])
            out[place] += share * (hidden @ down[expert])
    return out


def conv(x, kernel, b):
    out = np.zeros((len(x), len(kernel), x.shape[2] - 2, x.shape[3] - 2))
    for i, j in np.ndindex(3, 3):
        part = x[:, :, i : i + out.shape[2], j : j + out.shape[3]]
        out += np.einsum("bchw,oc->bohw", part, kernel[:, :, i, j])
    return gelu(out + b[:, None, None]).mean((2, 3))


def transposed(x, kernel, b, gain, offset):
    batch, _, *sizes = x.shape
    out = np.zeros((batch, kernel.shape[1], *(2 * size + 2 for size in sizes)))
    for at in np.ndindex(*sizes):
        window = tuple(slice(2 * i, 2 * i + 4) for i in at)
        out[(slice(None), slice(None), *window)] += np.einsum(
            "bc,coxyz->boxyz", x[(slice(None), slice(None), *at)], kernel
        )
    y = out[:, :, 1:-1, 1:-1, 1:-1].transpose(0, 2, 3, 4, 1) + b
    return gelu(norm(y) * gain + offset).transpose(0, 4, 1, 2, 3)


def mish(z):
    return z * z * np.tanh(np.logaddexp(z, 0))


EXPECTED = {
    "matmul_sum": lambda x, w: 0.75 * (x @ w.T).sum(1, keepdims=True),
    "matmul_logsumexp": lambda x, w, b: mish(
        logsumexp(np.clip(4 * (x @ w.T + b), -10, 10), 1, keepdims=True)
    ),
    "matmul_norm_of_one": lambda x, y, w, b, gain, offset: (offset + y) * y,
    "matmul_groupnorm_64": lambda x, w, b, *rest: groups(swish(x @ w) + b, 64, *rest),
    "matmul_groupnorm_256": lambda x, w, b, gain, offset, scale: swish(
        swish(groups(x @ w.T + b, 256, gain, offset)) * scale
    ),
    "matmul_residual": lambda x, w, b: 1.5 * (x @ w + b),
    "matmul_gelu_tanh": lambda x, w, b: gelu(np.clip((x @ w + b) / 2, -2, 2)),
    "matmul_softmax": lambda x, w, b: softmax(x @ w.T + b, 1),
    "matmul_max_gelu": lambda x, w, b: np.zeros((5, 1)),
    "matmul_batchnorm_softmax": lambda x, w, b, *rest: softmax(
        batch_norm(x @ w + b, *rest[:-1]) * rest[-1], 1
    ),
    "matmul_batchnorm_swish": lambda x, w, b, *rest: swish(
        batch_norm(x @ w + b, *rest[:-1]) + rest[-1]
    ),
    "matmul_div_gelu": lambda x, w, b: gelu((x @ w + b) / 10),
    "matmul_five_activations": lambda x, w, b, a: np.clip(
        gelu(np.tanh(swish(x @ w + b + a))), -1, 1
    ),
    "matmul_avgpool_max": lambda x, w, b: 2 * gelu((x @ w + b).reshape(5, -1, 16).mean(-1)).max(1),
    "conv2d_gelu_mean": conv,
    "transposed_conv3d": transposed,
    "swiglu": lambda x, gate, up, down: (swish(x @ gate) * (x @ up)) @ down,
    "experts_all": experts,
}
SIZES = {  # where others than those of a product
    "conv2d_gelu_mean": {"b": 2, "c": 3, "h": 6, "o": 4},
    "transposed_conv3d": {"b": 2, "c": 3, "e": 2, "h": 3, "o": 4},
    "swiglu": {"b": 2, "t": 3, "d": 8, "f": 5},
    "experts_all": {"b": 2, "t": 3, "d": 8, "f": 5, "e": 4},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_computes_what_its_publisher_says(name):
    ran = program(key(name, "xla", SIZES.get(name, {"m": 5, "k": 7, "n": 512})))
    arguments = drawn(ran.arguments)
    if "batchnorm" in name:
        arguments[4] = abs(arguments[4])  # a variance
    result = np.asarray(ran.function(*arguments), np.float64)
    wanted = EXPECTED[name](*(np.asarray(a, np.float64) for a in arguments))
    assert result.shape == wanted.shape
    assert np.abs(result - wanted).max() <= 1e-4 * max(1, np.abs(wanted).max())


def test_all_of_them_are_checked():
    names = {n for n, f in FAMILIES.items() if f.build.__module__ == fused_programs.__name__}
    assert names == {(name, "xla") for name in EXPECTED}
