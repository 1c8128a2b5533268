"""The protocol without input or output: requests, answers, retries and server-sent events.

An operation is a generator that yields commands and returns a result. A transport runs it: it carries out each command
and sends the result back, or throws the error in. So each operation is written once, for blocking and for asynchronous
clients.
"""

from __future__ import annotations

import json
import mimetypes
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from . import errors

__version__ = "0.1.0"

DEFAULT_HOST = "http://127.0.0.1:5000"
# Loading, unloading, importing and storing can take this long.
SLOW_SECONDS = 600.0
# Streams of jobs and logs have an event or a comment every 15 s.
STREAM_SILENCE_SECONDS = 45.0
# For how long a client that follows a job looks for a server that went away.
RECONNECT_SECONDS = 60.0
RETRY_WAIT_SECONDS_MAX = 30.0

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A request. `path` is quoted and has the query; `timeout` replaces the client's; with `target` the body of the
    answer is written to that file."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    idempotent: bool = False
    timeout: float | None = None
    target: Path | None = None


@dataclass(frozen=True)
class Response:
    """A complete answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str:
        """Returns the first header of this name, or an empty text."""
        return next(iter(self.header_values(name)), "")

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True)
class Pause:
    """A command: wait."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """A command: call a function that reads files or computes for long, outside an event loop."""

    function: Callable[[], Any]


Operation = Generator[Request | Pause | Work, Any, T]


def run_blocking_work(function: Callable[[], T]) -> Operation[T]:
    result: T = yield Work(function)
    return result


def result_of(value: T) -> Operation[T]:
    """Returns an operation that does nothing."""
    yield from ()
    return value


@dataclass
class Settings:
    """What a client is configured with. Omitted values come from the environment, as for the command line."""

    host: str
    key: str | None = field(repr=False)
    ca: str | None
    project: str | None
    timeout: float | None
    retries: int

    @classmethod
    def resolve(
        cls, host: str | None, key: str | None, ca: str | os.PathLike[str] | None, project: str | None,
        timeout: float | None, retries: int,
    ) -> Settings:
        def value(given: str | None, variable: str) -> str | None:
            return given or os.environ.get(variable) or None

        host = value(host, "SAGGAR_HOST") or DEFAULT_HOST
        if "://" not in host:
            host = f"http://{host}"
        try:
            parts = urlsplit(host)
            is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query
        except ValueError:
            is_address = False
        if not is_address:
            raise ValueError(f"{host!r} is not the address of a server; {DEFAULT_HOST} is one")
        key = (value(key, "SAGGAR_API_KEY") or "").strip() or None
        if key and not re.fullmatch(r"[\x21-\x7e]+", key):
            raise ValueError("the key contains characters that an HTTP header cannot carry")
        ca = value(os.fspath(ca) if ca else None, "SAGGAR_CA")
        return cls(host.rstrip("/"), key, ca, value(project, "SAGGAR_PROJECT"), timeout, retries)

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.host).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    def headers(self) -> dict[str, str]:
        """Returns the headers of every request. The server refuses changes by a client of a distant version."""
        headers = {"user-agent": f"saggar/{__version__} python", "accept": "application/json"}
        return {**headers, "authorization": f"Bearer {self.key}"} if self.key else headers


class Core:
    """What the groups of operations share: a transport, which runs their operations, and its settings."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    @property
    def _settings(self) -> Settings:
        settings: Settings = self._transport.settings
        return settings

    def _fetch(self, request: Request) -> Operation[Response]:
        """Returns the answer of a request that succeeded. Repeats it if it is idempotent and the error may pass."""
        attempt = 0
        while True:
            error: errors.SaggarError
            retry_after = ""
            try:
                response: Response = yield request
                if 200 <= response.status < 300:
                    check_version(response.header("x-saggar-version"))
                    return response
                error = errors.from_answer(response.status, response.body, response.header("x-request-id"))
                retry_after = response.header("retry-after")
            except errors.Unreachable as failure:
                error = failure
            delay = retry_delay(request, error, retry_after, attempt, self._settings.retries)
            if delay is None:
                raise error
            yield Pause(delay)
            attempt += 1

    def _json(self, request: Request) -> Operation[dict[str, Any]]:
        """Returns the JSON object that a request is answered with."""
        response = yield from self._fetch(request)
        return json_object(response.body)


def retry_delay(
    request: Request, error: errors.SaggarError, retry_after: str, attempt: int, retries: int
) -> float | None:
    """Returns the seconds to wait before a request is repeated, or `None` if the error is final."""
    passing = isinstance(error, (errors.Unreachable, errors.TooManyRequests, errors.Unavailable))
    final = isinstance(error, errors.CertificateError)
    if not request.idempotent or not passing or final or attempt >= retries:
        return None
    if retry_after.isdigit():
        return float(retry_after) if float(retry_after) <= RETRY_WAIT_SECONDS_MAX else None
    if error.status:
        return None
    # So that clients that lost a server together do not return together.
    return float(0.1 * 2**attempt * (0.5 + random.random()))


def check_version(server: str) -> None:
    """Raises `VersionSkew` if the server's minor version differs by more than one. A server without one is accepted."""
    numbers = [re.match(r"(\d+)\.(\d+)\.\d+", version) for version in (__version__, server)]
    (own, other) = ([int(number) for number in found.groups()] if found else None for found in numbers)
    if own and other and (own[0] != other[0] or abs(own[1] - other[1]) > 1):
        message = f"this client is saggar {__version__}, and the server is saggar {server}"
        raise errors.VersionSkew(message, hint="minor versions may differ by one")


