"""Connections that fail, and what both clients have in common."""

from __future__ import annotations

import inspect
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import saggar
from saggar import _clients
from saggar._bind import _Method

from ..conftest import WAITED, Call, ScriptedServer, answer, events, head

Start = Callable[..., ScriptedServer]


def test_an_unreachable_server_is_named_with_a_hint(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(
        saggar.Unreachable, match=f"(?s)no answer from {host}: .*hint: start a server with `saggar serve`"
    ):
        call(lambda client: client.models.list(), host=host)
    assert len(WAITED) == 2 and all(0 < seconds < 0.4 for seconds in WAITED)
    with pytest.raises(saggar.Unreachable):
        call(lambda client: client.server_version(), host="http://nowhere.invalid:1", retries=0)
    assert call(lambda client: client.ready(), host=host) is False


def test_a_silent_server_times_out_and_is_not_asked_again(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(saggar.DeadlineExceeded, match="does not answer within 0.2 s"):
            call(lambda client: client.models.list(), host=host, timeout=0.2)
        assert time.monotonic() - began < 5


def test_requests_wait_as_long_as_the_server_asks(call: Call, scripted: Start) -> None:
    busy = head(429, 0, Retry_After="3")
    server = scripted(busy, busy, answer({"models": []}))
    assert call(lambda client: client.models.list(), host=server.url) == []
    assert WAITED == [3.0, 3.0]
    server = scripted(busy)
    with pytest.raises(saggar.TooManyRequests):
        call(lambda client: client.models.list(), host=server.url)
    assert len(server.requests) == 3
    server = scripted(busy)
    with pytest.raises(saggar.TooManyRequests):
        call(lambda client: client.models.promote("m", 1), host=server.url)
    assert len(server.requests) == 1


def test_pages_that_are_not_a_saggar_server_are_refused(call: Call, scripted: Start) -> None:
    for said in (
        answer(b"<html>hello</html>"),
        head(302, 0, Location="http://127.0.0.1:1/"),
        answer(b"x", Content_Encoding="gzip"),
    ):
        with pytest.raises(saggar.SaggarError):
            call(lambda client: client.models.list(), host=scripted(said).url)
    with pytest.raises(saggar.Unauthorized, match="(?s)no key.*hint: make one"):
        said = answer({"error": "no key", "code": "no_key", "hint": "make one"}, 401)
        call(lambda client: client.models.list(), host=scripted(said).url)


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    call: Call, scripted: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert call(lambda client: client.models.list(), host=scripted(answer({"models": []})).url) == []


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    for ca in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        for kind in (saggar.Client, saggar.AsyncClient):
            with pytest.raises(ValueError, match="has no certificates in PEM form"):
                kind(host="https://127.0.0.1:1", ca=ca)


def test_ending_a_stream_early_closes_its_connection() -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer({"model": "m", "signature": {"outputs": [{"name": "y", "dtype": "uint8"}]}}))
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(events('event: piece\ndata: {"y": 1}\n\n' * 3))
                while connection.recv(65536):
                    pass
                ended.set()

        threading.Thread(target=serve, daemon=True).start()
        with saggar.Client(host=f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            for piece in client.stream("m", {}):
                assert piece.value == 1
                break
            assert ended.wait(10)


def test_connections_are_reused(call: Call) -> None:
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            accepted.append(connection)
            for _ in range(3):
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"models": []}')

        threading.Thread(target=serve, daemon=True).start()

        async def thrice(client: Any) -> Any:
            return [await client.models.list() for _ in range(3)]

        def run(client: Any) -> Any:
            return (
                thrice(client) if isinstance(client, saggar.AsyncClient) else [client.models.list() for _ in range(3)]
            )

        assert call(run, host=f"http://127.0.0.1:{listener.getsockname()[1]}") == [[], [], []]
    assert len(accepted) == 1
    accepted[0].close()


def test_both_clients_have_the_same_documented_methods() -> None:
    for name in ("Client", "Job", "Jobs", "Models", "Datasets", "Plugins"):
        one, other = getattr(_clients, name), getattr(_clients, f"Async{name}")
        public = {it for it in dir(one) if not it.startswith("_")}
        assert public == {it for it in dir(other) if not it.startswith("_")}
        for method in sorted(public):
            found = inspect.getattr_static(one, method)
            if isinstance(found, _Method):
                assert found is inspect.getattr_static(other, method)
                assert found.__doc__ and found.__doc__[0].isupper(), f"{name}.{method} has no documentation"


def test_methods_show_their_parameters_and_documentation() -> None:
    client = saggar.Client()
    signature = str(inspect.signature(client.predict))
    assert signature.startswith("(model: 'str | None', inputs: 'Any', *,") and signature.endswith("-> 'Prediction'")
    assert str(inspect.signature(client.stream)).endswith("-> 'Iterator[Piece]'")
    assert client.predict.__name__ == "predict" and "Shape:" in (client.predict.__doc__ or "")
    assert "Asks a model" in (saggar.Client.predict.__doc__ or "")
