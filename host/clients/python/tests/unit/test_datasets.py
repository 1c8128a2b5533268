"""Datasets from arrays, tables and files, and their upload."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import saggar
from saggar._datasets import _default_name, _files_of_path
from saggar._tables import fields_of_table, files_of_arrays

from ..conftest import Call, ScriptedServer, answer

Start = Callable[..., ScriptedServer]
STORED = {
    "name": "d",
    "version": 3,
    "items": 2,
    "fields": [{"name": "x", "dtype": "float32", "shape": [2]}],
    "splits": {},
}


def read(files: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description of a dataset, and its arrays by field."""
    manifest = json.loads(files["dataset.json"])
    arrays = {field["name"]: np.load(io.BytesIO(files[field["file"]])) for field in manifest["fields"]}
    return manifest, arrays


def test_fields_are_stored_in_types_that_datasets_have() -> None:
    given = {
        "a": np.array([0.5, np.nan]),
        "b": [True, False],
        "c": np.array([1, 2], ">i2"),
        "d": [2**40, 1],
        "e": ["é", "abc"],
        "f": ["dog", "cat"],
        "g": np.asfortranarray(np.arange(6, dtype=np.float16).reshape(2, 3)),
    }
    manifest, arrays = read(files_of_arrays(given, {"f": ["cat", "dog"]}, None, "words"))
    types = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    assert types == {
        "a": ("float32", (2,)),
        "b": ("uint8", (2,)),
        "c": ("int32", (2,)),
        "d": ("int64", (2,)),
        "e": ("uint8", (2, 3)),
        "f": ("uint8", (2,)),
        "g": ("float16", (2, 3)),
    }
    assert arrays["e"].tolist() == [[0xC3, 0xA9, 0], [97, 98, 99]] and arrays["f"].tolist() == [1, 0]
    assert (arrays["g"] == given["g"]).all()
    assert manifest["splits"] == {"train": [0, 2]} and manifest["description"] == "words"
    assert [field for field in manifest["fields"] if "classes" in field] == [
        {"name": "f", "file": "5.npy", "classes": ["cat", "dog"]}
    ]


def test_shares_divide_items_as_for_csv_files() -> None:
    manifest, arrays = read(files_of_arrays({"x": np.arange(10)}, None, {"train": 0.8, "test": 0.2}, ""))
    assert manifest["splits"] == {"train": [0, 8], "test": [8, 10]}
    # The third of every five items.
    assert arrays["x"].tolist() == [0, 1, 3, 4, 5, 6, 8, 9, 2, 7]
    manifest, arrays = read(files_of_arrays({"x": np.arange(3)}, None, {"a": (0, 1), "b": (1, 3)}, ""))
    assert manifest["splits"] == {"a": [0, 1], "b": [1, 3]} and arrays["x"].tolist() == [0, 1, 2]
    parts = {"train": {"x": [[1.0]], "y": [0]}, "test": {"y": [1, 2], "x": [[2.0], [3.0]]}}
    manifest, arrays = read(files_of_arrays(parts, None, None, ""))
    assert manifest["splits"] == {"train": [0, 1], "test": [1, 3]}
    assert arrays["x"].tolist() == [[1], [2], [3]] and arrays["y"].tolist() == [0, 1, 2]


def test_data_that_no_dataset_can_have_is_refused() -> None:
    for fields, splits, reason in [
        ({"x": [1, 2], "y": [1]}, None, "same number of items"),
        ({}, None, "same number of items"),
        ({"x": 5}, None, "same number of items"),
        ({"x": []}, None, "same number of items"),
        ({"x": [1j]}, None, "no fields of complex128"),
        ({"x": [1, None]}, None, "must be a list of texts"),
        ({"x": [["a"], ["b"]]}, None, "must be a list of texts"),
        ({"x": [1e39]}, None, "does not fit into float32"),
        ({"x": [1, 2]}, {"a": 0.5, "b": 0.4}, "add up to 1"),
        ({"x": [1, 2]}, {"a": 1.5, "b": -0.5}, "above 0"),
        ({"a": {"x": [1]}, "b": {"y": [1]}}, None, "split b has the fields"),
        ({"a": {"x": [1]}}, {"a": 1.0}, "divided into splits already"),
        ({"x": [[1], [1, 2]]}, None, "not an array"),
    ]:
        with pytest.raises(saggar.BadInput, match=reason):
            files_of_arrays(fields, None, splits, "")
    with pytest.raises(saggar.BadInput, match="'cow' is not one of its classes"):
        files_of_arrays({"x": ["cow"]}, {"x": ["cat"]}, None, "")


