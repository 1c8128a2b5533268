"""The two clients, with the groups of their methods."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from ._bind import Asynchronous, Blocking, operation
from ._datasets import DatasetsCore
from ._jobs import JobCore, JobsCore, PluginsCore
from ._models import ModelsCore
from ._predict import PredictCore
from ._protocol import Operation, Settings, get
from ._transport import AsyncTransport, Transport
from .errors import Unavailable, Unreachable


class Job(JobCore["Job"], Blocking):
    __doc__ = JobCore.__doc__


class AsyncJob(JobCore["AsyncJob"], Asynchronous):
    __doc__ = JobCore.__doc__


class Jobs(JobsCore[Job], Blocking):
    __doc__ = JobsCore.__doc__
    _job_class = Job


class AsyncJobs(JobsCore[AsyncJob], Asynchronous):
    __doc__ = JobsCore.__doc__
    _job_class = AsyncJob


class Models(ModelsCore, Blocking):
    __doc__ = ModelsCore.__doc__


class AsyncModels(ModelsCore, Asynchronous):
    __doc__ = ModelsCore.__doc__


class Datasets(DatasetsCore, Blocking):
    __doc__ = DatasetsCore.__doc__


class AsyncDatasets(DatasetsCore, Asynchronous):
    __doc__ = DatasetsCore.__doc__


class Plugins(PluginsCore, Blocking):
    __doc__ = PluginsCore.__doc__


class AsyncPlugins(PluginsCore, Asynchronous):
    __doc__ = PluginsCore.__doc__


class ClientCore(PredictCore):
    """What both clients share."""

    def __init__(
        self, host: str | None = None, key: str | None = None, ca: str | os.PathLike[str] | None = None,
        project: str | None = None, timeout: float | None = 60.0, retries: int = 2,
    ) -> None:
        super().__init__(self._transport_class(Settings.resolve(host, key, ca, project, timeout, retries)))

    _transport_class: Any

    @operation
    def ready(self) -> Operation[bool]:
        """Returns whether the server answers and every model that should be loaded serves."""
        try:
            yield from self._json(get("/readyz"))
        except (Unreachable, Unavailable):
            return False
        return True

    @operation
    def server_version(self) -> Operation[str]:
        """Returns the version of the server."""
        return str((yield from self._json(get("/version"))).get("version", ""))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.host})"


class Client(ClientCore, Blocking):
    """A client of one server.

    Omitted arguments come from the environment, as for the command line: `host` from `SAGGAR_HOST`, else the server of
    this machine, `http://127.0.0.1:5000`; `key` from `SAGGAR_API_KEY`; `ca`, a file of certificates to trust, from
    `SAGGAR_CA`; `project`, the project of new jobs, from `SAGGAR_PROJECT`. `timeout` is how long the server may be
    silent, in seconds; `None` waits without limit. Requests that may be repeated are repeated `retries` times: after a
    lost connection, and after the time that the server asks to wait.

    Connections are kept and reused; threads can share a client. Errors: `ValueError` for an address, a key or a file of
    certificates that cannot be used. All other errors are `saggar.SaggarError`.
    """

    _transport_class = Transport

    @property
    def jobs(self) -> Jobs:
        return Jobs(self._transport)

    @property
    def models(self) -> Models:
        return Models(self._transport)

    @property
    def data(self) -> Datasets:
        return Datasets(self._transport)

    @property
    def plugins(self) -> Plugins:
        return Plugins(self._transport)

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(ClientCore, Asynchronous):
    """A client of one server for one event loop, with the arguments and methods of `Client`. Those that return a value
    are coroutines, and those that return an iterator return an asynchronous one."""

    _transport_class = AsyncTransport

    @property
    def jobs(self) -> AsyncJobs:
        return AsyncJobs(self._transport)

    @property
    def models(self) -> AsyncModels:
        return AsyncModels(self._transport)

    @property
    def data(self) -> AsyncDatasets:
        return AsyncDatasets(self._transport)

    @property
    def plugins(self) -> AsyncPlugins:
        return AsyncPlugins(self._transport)

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
