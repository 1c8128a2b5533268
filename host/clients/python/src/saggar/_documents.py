"""What the server answers with, as dataclasses. `raw` has the whole JSON object.

Answers are read leniently: missing members have defaults, and unknown ones are only in `raw`, because a server can be
one minor version older or newer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .errors import BadAnswer

D = TypeVar("D", bound="Document")


@dataclass(frozen=True)
class Document:
    """The base of all answers."""

    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    @classmethod
    def read(cls: type[D], document: Any) -> D:
        """Returns the object of a JSON object. Errors: `BadAnswer`."""
        if not isinstance(document, dict):
            raise BadAnswer(f"the server describes a {cls.__name__.lower()} as {str(document)[:80]!r}")
        hints = get_type_hints(cls)
        given = [item.name for item in fields(cls) if item.name in document and item.name != "raw"]
        return cls(**{name: _convert(hints[name], document[name]) for name in given}, raw=document)


def read_list(read: Callable[[Any], D], document: dict[str, Any], member: str) -> list[D]:
    """Returns the objects of a member that is a list."""
    items = document.get(member)
    if not isinstance(items, list):
        raise BadAnswer(f"the answer has no list {member!r}")
    return [read(item) for item in items]


def _convert(hint: Any, value: Any) -> Any:
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, Document)]
    if not kinds or value is None:
        return value
    if get_origin(hint) is not list:
        return kinds[0].read(value)
    return [kinds[0].read(item) for item in value] if isinstance(value, list) else []


@dataclass(frozen=True)
class Port(Document):
    """An input or output of a model. `shape` is that of one item; `default` is the value of an omitted input."""

    name: str = ""
    dtype: str = ""
    shape: list[int] = field(default_factory=list)
    semantics: str | None = None
    classes: list[str] = field(default_factory=list)
    default: float | None = None


@dataclass(frozen=True)
class Signature(Document):
    """The inputs and outputs of a model. A model without batch sizes takes no batches."""

    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    batch_sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ModelVersion(Document):
    """A version of a model. `state` is `LOADING`, `READY`, `DRAINING`, `UNLOADED` or `FAILED`."""

    version: int = 0
    state: str = ""
    reason: str = ""
    reason_code: str | None = None
    aliases: list[str] = field(default_factory=list)
    traffic_percent: int = 0
    metrics: dict[str, float | None] | None = None
    source_job: str | None = None
    plugin: str | None = None
    weights: str | None = None
    created_ms: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Model(Document):
    """A model. `state` is `READY`, `LOADING`, `ASLEEP`, `UNLOADED` or `FAILED`; `serving` is the default version."""

    name: str = ""
    serving: int | None = None
    state: str = ""
    reason: str = ""
    versions: list[ModelVersion] = field(default_factory=list)
    aliases: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)
    follows_newest: bool = False
    notice: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    signature: Signature | None = None
    device: str | None = None


@dataclass(frozen=True)
class NewVersion(Document):
    """A version that was made. `is_new` is false if a version of the same content existed. `notes` are about the content,
    such as tensors of its weights that the plugin does not read."""

    model: str = ""
    version: int = 0
    is_new: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DatasetField(Document):
    """A field of a dataset. `shape` is that of one item."""

    name: str = ""
    dtype: str = ""
    shape: list[int] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dataset(Document):
    """A version of a dataset. `splits` has the number of items of each split."""

    name: str = ""
    version: int = 0
    items: int = 0
    bytes: int = 0
    fields: list[DatasetField] = field(default_factory=list)
    splits: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    created_ms: int = 0
    projects: list[str] = field(default_factory=list)
    used_by: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


@dataclass(frozen=True)
class Plugin(Document):
    """An uploaded plugin. `declares` has its parameters and the data that it reads."""

    digest: str = ""
    trains: bool = False
    predicts: bool = False
    bytes: int = 0
    declares: dict[str, Any] | None = None

    @property
    def name(self) -> str | None:
        """The name that the plugin declares."""
        return (self.declares or {}).get("name")


@dataclass(frozen=True)
class OutputFile(Document):
    """A file that a job wrote."""

    path: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class Checkpoint(Document):
    """A checkpoint of a job."""

    step: int = 0
    epoch: int | None = None
    bytes: int | None = None
    digest: str | None = None
    metrics: dict[str, float | None] | None = None
    best: bool | None = None