def test_a_table_becomes_what_its_csv_file_would() -> None:
    table = pandas.DataFrame({"a": [1, 2, 3], "species": ["dog", "cat", "dog"], "b": [0.5, True, 2]}).astype(
        {"b": float}
    )
    fields, classes = fields_of_table(table, None, None)
    assert fields["x"].dtype == np.float32 and fields["x"].tolist() == [[1, 0.5], [2, 1], [3, 2]]
    assert fields["label"].tolist() == [1, 0, 1] and classes == {"label": ["cat", "dog"]}
    assert fields_of_table(table, None, ["dog", "cat"])[0]["label"].tolist() == [0, 1, 0]
    ordered = table.assign(species=pandas.Categorical(table["species"], ["dog", "cow", "cat"]))
    assert fields_of_table(ordered, None, None)[1] == {"label": ["dog", "cow", "cat"]}
    numbers = pandas.DataFrame({"a": [1.5, 2, 3], "last": [0, 2, 1]})
    fields, classes = fields_of_table(numbers, None, None)
    assert fields["label"].tolist() == [0, 2, 1] and fields["label"].dtype == np.uint8 and classes == {}
    assert fields_of_table(numbers.assign(last=[10, 9, -1]), None, None)[1] == {"label": ["-1", "9", "10"]}
    assert fields_of_table(numbers, "a", None)[0]["target"].tolist() == [1.5, 2, 3]
    many = pandas.DataFrame({"a": np.arange(200.0), "y": np.arange(200)})
    assert fields_of_table(many, None, None)[0]["target"].dtype == np.float32


def test_tables_without_features_or_label_are_refused() -> None:
    for table, label, reason in [
        (pandas.DataFrame({"a": [1]}), None, "features and a label"),
        (pandas.DataFrame(), None, "features and a label"),
        (pandas.DataFrame({"a": [1], "b": [2]}), "c", "no column 'c'"),
        (pandas.DataFrame({"a": ["x"], "b": [2]}), None, "column a is of .*, not of numbers"),
        (pandas.DataFrame({"a": [1, 2], "b": ["x", None]}), None, "column b has missing values"),
    ]:
        with pytest.raises(saggar.BadInput, match=reason):
            fields_of_table(table, label, None)


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def test_a_directory_is_read_without_hidden_and_ignored_files(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "notes.md", "deep/b.csv", "deep/build/x", ".hidden", ".git/x", "é.txt")
    listed = lambda: [file.path for file in _files_of_path(tmp_path)]  # noqa: E731
    assert listed() == ["a.csv", "deep/b.csv", "deep/build/x", "notes.md", "é.txt"]
    (tmp_path / ".saggarignore").write_text("build/\n*.md\n# all\n\n?.txt\n")
    assert listed() == ["a.csv", "deep/b.csv"]
    os.symlink("/etc/passwd", tmp_path / "deep/link")
    with pytest.raises(saggar.BadInput, match="link is not a plain file"):
        listed()
    for pattern, expected in [
        ("/deep/", ["a.csv", "notes.md", "é.txt"]),
        ("deep/**\n", ["a.csv", "notes.md", "é.txt"]),
        ("**/link\n/a.csv", ["deep/b.csv", "deep/build/x", "notes.md", "é.txt"]),
        ("link\nbuild", ["a.csv", "deep/b.csv", "notes.md", "é.txt"]),
        ("deep/link\ndeep/*/x\nb.csv/", ["a.csv", "deep/b.csv", "notes.md", "é.txt"]),
    ]:
        (tmp_path / ".saggarignore").write_text(pattern)
        assert listed() == expected, pattern
    (tmp_path / ".saggarignore").write_text("*")
    with pytest.raises(saggar.BadInput, match="holds no files"):
        listed()
    (tmp_path / ".saggarignore").write_text("!a")
    with pytest.raises(saggar.BadInput, match="cannot take files back in"):
        listed()
    with pytest.raises(FileNotFoundError):
        _files_of_path(tmp_path / "none")


def test_a_name_is_that_of_the_directory_or_file(tmp_path: Path) -> None:
    for file, name in [("Wine.csv", "wine"), ("wine.csv.gz", "wine"), ("a.b.npz", "a.b"), ("plain", "plain")]:
        (tmp_path / file).write_text("x")
        assert _default_name(tmp_path / file) == name
    (tmp_path / "Set.v1").mkdir()
    assert _default_name(tmp_path / "Set.v1") == "set.v1"