def json_object(body: bytes | str) -> dict[str, Any]:
    """Parses a JSON object, or raises `BadAnswer`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise not_saggar(f"the answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise not_saggar("the answer is not a JSON object")
    return document


def not_saggar(message: str) -> errors.BadAnswer:
    return errors.BadAnswer(message, hint="is that a saggar server?")


def route(*segments: object, **query: object) -> str:
    """Returns a path of quoted segments, with the query's values that are not `None` or `False`."""
    for segment in segments:
        if str(segment) in ("", ".", ".."):
            raise ValueError(f"{str(segment)!r} is not a name")
    path = "/" + "/".join(quote(str(segment), safe="@~") for segment in segments)
    given = [(name, value) for name, value in query.items() if value is not None and value is not False]
    texts = urlencode([(name, "1" if value is True else value) for name, value in given])
    return f"{path}?{texts}" if texts else path


def get(path: str, **options: Any) -> Request:
    return Request("GET", path, idempotent=True, **options)


def send_json(method: str, path: str, document: object, **options: Any) -> Request:
    """Returns a request with a body of JSON. `PUT` is idempotent."""
    headers = {"content-type": "application/json", **options.pop("headers", {})}
    options.setdefault("idempotent", method == "PUT")
    return Request(method, path, headers, json.dumps(document).encode(), **options)


def form(parts: Sequence[tuple[str, str | None, str | None, bytes]]) -> tuple[str, bytes]:
    """Returns the content type and the body of a multipart form (RFC 7578) of these parts: name, file name, content
    type, and content. A file without a content type has the one that its name suggests."""
    boundary = secrets.token_hex(16)
    body = []
    for name, file, kind, content in parts:
        named = [re.sub(r'["\r\n]', "_", text) for text in (name, file) if text is not None]
        disposition = '"; filename="'.join(named)
        kind = kind or mimetypes.guess_type(file or "")[0] or "application/octet-stream"
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{disposition}"\r\nContent-Type: {kind}\r\n\r\n'
        body += [head.encode(), content, b"\r\n"]
    return f"multipart/form-data; boundary={boundary}", b"".join([*body, f"--{boundary}--\r\n".encode()])


@dataclass(frozen=True)
class ServerEvent:
    """A server-sent event."""

    name: str
    data: str
    id: str | None = None


class EventParser:
    """Parses server-sent events from chunks of bytes. Source of the format: WHATWG HTML, section 9.2."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Returns the events that are complete after these bytes."""
        if b"\n" not in chunk:
            self._parts.append(chunk)
            return
        *lines, rest = b"".join([*self._parts, chunk]).split(b"\n")
        self._parts = [rest]
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\r")
            if not text:
                if self._data:
                    yield ServerEvent(self._name, "\n".join(self._data), self._id)
                self._name, self._data, self._id = "", [], None
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._name = value
            elif name == "id":
                self._id = value


class EventStream(Generic[T]):
    """A stream of events without its connection. `decode` returns the items of an event and whether it is the last one.

    If `resumes`, a lost connection is opened again after the last event, for at most `RECONNECT_SECONDS`.
    """

    def __init__(
        self, request: Request, decode: Callable[[ServerEvent, Response], tuple[list[T], bool]], resumes: bool
    ) -> None:
        self._request = request
        self._decode = decode
        self._resumes = resumes
        self._last: str | None = None
        self._lost_at: float | None = None
        self._response: Response | None = None
        self._parser = EventParser()
        self.is_done = False

    def request(self) -> Request:
        """Returns the request that opens the stream, or opens it again."""
        headers = {**self._request.headers, "accept": "text/event-stream"}
        if self._last is not None:
            headers["last-event-id"] = self._last
        timeout = self._request.timeout or STREAM_SILENCE_SECONDS
        return Request(self._request.method, self._request.path, headers, self._request.body, timeout=timeout)

    def begin(self, response: Response) -> None:
        """Takes the head of the answer, or all of an answer with an error status."""
        if response.status >= 300:
            raise errors.from_answer(response.status, response.body, response.header("x-request-id"))
        if not response.header("content-type").startswith("text/event-stream"):
            raise not_saggar("the answer is not a stream of events")
        self._response = response
        self._parser = EventParser()

    def feed(self, chunk: bytes) -> Iterator[T]:
        """Returns the items that are complete after these bytes."""
        assert self._response is not None, "the answer has begun"
        self._lost_at = None
        for event in self._parser.feed(chunk):
            items, self.is_done = self._decode(event, self._response)
            yield from items
            self._last = event.id if event.id is not None else self._last
            if self.is_done:
                return

    def delay_after(self, failure: errors.SaggarError | None) -> float:
        """Returns the seconds to wait before the stream is opened again. Raises `failure` if that is of no use."""
        failure = failure or errors.Unreachable("the stream of events ended early", "broken_off")
        now = time.monotonic()
        began = self._lost_at = now if self._lost_at is None else self._lost_at
        if not self._resumes or self._response is None or now - began >= RECONNECT_SECONDS:
            raise failure
        return 0.25
