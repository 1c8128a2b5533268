"""Parameters of a job, and the configuration of a model version."""

from __future__ import annotations

import json
from typing import Any, Mapping, TypeVar

T = TypeVar("T", int, float, str, bool)

_EXPECTED = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


class Params(Mapping[str, Any]):
    """A JSON object, whose unread members are mistakes: a misspelt parameter is refused and not ignored."""

    def __init__(self, members: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._members = {**(members or {}), **more}
        self._read: set[str] = set()

    @classmethod
    def parse(cls, text: str) -> Params:
        """Reads a JSON object; an empty text is an empty one."""
        members = json.loads(text) if text.strip() else {}
        if not isinstance(members, dict):
            raise ValueError(f"parameters must be a JSON object, not {text}")
        return cls(members)

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        if name not in self._members:
            raise KeyError(f"parameter `{name}` is missing")
        return self._members[name]

    def __iter__(self) -> Any:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def param(self, name: str, default: T) -> T:
        """Returns a parameter, which must have the type of its default."""
        self._read.add(name)
        if name not in self._members:
            return default
        value = self._members[name]
        kind = type(default)
        if kind is float and type(value) is int:
            return kind(value)
        if kind is int and type(value) is float and value.is_integer():
            return kind(value)
        if type(value) is not kind:
            raise ValueError(f"parameter `{name}` must be {_EXPECTED[kind]}, not {json.dumps(value)}")
        return value

    def check(self) -> None:
        """Raises `ValueError` for a member that was not read."""
        unread = [name for name in self._members if name not in self._read]
        if unread:
            known = ", ".join(sorted(self._read)) or "none"
            raise ValueError(f"unknown parameter `{unread[0]}`: this plugin takes {known}")

    def dump(self) -> str:
        """Returns the JSON text."""
        return json.dumps(self._members, separators=(",", ":"), ensure_ascii=False)
