"""The exceptions of this package, and the host's form of an exception."""

from __future__ import annotations

import sys
import traceback
from types import FrameType, TracebackType
from typing import Any, Callable, ParamSpec, TypeVar

from componentize_py_types import Err
from wit_world.imports import tensors as raw

ErrorCode = raw.ErrorCode

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGES = ("saggar_plugin", "wit_world", "componentize_py_types")
_ENTRY_MODULES = ("saggar_entry", "predictor")
# Where the builder of components mounts the first directory of modules, the plugin's `src`.
_SOURCE_MOUNT = "/0/"
# Where it mounts the standard library.
_LIBRARY_MOUNT = "/python/"
_MOUNTS = ((_SOURCE_MOUNT, "src/"), ("/1/saggar_plugin", "saggar_plugin"), ("/2/saggar_plugin", "saggar_plugin"))


class HostError(Exception):
    """A call that the host refused.

    `code` is the kind of the error, `message` says what was given and what was expected, and `place` is the operand,
    field or name at fault, or `None`.
    """

    def __init__(self, code: ErrorCode, message: str, place: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place
        self.layer: str | None = None
        """The layer whose call was refused."""


class Stopped(BaseException):
    """The job is stopping at a step boundary, and its state is stored.

    A training that raises it ends successfully. It is no `Exception`, so that a handler of all errors lets it pass.
    """


def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function of the host. Raises `HostError` if the host refuses the call."""
    try:
        return function(*args, **kwargs)
    except Err as refused:
        error = refused.value
        if not isinstance(error, raw.Error):
            raise
    raise HostError(error.code, error.message, error.place)


_CODES: list[tuple[type[BaseException], ErrorCode]] = [
    (NotImplementedError, ErrorCode.UNSUPPORTED),
    (MemoryError, ErrorCode.OUT_OF_MEMORY),
    (ValueError, ErrorCode.INVALID_ARGUMENT),
    (TypeError, ErrorCode.INVALID_ARGUMENT),
    (LookupError, ErrorCode.INVALID_ARGUMENT),
]


def to_host(error: BaseException) -> Err[raw.Error]:
    """Returns the exception in the form in which the host gets it, and prints its traceback to standard error.

    The error's place is the innermost line of the plugin that the traceback contains.
    """
    line = plugin_line(error.__traceback__)
    if isinstance(error, HostError):
        code, message = error.code, error.message
        layer = f"layer `{error.layer}`" if error.layer else None
        places = [place for place in (error.place, layer, line) if place]
    else:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.INTERNAL)
        message = describe(error)
        places = [line] if line else []
    if code not in (ErrorCode.CANCELLED, ErrorCode.DEVICE_LOST):
        print_traceback(error)
    return Err(raw.Error(code, message, ", ".join(places) or None))


def describe(error: BaseException) -> str:
    """Returns the exception's type and text, as Python prints them."""
    try:
        return "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # A text that cannot be formatted must not hide the error.
        return type(error).__name__


def print_traceback(error: BaseException) -> None:
    """Prints the traceback of an exception to standard error."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        text = describe(error) + "\n"
    for mount, name in _MOUNTS:
        text = text.replace(f'"{mount}', f'"{name}')
    sys.stderr.write(text)
    sys.stderr.flush()


def plugin_line(trace: TracebackType | None) -> str | None:
    """Returns the innermost line of a traceback that is the plugin's, such as `src/plugin.py:12`."""
    found = None
    for frame, number in traceback.walk_tb(trace):
        if _is_plugin(frame):
            found = f"{_short(frame.f_code.co_filename)}:{number}"
    return found


def _is_plugin(frame: FrameType) -> bool:
    module: Any = frame.f_globals.get("__name__", "")
    if frame.f_code.co_filename.startswith(_LIBRARY_MOUNT):
        return False
    return module.split(".")[0] not in _PACKAGES and module not in _ENTRY_MODULES


def _short(path: str) -> str:
    """Returns the path of a source in the plugin's directory."""
    return "src/" + path[len(_SOURCE_MOUNT) :] if path.startswith(_SOURCE_MOUNT) else path
