"""The element types of a NeuronCore, in NumPy's terms, and how a number gets into them."""

import ml_dtypes
import numpy as np

float32, float16 = np.dtype("float32"), np.dtype("float16")
bfloat16 = np.dtype(ml_dtypes.bfloat16)
int32, int16, int8 = np.dtype("int32"), np.dtype("int16"), np.dtype("int8")
uint32, uint16, uint8 = np.dtype("uint32"), np.dtype("uint16"), np.dtype("uint8")
bool_ = np.dtype("bool")
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
# NumPy has no such numbers: one field, so that each is a type of its own.
tfloat32 = np.dtype([("tfloat32", "<f4")])  # float32 of which 10 bits of mantissa count
float8_e4m3fn_x4 = np.dtype([("float8_e4m3fn_x4", "<u4")])  # four in one element
float8_e5m2_x4 = np.dtype([("float8_e5m2_x4", "<u4")])
float4_e2m1fn_x4 = np.dtype([("float4_e2m1fn_x4", "<u2")])
float4_e2m1fn = np.dtype(ml_dtypes.float4_e2m1fn)

ALL = {  # of nki.language, which has no boolean and no single float4
    name: value
    for name, value in list(globals().items())
    if isinstance(value, np.dtype) and name not in ("bool_", "float4_e2m1fn")
}
QUADS = {  # packed → one of four
    float8_e4m3fn_x4: float8_e4m3fn,
    float8_e5m2_x4: float8_e5m2,
    float4_e2m1fn_x4: float4_e2m1fn,
}
HALVES = (bfloat16, float16)
EIGHTS = (float8_e4m3, float8_e4m3fn, float8_e5m2)
_NAMES = {dtype: name for name, dtype in ALL.items()}


def of(dtype) -> np.dtype:
    """The element type that a kernel means: a dtype, a NumPy class, a name; torch's too."""
    if isinstance(dtype, np.dtype):
        return dtype
    text = str(dtype).removeprefix("torch.")
    return ALL[text] if text in ALL else np.dtype(dtype)


def name(dtype: np.dtype) -> str:
    """Its name in nki.language."""
    return _NAMES.get(dtype, str(dtype))


def is_integer(dtype: np.dtype) -> bool:
    """Whether bits mean whole numbers."""
    return dtype.kind in "iub"


def is_packed(dtype: np.dtype) -> bool:
    """Whether an element holds four numbers, which only the instructions for them read."""
    return dtype.fields is not None and dtype != tfloat32


def unpacked(values: np.ndarray) -> np.ndarray:
    """The four numbers of each packed element, the one in the lowest bits first: [..., 4] float32.

    Source: mx_cpu_utils.py of the guide "MXFP Matrix Multiplication with NKI" (AWS Neuron).
    """
    element = QUADS[values.dtype]
    if element != float4_e2m1fn:
        return values[..., None].view(np.uint8).view(element).astype(np.float32)
    bits = values.view(np.uint16)[..., None] >> np.array([0, 4, 8, 12], np.uint16)
    return (bits & 15).astype(np.uint8).view(element).astype(np.float32)


def wide(values: np.ndarray) -> np.ndarray:
    """As the engines read what they stream: in float32."""
    dtype = values.dtype
    if dtype == np.float32:
        return values
    if dtype == bfloat16:  # the upper half of a float32
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == tfloat32:
        return values["tfloat32"]
    return values.astype(np.float32)


def same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where two arrays hold the same bits."""
    a, b = (np.ascontiguousarray(values).view(f"u{values.itemsize}") for values in (one, other))
    return a == b


def narrow(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers cast to `dtype`: floats to the nearest, to whole numbers too, which saturate."""
    if values.dtype == dtype:
        return values
    if dtype == tfloat32:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        bits = (bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
        short = np.zeros(values.shape, tfloat32)
        short["tfloat32"] = np.where(np.isfinite(values), bits.view(np.float32), values)
        return short
    with np.errstate(all="ignore"):
        if dtype.kind in "iu":
            whole = values.dtype.kind in "iub"
            numbers = values.astype(np.int64 if whole else np.float64)
            numbers = numbers if whole else np.rint(np.nan_to_num(numbers))
            limits = np.iinfo(dtype)
            return np.clip(numbers, limits.min, limits.max).astype(dtype)
        return np.asarray(values).astype(dtype)
