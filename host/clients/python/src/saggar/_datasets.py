"""Datasets: uploads of files, arrays and tables; lists, arrays and removal."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ._bind import operation
from ._documents import Dataset, read_list
from ._progress import Progress
from ._protocol import SLOW_SECONDS, Core, Operation, Request, get, route, run_blocking_work, send_json
from ._tables import Splits, fields_of_table, files_of_arrays
from ._tensors import Array
from .errors import BadAnswer, BadInput, NotFound

# The server's maximum.
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class _File:
    """A file to upload: its path in the dataset, and where its content is."""

    path: str
    content: Path | bytes

    def read(self, offset: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[offset : offset + _CHUNK_BYTES]
        with self.content.open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK_BYTES)


class DatasetsCore(Core):
    """Datasets. A dataset is named `NAME`, which is its newest version, or `NAME/VERSION`."""

    @operation
    def push(
        self, source: Any, name: str | None = None, *, splits: Splits | None = None,
        classes: Mapping[str, Sequence[str]] | None = None, label: str | None = None, description: str = "",
        progress: bool = False,
    ) -> Operation[Dataset]:
        """Stores data as a version of a dataset and returns it. Equal content is the same version.

        `source` is one of:

        - a directory or a file, as for `saggar data push`; `name` is by default that of the directory or file;
        - a dictionary of arrays, the fields, whose first axis counts items. Texts become class numbers if `classes` has
          the field, else `uint8` arrays with zeros after shorter texts. A dictionary of such dictionaries has splits;
        - a pandas DataFrame, which becomes what its CSV file would: the features `x` as `float32`, and the column
          `label` as `label` with its classes, or as `target` if it is a quantity.

        `splits` are the shares of items, `{"train": 0.8, "test": 0.2}`, or ranges, `{"train": (0, 900)}`. DTypes:
        `float64` is rounded to `float32`, 16-bit integers become `int32`, and booleans `uint8`. `progress` shows a bar.

        Errors: `BadInput` for data that no dataset can have; `BadRequest`; `StorageFull`.
        """
        if isinstance(source, (str, os.PathLike)):
            if splits is not None or classes is not None or label is not None:
                raise BadInput("dataset.json describes the files of a directory, not the arguments")
            path = Path(source)
            files = yield from run_blocking_work(lambda: _files_of_path(path))
            name = name or _default_name(path)
        else:
            if name is None:
                raise BadInput("data from memory needs a name")
            files = yield from run_blocking_work(lambda: _memory_files(source, splits, classes, label, description))
        chunks: dict[str, tuple[_File, int]] = {}
        announced = yield from run_blocking_work(lambda: [_announce(file, chunks) for file in files])
        # The answer to an announcement depends only on its content.
        announcement = {"name": name, "files": announced}
        begun = yield from self._json(send_json("POST", "/api/v1/datasets", announcement, idempotent=True))
        missing, upload = begun.get("missing"), begun.get("upload")
        if not isinstance(missing, list) or not set(missing) <= set(chunks):
            raise BadAnswer("the server asks for a chunk that was not offered")
        bar = Progress(f"pushing {name}", len(missing) * _CHUNK_BYTES, "B") if progress else None
        for digest in missing:
            file, offset = chunks[digest]
            data = yield from run_blocking_work(partial(file.read, offset))
            path_of_chunk = route("api", "v1", "datasets", name, "uploads", upload, "chunks", digest)
            headers = {"content-type": "application/octet-stream"}
            yield from self._fetch(Request("PUT", path_of_chunk, headers, data, idempotent=True))
            if bar:
                bar.advance(_CHUNK_BYTES)
        if bar:
            bar.close()
        path_of_commit = route("api", "v1", "datasets", name, "uploads", upload, "commit")
        stored = yield from self._json(Request("POST", path_of_commit, timeout=SLOW_SECONDS))
        return Dataset.read(stored)

    def _list(self, name: str | None = None) -> Operation[list[Dataset]]:
        """Returns the versions of all datasets, or of one."""
        document = yield from self._json(get("/api/v1/datasets"))
        versions = read_list(Dataset.read, document, "datasets")
        return [version for version in versions if name is None or version.name == name]

    def _show(self, dataset: str) -> Operation[Dataset]:
        """Returns a version: `NAME/VERSION`, or `NAME` for the newest. Errors: `NotFound`."""
        name, _, number = dataset.partition("/")
        versions = yield from self._list(name)
        found = [version for version in versions if not number or str(version.version) == number]
        if not found:
            known = ", ".join(map(str, versions))
            raise NotFound(f"no dataset {dataset}", hint=f"there are {known}" if known else "")
        return max(found, key=lambda version: version.version)

    @operation
    def load(self, dataset: str, split: str | None = None) -> Operation[dict[str, Array]]:
        """Returns the fields of a version as arrays, whose first axis counts items: all, or those of a split.

        Texts are `uint8` arrays with zeros after shorter texts. Errors: `NotFound`.
        """
        version = yield from self._show(dataset)
        path = route("api", "v1", "datasets", version.name, version.version, "export")
        response = yield from self._fetch(get(path, timeout=SLOW_SECONDS))
        return (yield from run_blocking_work(lambda: _arrays_of_export(response.body, dataset, split)))

    @operation
    def remove(self, dataset: str) -> Operation[int]:
        """Removes a version, or all versions of a dataset, and returns the bytes freed.

        Errors: `NotFound`; `Conflict` if an unfinished job mounts a version.
        """
        name, _, number = dataset.partition("/")
        numbers: Iterable[object] = [number]
        if not number:
            yield from self._show(name)
            numbers = [version.version for version in (yield from self._list(name))]
        freed = 0
        for version in numbers:
            path = route("api", "v1", "datasets", name, version)
            freed += int((yield from self._json(Request("DELETE", path))).get("freed_bytes", 0))
        return freed

    @operation
    def from_job(self, job: str, name: str, path: str | None = None) -> Operation[Dataset]:
        """Stores what a job wrote, or a folder or file of it, as a version of a dataset. Errors: `NotFound`."""
        path_of_dataset, body = route("api", "v1", "datasets", name, "from-job"), {"job": str(job), "path": path}
        return Dataset.read((yield from self._json(send_json("POST", path_of_dataset, body, timeout=SLOW_SECONDS))))

    show = operation(_show)
    list = operation(_list)


def _memory_files(
    source: Any, splits: Splits | None, classes: Mapping[str, Sequence[str]] | None, label: str | None, description: str
) -> list[_File]:
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        source, classes = fields_of_table(source, label, (classes or {}).get("label"))
    elif label is not None:
        raise BadInput("label names a column of a DataFrame")
    if not isinstance(source, Mapping):
        raise BadInput(f"{type(source).__name__} is not a path, a dictionary of arrays or a DataFrame")
    contents = files_of_arrays(source, classes, splits, description)
    return [_File(path, content) for path, content in contents.items()]


def _announce(file: _File, chunks: dict[str, tuple[_File, int]]) -> dict[str, Any]:
    whole, digests, size = hashlib.sha256(), [], 0
    while data := file.read(size):
        whole.update(data)
        digest = hashlib.sha256(data).hexdigest()
        chunks.setdefault(digest, (file, size))
        digests.append(digest)
        size += len(data)
    return {"path": file.path, "size": size, "sha256": whole.hexdigest(), "chunks": digests}


def _default_name(path: Path) -> str:
    name = path.resolve().name.lower()
    return name if path.is_dir() else re.sub(r"\.[^.]*$", "", name.removesuffix(".gz"))


def _files_of_path(path: Path) -> list[_File]:
    """Returns the plain files of a directory, or the file. Hidden files and those of `.saggarignore` are skipped."""
    if path.is_file():
        return [_File(path.name, path)]
    if not path.is_dir():
        raise FileNotFoundError(f"no file or directory {path}")
    is_ignored = _ignore_patterns(path)
    found = []
    left = [path]
    while left:
        for entry in left.pop().iterdir():
            below, is_folder = entry.relative_to(path), entry.is_dir() and not entry.is_symlink()
            if entry.name.startswith(".") or is_ignored(below, is_folder):
                continue
            if is_folder:
                left.append(entry)
            elif entry.is_file() and not entry.is_symlink():
                found.append(_File(below.as_posix(), entry))
            else:
                raise BadInput(f"{entry} is not a plain file", hint="replace it, or skip it with .saggarignore")
    if not found:
        raise BadInput(f"{path} holds no files")
    return sorted(found, key=lambda file: file.path)


def _ignore_patterns(folder: Path) -> Callable[[Path, bool], bool]:
    """Returns a function from a path relative to the folder, and whether it is a folder, to whether `.saggarignore`
    matches it."""
    file = folder / ".saggarignore"
    lines = [line.strip() for line in (file.read_text().splitlines() if file.is_file() else [])]
    patterns = []
    for line in lines:
        if line.startswith("!"):
            raise BadInput(f".saggarignore: {line!r}: a pattern cannot take files back in")
        names = [name for name in line.split("/") if name]
        if names and not line.startswith("#"):
            # Without a slash inside, a pattern matches names at any depth.
            names = names if "/" in line.rstrip("/") else ["**", *names]
            parts = ["(?:[^/]+/)*" if name == "**" else _glob(name) + "/" for name in names]
            patterns.append((re.compile("".join(parts)), line.endswith("/")))

    def is_ignored(path: Path, is_folder: bool) -> bool:
        name = f"{path.as_posix()}/"
        return any(pattern.fullmatch(name) for pattern, only_folders in patterns if is_folder or not only_folders)

    return is_ignored


def _glob(name: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)) for letter in name)


def _arrays_of_export(archive: bytes, dataset: str, split: str | None) -> dict[str, Array]:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = {member.name.removeprefix("./"): member for member in tar if member.isfile()}

            def read(name: str) -> bytes:
                file = tar.extractfile(members[name])
                return file.read() if file else b""

            manifest = json.loads(read("dataset.json"))
            arrays = {
                str(field["name"]): np.load(io.BytesIO(read(field["file"])), allow_pickle=False)
                for field in manifest["fields"]
            }
            splits = dict(manifest.get("splits") or {})
    except (tarfile.TarError, KeyError, TypeError, ValueError, EOFError) as error:
        raise BadAnswer(f"the export of {dataset} cannot be read: {error!r}") from error
    if split is None:
        return arrays
    if split not in splits:
        raise NotFound(f"dataset {dataset} has no split {split!r}", hint=f"it has {', '.join(splits)}")
    first, end = splits[split]
    return {name: array[first:end] for name, array in arrays.items()}
