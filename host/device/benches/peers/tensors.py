"""Files of named tensors in the safetensors format, which the harness reads and writes.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
import struct

import numpy

NAMES = {"float32": "F32", "float16": "F16", "int32": "I32"}


def save(path, tensors, metadata={}):
    """Writes NumPy arrays by name, and numbers that describe the network."""
    header, parts, end = {"__metadata__": {name: str(number) for name, number in metadata.items()}}, [], 0
    for name, tensor in tensors.items():
        data = numpy.ascontiguousarray(tensor)
        begin, end = end, end + data.nbytes
        header[name] = {"dtype": NAMES[str(data.dtype)], "shape": list(data.shape), "data_offsets": [begin, end]}
        parts.append(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for data in parts:
            file.write(memoryview(data).cast("B"))


def load(path):
    """Returns the NumPy arrays of a file by name."""
    types = {short: long for long, short in NAMES.items()}
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    header.pop("__metadata__", None)
    found = {}
    for name, it in header.items():
        begin, end = it["data_offsets"]
        found[name] = numpy.frombuffer(data[begin:end], types[it["dtype"]]).reshape(it["shape"])
    return found
