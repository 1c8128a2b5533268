"""Tensors on the host's device, and the elements in them."""

from __future__ import annotations

import array
import struct
import sys
from typing import Iterable, Sequence

from wit_world.imports import tensors as raw
from wit_world.imports.tensors import DataType as DataType
from wit_world.imports.tensors import Descriptor as Descriptor

from .errors import call

float32 = DataType.FLOAT32
float16 = DataType.FLOAT16
int64 = DataType.INT64
uint64 = DataType.UINT64
int32 = DataType.INT32
uint32 = DataType.UINT32
int8 = DataType.INT8
uint8 = DataType.UINT8

_CODES = {
    float32: "f",
    float16: "e",
    int64: "q",
    uint64: "Q",
    int32: "i",
    uint32: "I",
    int8: "b",
    uint8: "B",
}


def pack(data_type: DataType, values: Iterable[float]) -> bytes:
    """Returns little-endian elements of these numbers."""
    code = _CODES[data_type]
    if code == "e":
        numbers = list(values)
        return struct.pack(f"<{len(numbers)}e", *numbers)
    elements = array.array(code, values if code in "fd" else [int(value) for value in values])
    if sys.byteorder == "big":
        elements.byteswap()
    return elements.tobytes()


def unpack(data_type: DataType, data: bytes) -> list[float]:
    """Returns the numbers of little-endian elements."""
    code = _CODES[data_type]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def batched(item: Descriptor, size: int) -> Descriptor:
    """Returns the descriptor of `size` stacked items."""
    return Descriptor(item.data_type, [size, *item.shape])


class Tensor:
    """A dense tensor, owned by the host."""

    def __init__(self, handle: raw.Tensor) -> None:
        self.raw = handle

    @classmethod
    def from_bytes(cls, data_type: DataType, shape: Sequence[int], data: bytes) -> Tensor:
        """Creates a tensor of little-endian elements in row-major order."""
        return cls(call(raw.Tensor.from_bytes, Descriptor(data_type, list(shape)), data))

    @classmethod
    def of(cls, values: Iterable[float], shape: Sequence[int], data_type: DataType = float32) -> Tensor:
        """Creates a tensor of these numbers, in row-major order."""
        return cls.from_bytes(data_type, shape, pack(data_type, values))

    @property
    def data_type(self) -> DataType:
        """The type of the elements."""
        return self.raw.descriptor().data_type

    @property
    def shape(self) -> list[int]:
        """The shape."""
        return self.raw.descriptor().shape

    def read(self) -> bytes:
        """Returns the elements, little-endian, in row-major order. Waits for the work that produces them."""
        return call(self.raw.read)

    def tolist(self) -> list[float]:
        """Returns the elements as one list of numbers, in row-major order. Waits for the work that produces them."""
        return unpack(self.data_type, self.read())

    def item(self) -> float:
        """Returns the only element."""
        (value,) = self.tolist()
        return value


def tensors_by_name(tensors: Iterable[raw.NamedTensor]) -> dict[str, Tensor]:
    """Returns the host's tensors by their names."""
    return {named.name: Tensor(named.tensor) for named in tensors}


def unpadded(text: bytes) -> str:
    """Returns a text that is padded with zeros, such as an item of a text field."""
    return text.rstrip(b"\0").decode()
