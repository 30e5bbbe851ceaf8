"""The problems that the norms are proven on."""

from kernels.machines.tpu.rows import RowBlocks
from kernels.proof.workload import along_rows, cases, values

_BF16 = {"dtype": "bfloat16"}
_EPS = {"options": {"eps": 0.5}}


def _in_parts(columns):
    return {"tuning": {"block": RowBlocks(32, columns)}}


def _workloads(vectors):
    """Those of x [rows, n] and so many [n]."""

    def make(workload, rng):
        rows, n = workload.sizes["rows"], workload.sizes["n"]
        x = values(workload.values, (rows, n), workload.dtype, rng)
        if workload.values == "cancelling":
            x = abs(x)  # near 1000: the mean of the squares, less the mean's, loses all digits
        if workload.name == "constant":
            x = x[:, :1].repeat(n, 1)
        return x, *(values("normal", (n,), workload.dtype, rng) for _ in range(vectors))

    return along_rows(
        make,
        vectors=vectors,
        named=cases(
            "rows n",
            one=(1, 1, "a row of one element"),
            column=(257, 1, "rows of one element, in two blocks"),
            prime=(131, 509, "no block divides it", _BF16),
            model=(197, 768, "a layer of ViT-B/16", _BF16),
            eps=(33, 130, "eps as large as the mean of the squares", _EPS),
            constant=(16, 384, "no variance at all"),
            cancelling=(16, 128, "all near 1000", {"values": "cancelling"}),
            cancelling_parts=(
                *(40, 300, "all near 1000, in three parts"),
                *({"values": "cancelling"}, _in_parts(128)),
            ),
            parts=(101, 509, "rows in four parts, the last one cut short", _in_parts(128)),
            parts_bf16=(70, 640, "the same, whole", _BF16, _in_parts(256)),
            long=(3, 140_003, "rows longer than one pass takes"),
            wide=(65, 129, {"values": "wide"}),
            nonfinite=(31, 33, "NaN stays in its row", {"values": "nonfinite"}),
        ),
        figures=cases(
            "rows n",
            dtype="bfloat16",
            rows_32768=(32768, 8192, "of which others published times"),
            llama_8b=(8192, 4096, "the tokens of a sequence"),
        ),
    )


rms_norm, layer_norm = _workloads(1), _workloads(2)
