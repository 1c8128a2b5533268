"""What all tests use: clients of a scripted server, blocking and asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import saggar


def head(status: int = 200, length: int | None = None, **headers: str) -> bytes:
    """The head of an answer. Without a length the body ends with the connection."""
    lines = [f"HTTP/1.1 {status} Status", "connection: close"]
    lines += [f"content-length: {length}"] if length is not None else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(document: Any, status: int = 200, **headers: str) -> bytes:
    """A complete answer of JSON, or of bytes."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return head(status, len(body), **headers) + body


def events(text: str) -> bytes:
    return head(content_type="text/event-stream") + text.encode()


@dataclass
class Received:
    """A request that the scripted server received."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ScriptedServer:
    """Answers each connection with the next bytes of a script, and with the last ones again after that."""

    script: list[bytes | Callable[[Received], bytes]]
    requests: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        # Wakes the thread that waits for a connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                received = self._receive(connection)
                if received is None:
                    continue
                self.requests.append(received)
                said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                try:
                    connection.sendall(said(received) if callable(said) else said)
                except OSError:
                    pass

    def _receive(self, connection: socket.socket) -> Received | None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return None
            data += piece
        top, _, body = data.partition(b"\r\n\r\n")
        line, *lines = top.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += connection.recv(65536)
        return Received(line, headers, body)


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    """Starts servers that answer from a script."""
    servers: list[ScriptedServer] = []

    def start(*script: bytes | Callable[[Received], bytes]) -> ScriptedServer:
        servers.append(ScriptedServer(list(script)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Call = Callable[..., Any]


@pytest.fixture(params=["blocking", "asynchronous"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls a function with a client of either kind, and returns its result. Iterators are returned as lists."""

    def blocking(function: Callable[[Any], Any], **options: Any) -> Any:
        with saggar.Client(**options) as client:
            result = function(client)
            return list(result) if inspect.isgenerator(result) else result

    async def run(function: Callable[[Any], Any], options: dict[str, Any]) -> Any:
        async with saggar.AsyncClient(**options) as client:
            result = function(client)
            if inspect.isasyncgen(result):
                return [item async for item in result]
            return await result if inspect.isawaitable(result) else result

    def asynchronous(function: Callable[[Any], Any], **options: Any) -> Any:
        return asyncio.run(run(function, options))

    return blocking if request.param == "blocking" else asynchronous


@pytest.fixture(autouse=True)
def no_waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests without a server do not wait between attempts."""
    if "unit" in request.node.path.parts:
        monkeypatch.setattr("saggar._transport.time.sleep", lambda seconds: WAITED.append(seconds))
        sleep = asyncio.sleep

        async def pause(seconds: float) -> None:
            WAITED.append(seconds)
            await sleep(0)

        monkeypatch.setattr("saggar._transport.asyncio.sleep", pause)
        WAITED.clear()
        for name in ("SAGGAR_HOST", "SAGGAR_API_KEY", "SAGGAR_CA", "SAGGAR_PROJECT"):
            monkeypatch.delenv(name, raising=False)


WAITED: list[float] = []
"""The seconds that the clients of a test without a server would have waited."""
