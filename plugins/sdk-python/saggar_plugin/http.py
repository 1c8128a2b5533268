"""HTTP requests that a plugin answers with its own code, beside predictions.

A method of a `Model` or a `Predictor` answers the requests of the routes that `route` gives it:

    class Greeter(Model):
        @route("GET", "/hello/{name}")
        def hello(self, request: HttpRequest) -> str:
            return f"Hello, {request.parameters['name']}!"

The world of such a plugin is `model-http-plugin` or `predict-http-plugin`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, TypeVar, Union

from .errors import call

try:
    from wit_world.exports import http_handler as raw
    from wit_world.imports import http_stream as raw_stream
except ImportError:  # A plugin without handlers has no such world.
    pass

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
_PIECE_SIZE = 64 << 10
_ROUTES = "_saggar_routes"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class HttpRequest:
    """A request to a route.

    `parameters` has the text in the place of each `{name}` of the route's path. `headers` has those that the host passes
    on, by name in lower case. `query_items` has the names and values of the query, in order.
    """

    method: str
    path: str
    parameters: dict[str, str]
    query_items: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        """The first value of each name in the query."""
        return dict(reversed(self.query_items))

    @property
    def text(self) -> str:
        """The body as text. A body that is not UTF-8 is answered with the status 422."""
        return self.body.decode()

    def json(self) -> Any:
        """Returns the body as JSON. A body that is not JSON is answered with the status 422."""
        return json.loads(self.body)


@dataclass
class HttpResponse:
    """A response: a body of text, bytes or pieces of either, a status and headers.

    An iterator as body is streamed: each piece is at the client before the next one is computed.
    """

    body: str | bytes | Iterator[str | bytes] = b""
    status: int = 200
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Any, status: int = 200) -> HttpResponse:
        """Returns a value as JSON."""
        return cls(json.dumps(value, ensure_ascii=False), status, "application/json")

    @classmethod
    def html(cls, page: str, status: int = 200) -> HttpResponse:
        """Returns a page. Browsers show it without rights to use the server."""
        return cls(page, status, "text/html; charset=utf-8")

    def head(self) -> raw_stream.ResponseHead:
        """Returns the status and the headers in the host's form."""
        kind = self.content_type
        if kind is None and not isinstance(self.body, bytes):
            kind = "text/plain; charset=utf-8"
        if kind is None and self.body:
            kind = "application/octet-stream"
        given = {name.lower(): value for name, value in self.headers.items()}
        if kind is not None:
            given.setdefault("content-type", kind)
        return raw_stream.ResponseHead(self.status, list(given.items()))


HttpAnswer = Union[str, bytes, dict[str, Any], list[Any], Iterator[Union[str, bytes]], HttpResponse, tuple[Any, ...]]
"""What a handler returns: a text, bytes, a `dict` or `list` for JSON, an iterator of pieces, a response, or a tuple of a
status and one of these: `(404, "no such class")`."""


def route(method: str, path: str, description: str | None = None) -> Callable[[F], F]:
    """Makes a method the handler of a path. A segment of the path can be a parameter: `/hello/{name}`.

    `description` is a sentence for `/openapi.json`; by default the first line of the method's documentation.
    """
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")

    def decorate(function: F) -> F:
        about = description if description is not None else (function.__doc__ or "").strip().split("\n")[0]
        routes = getattr(function, _ROUTES, [])
        setattr(function, _ROUTES, [*routes, (method, path, about)])
        return function

    return decorate


def routes_of(kind: type) -> list[tuple[str, str, str, str]]:
    """Returns the routes of a class: method, path, description and the name of the handler, in the order of the source."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            found.pop(name, None)
            routes = getattr(member, _ROUTES, None)
            if routes:
                found[name] = routes
    return [(*each, name) for name, routes in found.items() for each in routes]


def read_request(given: raw.HttpRequest) -> HttpRequest:
    """Returns the host's request."""
    return HttpRequest(
        given.method.name, given.path, dict(given.parameters), list(given.query), dict(given.headers), given.body
    )


def send_answer(answer: HttpAnswer) -> raw.HttpResponse | None:
    """Returns what a handler returned in the host's form, or `None` after it was streamed."""
    response = _response(answer)
    if isinstance(response.body, (str, bytes)):
        return raw.HttpResponse(response.head(), _bytes(response.body))
    pieces = iter(response.body)
    # What is wrong before the first piece still changes the status.
    first = next(pieces, b"")
    call(raw_stream.start, response.head())
    try:
        _send(first)
        for piece in pieces:
            _send(piece)
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
    return None


def _response(answer: Any) -> HttpResponse:
    if isinstance(answer, HttpResponse):
        return answer
    if isinstance(answer, tuple):
        if len(answer) != 2 or isinstance(answer[0], bool) or not isinstance(answer[0], int):
            raise TypeError(f"a handler's tuple is a status and a body, not {answer!r:.200}")
        response = _response(answer[1])
        return HttpResponse(response.body, answer[0], response.content_type, response.headers)
    if isinstance(answer, (dict, list)):
        return HttpResponse.json(answer)
    if isinstance(answer, (str, bytes, Iterator)):
        return HttpResponse(answer)
    raise TypeError(
        f"a handler returns str, bytes, dict, list, an iterator, HttpResponse or (status, body), not {answer!r:.200}"
    )


def _bytes(piece: str | bytes) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return bytes(piece)
    raise TypeError(f"a body consists of str or bytes, not {piece!r:.200}")


def _send(piece: str | bytes) -> None:
    data = _bytes(piece)
    for start in range(0, len(data), _PIECE_SIZE):
        call(raw_stream.send, data[start : start + _PIECE_SIZE])
