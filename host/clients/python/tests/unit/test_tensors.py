"""Arrays on the wire."""

from __future__ import annotations

import builtins
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import saggar
from saggar import Port
from saggar._tensors import decode, encode, fit, from_json, to_json

NUMBERS = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


def round_trip(array: Any) -> Any:
    datatype, data = encode("x", array)
    return decode("x", datatype, list(array.shape), data)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_data_type_survives(dtype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    again = round_trip(array)
    assert again.dtype == array.dtype and (again == array).all() and again.flags.writeable and again.flags.aligned
    for shape in ((), (0, 3), (1, 1, 1, 1)):
        assert round_trip(np.ones(shape, dtype)).shape == shape


def test_the_datatypes_have_the_protocols_names_and_little_endian_bytes() -> None:
    assert encode("x", np.array([1, 256], np.uint16)) == ("UINT16", b"\x01\x00\x00\x01")
    assert encode("x", np.array([True, False])) == ("BOOL", b"\x01\x00")
    assert encode("x", np.array([1.0], np.float16)) == ("FP16", b"\x00\x3c")
    assert encode("x", np.array([1.0], ml_dtypes.bfloat16)) == ("BF16", b"\x80\x3f")
    assert encode("x", np.array(["é", b"\xff"], object)) == ("BYTES", b"\x02\x00\x00\x00\xc3\xa9\x01\x00\x00\x00\xff")


def test_big_endian_and_non_contiguous_arrays_are_sent_in_order() -> None:
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    for array in (
        base.astype(">i4"),
        base.T,
        base[::-1, ::2],
        np.asfortranarray(base),
        np.broadcast_to(base[0], (3, 6)),
    ):
        again = round_trip(array)
        assert (again == array).all() and again.dtype == np.int32
    for dtype in (">f2", ">f4", ">f8", ">u8"):
        assert (round_trip(np.arange(3).astype(dtype)) == [0, 1, 2]).all()
    assert (fit(Port("x", "float32"), np.arange(3).astype(">f4")) == [0, 1, 2]).all()


def test_bfloat16_is_float32_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.array([1.5, -2, np.inf], ml_dtypes.bfloat16).tobytes()
    assert decode("x", "BF16", [3], data).dtype == ml_dtypes.bfloat16
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ml_dtypes":
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    plain = decode("x", "BF16", [3], data)
    assert plain.dtype == np.float32 and plain.tolist() == [1.5, -2.0, np.inf]


def test_texts_of_every_kind_are_sent_as_utf_8() -> None:
    strings = getattr(np, "dtypes", None)
    kinds: list[Any] = [np.array(["a", "éé"]), np.array(["a", "éé"], object), np.array(["a".encode(), "éé".encode()])]
    if strings is not None and hasattr(strings, "StringDType"):
        kinds.append(np.array(["a", "éé"], strings.StringDType()))
    for array in kinds:
        again = round_trip(array)
        assert again.dtype == object and again.tolist() == ["a", "éé"], array.dtype
    assert round_trip(np.array("one")).item() == "one"


def test_values_are_converted_if_every_element_fits() -> None:
    for dtype, value in [
        ("uint8", [0, 255]),
        ("int8", [-128, 127]),
        ("uint64", [0, 2**64 - 1]),
        ("float32", [0.1, 2]),
        ("float16", 65504),
        ("float32", [2**24 + 1, -(10**18)]),
        ("int32", True),
        ("float64", np.float32(0.5)),
    ]:
        assert fit(Port("x", dtype), value).dtype == dtype
    truths = fit(Port("x", "uint8", semantics="boolean"), [0, 1])
    assert truths.dtype == bool
    special = fit(Port("x", "float32"), [np.nan, np.inf, -np.inf, 1e-400])
    assert special.dtype == np.float32 and np.isnan(special[0]) and special[1:].tolist() == [np.inf, -np.inf, 0]


def test_elements_that_do_not_fit_are_refused_with_their_value() -> None:
    for dtype, value, element in [
        ("uint8", [1, 256], "256"),
        ("uint8", [-1], "-1"),
        ("int32", [2**40], str(2**40)),
        ("float32", [1e39], "1e[+]39"),
        ("float16", [70000.0], "70000.0"),
        ("int64", [2**64 - 1], str(2**64 - 1)),
        ("int64", [-1, 2**70], str(2**70)),
        ("float16", np.array([2**63], np.uint64), str(2**63)),
    ]:
        with pytest.raises(saggar.BadInput, match=f"x: {element} of an array of .* does not fit into {dtype}"):
            fit(Port("x", dtype), value)
    with pytest.raises(saggar.BadInput, match="2 of an array of int64 does not fit into bool"):
        fit(Port("x", "uint8", semantics="boolean"), [0, 2])


def test_arrays_of_another_kind_are_left_to_the_server() -> None:
    for value in (np.array([0.5]), np.array([1.0]), np.array(["a"]), np.array([1j])):
        assert fit(Port("x", "uint8"), value) is value


def test_what_has_no_form_on_the_wire_is_refused() -> None:
    for value, reason in [
        (np.array([object()]), "element 0 is of type object"),
        (np.array([2**70]), "element 0 is of type int"),
        (np.array(["a", None], object), "element 1 is of type NoneType"),
        (np.array([1j]), "complex128 cannot be sent"),
        (np.array(["2020-01-01"], "M8[D]"), "cannot be sent"),
        (np.zeros(1, "i4,f4"), "cannot be sent"),
        (np.array(["\ud800"], object), "element 0 is not Unicode text"),
        (np.zeros(1, "V3"), "cannot be sent"),
    ]:
        with pytest.raises(saggar.BadInput, match=reason):
            encode("x", value)
    with pytest.raises(saggar.BadInput, match="x: not an array: .*inhomogeneous"):
        fit(Port("x", "float32"), [[1], [1, 2]])


def test_truncated_and_contradictory_outputs_are_refused() -> None:
    text = struct.pack("<I", 2) + b"ab"
    for datatype, shape, data, reason in [
        ("FP32", [2], bytes(7), "has 8 bytes, got 7"),
        ("FP32", [2], bytes(9), "has 8 bytes, got 9"),
        ("FP99", [1], bytes(4), "unknown datatype 'FP99'"),
        ("BYTES", [2], text, "ends within text 1|too few"),
        ("BYTES", [1], text + b"x", "1 bytes follow"),
        ("BYTES", [1], text[:5], "ends within text 0"),
        ("BYTES", [1], b"\xff\xff\xff\xff", "ends within text 0"),
        ("BYTES", [10**12], text, "too few"),
        ("UINT8", [10**15], b"", "got 0"),
    ]:
        with pytest.raises(saggar.BadAnswer, match=reason):
            decode("y", datatype, shape, data)


def test_json_outputs_have_the_ports_type() -> None:
    assert from_json(Port("y", "float16"), [1.5, None]).dtype == np.float16
    assert np.isnan(from_json(Port("y", "float32"), None))
    assert from_json(Port("y", "int64"), [2**62]).tolist() == [2**62]
    assert from_json(Port("y", "uint8", semantics="boolean"), [0, 1]).tolist() == [False, True]
    assert from_json(Port("y", "uint8", [9], semantics="text"), ["a", "b"]).tolist() == ["a", "b"]
    for value in ([1, [2]], {"a": 1}, "text", [300]):
        with pytest.raises(saggar.BadAnswer, match="output y"):
            from_json(Port("y", "uint8"), value)


def test_json_inputs_are_nested_lists() -> None:
    assert to_json("x", np.array([[1, 2]], np.uint8)) == [[1, 2]]
    assert to_json("x", np.array([b"a", "b"], object)) == ["a", "b"]
    assert to_json("x", np.array("a")) == "a"
