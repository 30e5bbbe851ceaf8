UNPADDED = "the 32 numbers of column 0 lie in 1 of the banks"


def two_limits(threads, registers, shared_bytes):
    return min(2048 // threads, 65536 // (registers * threads))


WRONG = (
    ("gpu_blocks", two_limits, "interpret", "the reference 2"),
    ("bank_places", {"(column ^ row)": "column"}, "interpret", UNPADDED),
    ("bank_places", {"32 * row + (column ^ row)": "33 * row + column"}, "interpret",
        "993 of the 1,024 places are taken"),
    ("gpu_halves", {"    __syncthreads();\n": "\n"}, "interpret", "data race in line 5"),
    ("gpu_product", {"n // 128)": "n // 128, 2)", " i, j: ": " i, j, s: "}, "compile", "at once"),
    ("gpu_product", {"num_warps=8": "num_warps=4"}, "compile", "at most 128 wanted"),
)  # fmt: skip
