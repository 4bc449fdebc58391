# Writes reference.safetensors with the reference library: pip install safetensors==0.8.0 numpy
# The test that reads it holds the same numbers.
import struct

import numpy as np
from safetensors import TensorSpec, serialize

keep, tensors = [], {}


def add(name, dtype, shape, data):
    buffer = np.frombuffer(data or b"\0", dtype=np.uint8).copy()
    keep.append(buffer)
    tensors[name] = TensorSpec(dtype=dtype, shape=shape, data_ptr=buffer.ctypes.data, data_len=len(data))


def array(dtype, *values):
    return np.array(values, dtype).tobytes()


inf = float("inf")
add("half", "float16", [2, 4], array("<f2", 0.0, -0.0, 1.0, -2.5, 65504.0, inf, -inf, 2.0**-24))
add("brain", "bfloat16", [2], struct.pack("<HH", 0x3F80, 0xC2F7))
add("single", "float32", [2, 2], array("<f4", 1 / 3, 1e-45, 3.4e38, -1))
add("double", "float64", [3], array("<f8", np.pi, 5e-324, -1e300))
add("i8", "int8", [3], array("<i1", -128, 0, 127))
add("u8", "uint8", [3], array("<u1", 0, 128, 255))
add("i16", "int16", [2], array("<i2", -(2**15), 2**15 - 1))
add("u16", "uint16", [1], array("<u2", 2**16 - 1))
add("i32", "int32", [2], array("<i4", -(2**31), 2**31 - 1))
add("u32", "uint32", [1], array("<u4", 2**32 - 1))
add("i64", "int64", [2], array("<i8", -(2**53), 2**53))
add("u64", "uint64", [1], array("<u8", 2**53))
add("bool", "bool", [4], bytes([1, 0, 0, 1]))
add("scalar", "float32", [], array("<f4", 7))
add("empty", "float32", [0, 5], b"")
add('naïve "name"/\\\n\t\x01<&>', "uint8", [1], bytes([42]))
for dtype in "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz":
    add(dtype, dtype, [3], b"abc")
add("complex64", "complex64", [1], b"abcdefgh")
add("float4_e2m1fn_x2", "float4_e2m1fn_x2", [1], b"a")

with open("reference.safetensors", "wb") as f:
    f.write(serialize(tensors, metadata={"note": 'größer "<" \\'}))