def test_only_missing_chunks_are_sent(
    call: Call, scripted: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saggar._datasets._CHUNK_BYTES", 4)
    (tmp_path / "big.csv").write_bytes(b"aaaabbbbcc")
    (tmp_path / "empty.csv").write_bytes(b"")
    digests = [hashlib.sha256(piece).hexdigest() for piece in (b"aaaa", b"bbbb", b"cc")]
    begun = answer({"upload": "u1", "missing": [digests[2], digests[1]]})
    server = scripted(begun, answer(b"", 204), answer(b"", 204), answer(STORED))
    stored = call(lambda client: client.data.push(tmp_path, "d"), host=server.url)
    assert str(stored) == "d/3" and stored.fields[0].shape == [2] and stored.raw["version"] == 3
    assert server.requests[0].json == {
        "name": "d",
        "files": [
            {"path": "big.csv", "size": 10, "sha256": hashlib.sha256(b"aaaabbbbcc").hexdigest(), "chunks": digests},
            {"path": "empty.csv", "size": 0, "sha256": hashlib.sha256(b"").hexdigest(), "chunks": []},
        ],
    }
    assert [(request.line.split()[0], request.path, request.body) for request in server.requests[1:]] == [
        ("PUT", f"/api/v1/datasets/d/uploads/u1/chunks/{digests[2]}", b"cc"),
        ("PUT", f"/api/v1/datasets/d/uploads/u1/chunks/{digests[1]}", b"bbbb"),
        ("POST", "/api/v1/datasets/d/uploads/u1/commit", b""),
    ]
    server = scripted(answer({"upload": "u1", "missing": ["f" * 64]}))
    with pytest.raises(saggar.BadAnswer, match="a chunk that was not offered"):
        call(lambda client: client.data.push(tmp_path, "d"), host=server.url)


def test_arguments_that_do_not_fit_the_source_are_refused(call: Call, tmp_path: Path) -> None:
    for source, options, reason in [
        ({"x": [1]}, {}, "needs a name"),
        ({"x": [1]}, {"name": "d", "label": "x"}, "a column of a DataFrame"),
        (tmp_path, {"splits": {"a": 1.0}}, "dataset.json describes"),
        (3, {"name": "d"}, "int is not a path"),
    ]:
        with pytest.raises(saggar.BadInput, match=reason):
            call(lambda client: client.data.push(source, **options))


def exported(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def test_versions_are_found_loaded_and_removed(call: Call, scripted: Start) -> None:
    listed = answer(
        {"datasets": [{"name": "d", "version": 1}, {"name": "e", "version": 5}, {"name": "d", "version": 2}]}
    )
    server = scripted(listed)
    assert call(lambda client: client.data.show("d"), host=server.url).version == 2
    assert call(lambda client: client.data.show("d/1"), host=server.url).version == 1
    assert [str(version) for version in call(lambda client: client.data.list("d"), host=server.url)] == ["d/1", "d/2"]
    with pytest.raises(saggar.NotFound, match="(?s)no dataset d/7.*there are d/1, d/2"):
        call(lambda client: client.data.show("d/7"), host=server.url)
    archive = exported(files_of_arrays({"x": np.arange(10)}, None, {"train": 0.8, "test": 0.2}, ""))
    server = scripted(listed, answer(archive))
    assert call(lambda client: client.data.load("d", "test"), host=server.url)["x"].tolist() == [2, 7]
    assert server.requests[1].path == "/api/v1/datasets/d/2/export"
    server = scripted(listed, answer(archive), listed, answer(archive[:700]))
    with pytest.raises(saggar.NotFound, match="(?s)no split 'validation'.*train, test"):
        call(lambda client: client.data.load("d", "validation"), host=server.url)
    with pytest.raises(saggar.BadAnswer, match="the export of d cannot be read"):
        call(lambda client: client.data.load("d"), host=server.url)
    server = scripted(listed, listed, answer({"freed_bytes": 5}))
    assert call(lambda client: client.data.remove("d"), host=server.url) == 10
    assert [request.line.split()[:2] for request in server.requests[2:]] == [
        ["DELETE", "/api/v1/datasets/d/1"],
        ["DELETE", "/api/v1/datasets/d/2"],
    ]
