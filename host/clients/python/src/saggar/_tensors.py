"""NumPy arrays as tensors of the Open Inference Protocol, in its binary form: dense elements, little-endian."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._documents import Port
from .errors import BadAnswer, BadInput

Array = NDArray[Any]

# The protocol's name of each data type that NumPy has.
_DATATYPES = {
    "bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8",
    "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "float16": "FP16", "float32": "FP32",
    "float64": "FP64", "bfloat16": "BF16",
}
_DTYPES = {datatype: name for name, datatype in _DATATYPES.items()}


def is_text(port: Port) -> bool:
    return port.semantics == "text" and port.dtype == "uint8" and len(port.shape) == 1


def as_array(name: str, value: Any) -> Array:
    """Returns a value as an array. Anything that NumPy converts is accepted: lists, scalars, pandas objects, images."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"{name}: not an array: {error}") from error


def fit(port: Port, value: Any) -> Array:
    """Returns a value as an array that the port takes, if every element fits; what becomes a float may be rounded.

    Floats for integers, and other kinds that never fit, are returned unchanged: the server refuses them.

    Errors: `BadInput` if an element does not fit into the port's type, or if elements have no form on the wire.
    """
    array = as_array(port.name, value)
    if is_text(port):
        return array
    target = np.dtype(bool if port.semantics == "boolean" else port.dtype)
    if target.kind in "iu" and array.dtype.kind in "fO" and not hasattr(value, "dtype"):
        # NumPy reads lists with large integers as floats, or as objects.
        exact = np.asarray(value, dtype=object)
        array = exact if all(type(element) is int for element in exact.flat) else array
        convertible = array is exact
    else:
        convertible = array.dtype.kind in ("biu" if target.kind in "iub" else "biuf")
    if array.dtype == target or not convertible:
        return array
    lost = _misfits(array, target)
    if lost.any():
        element = array[lost].flat[0]
        raise BadInput(f"{port.name}: {element!s} of an array of {array.dtype} does not fit into {target}")
    return array.astype(target)


def _misfits(array: Array, target: np.dtype[Any]) -> NDArray[np.bool_]:
    """Returns which elements the target cannot represent."""
    if target.kind == "b":
        return np.asarray((array != 0) & (array != 1))
    if target.kind == "f":
        with np.errstate(over="ignore"):
            return np.asarray(np.isfinite(array) & ~np.isfinite(array.astype(target)))
    if array.dtype.kind == "b":
        return np.zeros(array.shape, bool)
    return np.asarray((array < int(np.iinfo(target).min)) | (array > int(np.iinfo(target).max)))


def encode(name: str, array: Array) -> tuple[str, bytes]:
    """Returns the datatype and the elements of an array, in row-major order.

    Errors: `BadInput` for complex numbers, times, structures, and objects other than texts.
    """
    if array.dtype.kind in "OUST":
        return "BYTES", b"".join(_encode_text(name, at, item) for at, item in enumerate(array.reshape(-1).tolist()))
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None:
        raise BadInput(f"{name}: arrays of {array.dtype} cannot be sent", hint="convert it with array.astype(...)")
    if array.dtype.kind in "iuf" and array.dtype.itemsize > 1:
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return datatype, array.tobytes()


def _encode_text(name: str, at: int, item: Any) -> bytes:
    if not isinstance(item, (str, bytes)):
        hint = "an array of objects holds texts; convert numbers with array.astype(...)"
        raise BadInput(f"{name}: element {at} is of type {type(item).__name__}, not a text", hint=hint)
    try:
        text = item.encode() if isinstance(item, str) else item
    except UnicodeEncodeError as error:
        raise BadInput(f"{name}: element {at} is not Unicode text: {error.reason}") from error
    return struct.pack("<I", len(text)) + text


def decode(name: str, datatype: str, shape: list[int], data: bytes) -> Array:
    """Returns the array of these elements, which owns its memory. `BYTES` becomes an array of `str` objects, `BF16`
    needs the package `ml_dtypes` and is `float32` without it.

    Errors: `BadAnswer` if the number of bytes is not that of the shape.
    """
    count = 1
    for dim in shape:
        count *= dim
    if datatype == "BYTES":
        return _decode_texts(name, count, data).reshape(shape)
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise BadAnswer(f"output {name}: unknown datatype {datatype!r}")
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
    if count * stored.itemsize != len(data):
        raise BadAnswer(f"output {name}: {datatype}{shape} has {count * stored.itemsize} bytes, got {len(data)}")
    array = np.frombuffer(data, stored).reshape(shape)
    if dtype == "bfloat16":
        return _decode_bfloat16(array)
    return array.astype(dtype)


def _decode_bfloat16(bits: Array) -> Array:
    try:
        import ml_dtypes
    except ImportError:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(bits.astype(np.uint16).view(ml_dtypes.bfloat16))


def _decode_texts(name: str, count: int, data: bytes) -> Array:
    if count > len(data) // 4:
        raise BadAnswer(f"output {name}: {len(data)} bytes are too few for {count} texts")
    texts, at = np.empty(count, dtype=object), 0
    for index in range(count):
        (length,) = struct.unpack_from("<I", data, at) if at + 4 <= len(data) else (len(data),)
        at += 4 + length
        if at > len(data):
            raise BadAnswer(f"output {name}: the data ends within text {index}")
        texts[index] = data[at - length : at].decode("utf-8", "replace")
    if at != len(data):
        raise BadAnswer(f"output {name}: {len(data) - at} bytes follow the last text")
    return texts


def to_json(name: str, array: Array) -> Any:
    """Returns an array as nested lists. Errors: those of `encode`."""
    encode(name, array)
    if array.dtype.kind not in "OUST":
        return array.tolist()
    text = np.frompyfunc(lambda item: item.decode() if isinstance(item, bytes) else str(item), 1, 1)
    return np.asarray(text(array), dtype=object).tolist()


def from_json(port: Port, value: Any) -> Array:
    """Returns the elements of an output that came as JSON. `null` is NaN."""
    try:
        if is_text(port):
            texts = np.empty(np.shape(value), dtype=object)
            texts[...] = value
            return texts
        dtype = np.dtype(bool if port.semantics == "boolean" else port.dtype)
        return np.array(value, dtype=np.float64 if dtype.kind == "f" else dtype).astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadAnswer(f"output {port.name}: {error}") from error
