"""Datasets from memory: arrays and data frames as the `.npy` files and the `dataset.json` that the server reads."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._documents import Port
from ._tensors import Array, as_array, fit
from .errors import BadInput

Splits = Mapping[str, float] | Mapping[str, tuple[int, int]]

# Column names that mean the label, as for CSV files.
_LABELS = ("label", "class", "target", "y", "species")
# More different integers are a quantity.
_NUMBERED_CLASSES_MAX = 100
# The server's types; others are widened, or rounded.
_STORED = {"bool": "uint8", "int16": "int32", "uint16": "int32", "float64": "float32"}


def files_of_arrays(
    fields: Mapping[str, Any], classes: Mapping[str, Sequence[str]] | None, splits: Splits | None, description: str
) -> dict[str, bytes]:
    """Returns the files of a dataset whose fields are arrays with items along the first axis. Mappings of mappings are
    splits of equal fields.

    Errors: `BadInput` if fields have different numbers of items, or elements that a dataset cannot have.
    """
    classes = classes or {}
    if fields and all(isinstance(value, Mapping) for value in fields.values()):
        if splits is not None:
            raise BadInput("the data is divided into splits already")
        fields, splits = _joined(fields)
    arrays = {str(name): _stored(str(name), value, classes.get(name)) for name, value in fields.items()}
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not arrays or min(counts.values()) == 0 or len(set(counts.values())) > 1:
        raise BadInput(f"every field of a dataset has the same number of items, at least one; got {counts}")
    items = next(iter(counts.values()))
    ranges, order = _ranges(splits or {"train": 1.0}, items)
    listed = []
    files = {}
    for at, (name, array) in enumerate(arrays.items()):
        file = io.BytesIO()
        ordered = np.ascontiguousarray(array if order is None else array[order])
        np.lib.format.write_array(file, ordered, allow_pickle=False)
        files[f"{at}.npy"] = file.getvalue()
        names = {"classes": list(classes[name])} if classes.get(name) else {}
        listed.append({"name": name, "file": f"{at}.npy", **names})
    manifest = {"format": "npy", "fields": listed, "splits": ranges, "description": description}
    return {"dataset.json": json.dumps(manifest).encode(), **files}


def _joined(parts: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Array], dict[str, tuple[int, int]]]:
    """Joins splits. Returns the fields, and the range of items of each split."""
    names = list(next(iter(parts.values())))
    at, ranges = 0, {}
    for split, fields in parts.items():
        if set(fields) != set(names):
            raise BadInput(f"split {split} has the fields {list(fields)}, the first one has {names}")
        count = len(as_array(names[0], fields[names[0]])) if names else 0
        ranges[split] = (at, at + count)
        at += count
    return {name: np.concatenate([as_array(name, fields[name]) for fields in parts.values()]) for name in names}, ranges


def _stored(name: str, value: Any, classes: Sequence[str] | None) -> Array:
    """Returns a field in a type that datasets have. Texts become class numbers, or bytes with zeros after them."""
    array = as_array(name, value)
    if array.dtype.kind in "OUST":
        texts = array.tolist()
        if array.ndim != 1 or not all(isinstance(text, str) for text in texts):
            raise BadInput(f"field {name}: an array of objects must be a list of texts", hint="use array.astype(...)")
        return _class_numbers(name, texts, classes) if classes else _text_bytes(texts)
    target = _STORED.get(array.dtype.name, array.dtype.name)
    if target not in ("float32", "float16", "int64", "uint64", "int32", "uint32", "int8", "uint8"):
        raise BadInput(f"field {name}: a dataset has no fields of {array.dtype}", hint="use array.astype(...)")
    return fit(Port(f"field {name}", target), array)


def _class_numbers(name: str, texts: Sequence[str], classes: Sequence[str]) -> Array:
    numbers = {text: at for at, text in enumerate(classes)}
    unknown = next((text for text in texts if text not in numbers), None)
    if unknown is not None:
        raise BadInput(f"field {name}: {unknown!r} is not one of its classes")
    return np.array([numbers[text] for text in texts], np.uint8 if len(classes) <= 256 else np.uint32)


def _text_bytes(texts: Sequence[str]) -> Array:
    """Returns `uint8[n, longest]`, with zeros after shorter texts."""
    encoded = np.array([text.encode() for text in texts], dtype=bytes)
    return np.frombuffer(encoded.tobytes(), np.uint8).reshape(len(texts), -1)


def _ranges(splits: Splits, items: int) -> tuple[dict[str, list[int]], Array | None]:
    """Returns the range of each split, and the order of items that makes splits by shares contiguous. As of a CSV file,
    each item goes to the split that is furthest below its share."""
    given: dict[str, Any] = dict(splits)
    if all(isinstance(value, (tuple, list)) for value in given.values()):
        return {name: [int(bound) for bound in value] for name, value in given.items()}, None
    shares = [float(value) for value in given.values()]
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise BadInput(f"the shares of splits are above 0 and add up to 1; got {dict(splits)}")
    if len(shares) == 1:
        return {next(iter(splits)): [0, items]}, None
    dealt = [0] * len(shares)
    chosen = np.empty(items, np.int64)
    for at in range(items):
        # Rounded, so that equal lags are equal in binary fractions too.
        split = max(range(len(shares)), key=lambda part: round(shares[part] * (at + 1) - dealt[part], 9))
        dealt[split] += 1
        chosen[at] = split
    ends = np.cumsum(dealt).tolist()
    ranges = {name: [end - count, end] for name, end, count in zip(splits, ends, dealt)}
    return ranges, np.argsort(chosen, kind="stable")


def fields_of_table(
    table: Any, label: str | None, classes: Sequence[str] | None
) -> tuple[dict[str, Array], dict[str, list[str]]]:
    """Returns the fields of a data frame, as of its CSV file: the features `x`, and `label` with its classes or
    `target`. The label is the column of that name, by default one with a name that means label, else the last one.

    Errors: `BadInput` if there is no such column, a feature is not a number, or a value is missing.
    """
    columns = [str(column) for column in table.columns]
    if label is None:
        label = next((name for name in columns if name.lower() in _LABELS), columns[-1] if columns else "")
    if label not in columns or len(columns) < 2:
        raise BadInput(f"a table has features and a label; no column {label!r} among {columns}")
    features = []
    for at, name in enumerate(columns):
        values = as_array(name, table.iloc[:, at])
        if name == label:
            continue
        if values.dtype.kind not in "biuf":
            hint = "leave it out, or replace it by numbers; a field for each column takes a dictionary of arrays"
            raise BadInput(f"column {name} is of {values.dtype}, not of numbers", hint=hint)
        features.append(fit(Port(f"column {name}", "float32"), values))
    x, column = np.stack(features, axis=1), table.iloc[:, columns.index(label)]
    if bool(column.isna().any()):
        raise BadInput(f"column {label} has missing values")
    values = as_array(label, column)
    if classes is None and hasattr(column, "cat"):
        classes = [str(category) for category in column.cat.categories]
    if values.dtype.kind == "f" and classes is None:
        return {"x": x, "target": values}, {}
    if values.dtype.kind in "iu" and classes is None:
        numbers = np.unique(values)
        if len(numbers) > _NUMBERED_CLASSES_MAX:
            return {"x": x, "target": values.astype(np.float32)}, {}
        if numbers.tolist() == list(range(len(numbers))):
            return {"x": x, "label": values.astype(np.uint8)}, {}
    texts = [str(value) for value in values.tolist()]
    names = list(classes) if classes else sorted(set(texts), key=_number_or_text)
    return {"x": x, "label": _class_numbers(label, texts, names)}, {"label": names}


def _number_or_text(text: str) -> tuple[int, str]:
    return (int(text), "") if text.lstrip("-").isdigit() else (0, text)
