"""Runs operations with httpx, blocking and asynchronous. No other module knows httpx."""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import httpx

from ._protocol import EventStream, Operation, Pause, Request, Response, Settings, Work
from .errors import BadAnswer, BadRequest, CertificateError, DeadlineExceeded, SaggarError, Unavailable, Unreachable

T = TypeVar("T")

_CONNECT_SECONDS = 5.0
_CONNECTIONS_MAX = 100
_CHUNK_BYTES = 1 << 18


def _client_options(settings: Settings) -> dict[str, Any]:
    # A proxy of the environment cannot reach a server of this machine.
    options: dict[str, Any] = {"headers": settings.headers(), "trust_env": not settings.is_loopback}
    options["limits"] = httpx.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=_CONNECTIONS_MAX)
    if not settings.host.startswith("https:"):
        # There is no certificate to verify, and loading the authorities takes longer than a request.
        return {**options, "verify": False}
    if settings.ca is None:
        return options
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"{settings.ca} has no certificates in PEM form: {error}") from error
    # A certificate that its user made and names is trusted without the extensions of a public authority.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return {**options, "verify": context}


def _request_options(settings: Settings, request: Request) -> dict[str, Any]:
    for name, value in request.headers.items():
        if not re.fullmatch(r"[\x20-\x7e]*", value):
            raise BadRequest(f"the header {name} cannot carry {value!r}", "bad_parameter")
    timeout = settings.timeout if request.timeout is None else request.timeout
    connect = _CONNECT_SECONDS if timeout is None else min(_CONNECT_SECONDS, timeout)
    return {
        "method": request.method,
        "url": settings.host + request.path,
        "headers": dict(request.headers),
        "content": request.body,
        "timeout": httpx.Timeout(timeout, connect=connect),
    }


@contextmanager
def _translated(settings: Settings, request: Request, is_stream: bool = False) -> Iterator[None]:
    """Raises httpx's errors as the client's. A stream that is silent for too long is lost, like a connection."""
    try:
        yield
    except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
        message = f"{settings.host} does not answer within {request.timeout or settings.timeout} s"
        if is_stream:
            raise Unreachable(message, "broken_off") from error
        raise DeadlineExceeded(message, "timeout", "Client(timeout=SECONDS) waits longer") from error
    except httpx.DecodingError as error:
        raise BadAnswer(f"the answer of {settings.host} cannot be decompressed: {error}") from error
    except httpx.RequestError as error:
        raise _unreachable(settings.host, error) from error


def _unreachable(host: str, error: httpx.RequestError) -> Unreachable:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            hint = "Client(ca=FILE) or SAGGAR_CA names the certificates to trust"
            return CertificateError(f"the certificate of {host} is not trusted: {cause.verify_message}", hint=hint)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return Unreachable(f"the answer of {host} broke off: {error}", "broken_off")
    hint = "start a server with `saggar serve`, or name one with Client(host=URL) or SAGGAR_HOST"
    return Unreachable(f"no answer from {host}: {error}", hint=hint)


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """Opens a file that replaces `target` once it is complete."""
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _is_success(response: httpx.Response) -> bool:
    return 200 <= response.status_code < 300


def _head(response: httpx.Response, body: bytes = b"") -> Response:
    return Response(response.status_code, response.headers.multi_items(), body)


class Transport:
    """Runs operations and blocks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._http = httpx.Client(**_client_options(settings))

    def close(self) -> None:
        self._http.close()

    def run(self, operation: Operation[T]) -> T:
        try:
            command = next(operation)
            while True:
                try:
                    result = self._execute(command)
                except SaggarError as error:
                    command = operation.throw(error)
                else:
                    command = operation.send(result)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            operation.close()

    def _execute(self, command: Request | Pause | Work) -> Any:
        if isinstance(command, Pause):
            return time.sleep(command.seconds)
        if isinstance(command, Work):
            return command.function()
        options = _request_options(self.settings, command)
        with _translated(self.settings, command), self._http.stream(**options) as got:
            if command.target is None or not _is_success(got):
                return _head(got, got.read())
            with _replacing(command.target) as file:
                for chunk in got.iter_bytes(_CHUNK_BYTES):
                    file.write(chunk)
            return _head(got)

    def iterate(self, operation: Operation[EventStream[T]]) -> Iterator[T]:
        stream = self.run(operation)
        while not stream.is_done:
            failure: SaggarError | None = None
            try:
                # Closed at once if the caller ends the iteration.
                with closing(self._events_of(stream)) as items:
                    yield from items
            except (Unreachable, Unavailable) as error:
                failure = error
            if not stream.is_done:
                time.sleep(stream.delay_after(failure))

    def _events_of(self, stream: EventStream[T]) -> Generator[T, None, None]:
        request = stream.request()
        options = _request_options(self.settings, request)
        with _translated(self.settings, request, True), self._http.stream(**options) as got:
            stream.begin(_head(got, b"" if _is_success(got) else got.read()))
            for chunk in got.iter_bytes():
                yield from stream.feed(chunk)
                if stream.is_done:
                    return


class AsyncTransport:
    """Runs operations in an event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._http = httpx.AsyncClient(**_client_options(settings))

    async def close(self) -> None:
        await self._http.aclose()

    async def run(self, operation: Operation[T]) -> T:
        try:
            command = next(operation)
            while True:
                try:
                    result = await self._execute(command)
                except SaggarError as error:
                    command = operation.throw(error)
                else:
                    command = operation.send(result)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            operation.close()

    async def _execute(self, command: Request | Pause | Work) -> Any:
        if isinstance(command, Pause):
            return await asyncio.sleep(command.seconds)
        if isinstance(command, Work):
            return await asyncio.to_thread(command.function)
        options = _request_options(self.settings, command)
        with _translated(self.settings, command):
            async with self._http.stream(**options) as got:
                if command.target is None or not _is_success(got):
                    return _head(got, await got.aread())
                with _replacing(command.target) as file:
                    async for chunk in got.aiter_bytes(_CHUNK_BYTES):
                        file.write(chunk)
                return _head(got)

    async def iterate(self, operation: Operation[EventStream[T]]) -> AsyncIterator[T]:
        stream = await self.run(operation)
        while not stream.is_done:
            failure: SaggarError | None = None
            try:
                async with aclosing(self._events_of(stream)) as items:
                    async for item in items:
                        yield item
            except (Unreachable, Unavailable) as error:
                failure = error
            if not stream.is_done:
                await asyncio.sleep(stream.delay_after(failure))

    async def _events_of(self, stream: EventStream[T]) -> AsyncGenerator[T, None]:
        request = stream.request()
        with _translated(self.settings, request, True):
            async with self._http.stream(**_request_options(self.settings, request)) as got:
                stream.begin(_head(got, b"" if _is_success(got) else await got.aread()))
                async for chunk in got.aiter_bytes():
                    for item in stream.feed(chunk):
                        yield item
                    if stream.is_done:
                        return
