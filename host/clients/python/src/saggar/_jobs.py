"""Jobs: submission, waiting, logs, curves and outputs."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, cast

from ._bind import operation, streaming
from ._curves import Curves
from ._documents import Checkpoint, OutputFile, Plugin, read_list
from ._progress import Progress
from ._protocol import (
    RECONNECT_SECONDS, Core, EventStream, Operation, Pause, Request, Response, ServerEvent, get, result_of, route,
    run_blocking_work, send_json,
)
from .errors import BadAnswer, BadInput, DeadlineExceeded, JobFailed, NotFound, Unavailable, Unreachable

if TYPE_CHECKING:
    from typing_extensions import Unpack

_POLL_SECONDS = 0.25
_FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")
_PAGE_JOBS = 1000

J = TypeVar("J")


class JobOptions(TypedDict, total=False):
    """The optional fields of a job's specification, as the REST interface describes them. `None` is the default."""

    task: str | None
    experiment: str | None
    message: str | None
    init_from: str | None
    device: str | None
    gpu_slots: float | None
    queue: str | None
    priority: int | None
    preemptible: bool | None
    seed: int | None
    replicas: int | None
    hosts: int | None
    shards: int | None
    retry: int | None
    retry_on: list[str] | None
    max_runtime_seconds: float | None
    auto_extend: int | None
    max_attempt_runtime_seconds: float | None
    checkpoint_every: str | dict[str, int] | None
    checkpoint_keep_last: int | None
    checkpoint_keep_best: dict[str, str] | None
    memory_bytes: int | None
    gpu_memory_bytes: int | None
    non_finite: str | None
    precision: str | None
    without: list[str] | None
    utilization: dict[str, float] | None
    secrets: list[str] | None
    measure: bool | None


class JobCore(Core, Generic[J]):
    """A job as it was when the server last described it; `refresh` asks again.

    `state` is `QUEUED`, `STARTING`, `RUNNING`, `STOPPING`, `SUCCEEDED`, `FAILED`, `CANCELLED` or `TIMED_OUT`, and
    `message` is the reason in words. `step` is the training step that it has completed, of `steps_target`, which is 0
    if it is not known. `metrics` has the last value of each metric, `None` for infinities and NaN; `curves` has all.
    `published` has the model versions that it published, such as `digits@1`. `document` is the whole JSON object.
    """

    def __init__(self, transport: Any, document: dict[str, Any]) -> None:
        super().__init__(transport)
        self._describe(document)

    def _describe(self, document: dict[str, Any]) -> None:
        try:
            self.document = document
            self.id, self.name, self.project, self.state = (
                str(document[member]) for member in ("id", "name", "project", "state")
            )
            self.message = str(document.get("message") or "")
            self.step, self.steps_target = int(document.get("step") or 0), int(document.get("steps_target") or 0)
            self.metrics: dict[str, float | None] = dict(document.get("metrics") or {})
            self.published = [f"{made['model']}@{made['version']}" for made in document.get("published") or []]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadAnswer(f"the server describes a job as {str(document)[:80]!r}") from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.state}, step {self.step}/{self.steps_target or '?'})"

    def __str__(self) -> str:
        return self.name

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in _FINAL_STATES

    def _path(self, *segments: object, **query: object) -> str:
        return route("api", "v1", "jobs", self.name, *segments, **query)

    def _refresh(self) -> Operation[J]:
        """Asks the server for the job again, and returns it."""
        self._describe((yield from self._json(get(self._path()))))
        return cast(J, self)

    @operation
    def wait(self, timeout: float | None = None, check: bool = True) -> Operation[J]:
        """Waits until the job is over, and returns it. A restart of the server is waited for, too.

        Errors: `JobFailed` if it ends in another state than `SUCCEEDED`, unless `check` is false; `DeadlineExceeded`
        after `timeout` seconds, and the job keeps running.
        """
        return (yield from self._until_over(timeout, check, None))

    @operation
    def follow(self, timeout: float | None = None, check: bool = True) -> Operation[J]:
        """Waits as `wait` does, and shows a progress bar: tqdm's if it is installed, else lines of text. An interrupt
        leaves the job running."""
        bar = Progress(self.name, self.steps_target)
        try:
            return (yield from self._until_over(timeout, check, bar))
        finally:
            bar.close()

    def _until_over(self, timeout: float | None, check: bool, bar: Progress | None) -> Operation[J]:
        began = answered = time.monotonic()
        while True:
            try:
                yield from self._refresh()
                answered = time.monotonic()
            except (Unreachable, Unavailable):
                if time.monotonic() - answered > RECONNECT_SECONDS:
                    raise
            if bar is not None:
                loss = self.metrics.get("loss")
                state = "" if self.state == "RUNNING" else self.state
                note = f"{state} loss {loss:.4f}" if loss is not None else state
                bar.show(self.step, self.steps_target, note.strip())
            if self.is_over:
                break
            if timeout is not None and time.monotonic() - began >= timeout:
                raise DeadlineExceeded(f"job {self.name} is {self.state} after {timeout:g} s", "timeout")
            left = timeout - (time.monotonic() - began) if timeout is not None else _POLL_SECONDS
            yield Pause(max(0.0, min(_POLL_SECONDS, left)))
        if check and self.state != "SUCCEEDED":
            message = f"job {self.name} {self.state}" + (f": {self.message}" if self.message else "")
            hint = f"job.logs() has its log; also: saggar logs {self.name}"
            raise JobFailed(message, str(self.document.get("reason") or ""), hint)
        return cast(J, self)

    @streaming
    def logs(
        self, follow: bool = False, *, attempt: int | None = None, since: str | None = None, tail: int | None = None,
        timestamps: bool = False, prefix: bool = False,
    ) -> Operation[EventStream[str]]:
        """Yields the lines of the log; with `follow` further ones until the job is over.

        Each line comes once: a lost connection is opened again after the last line. `since` is a time or a duration
        before now, such as `10m`; `tail` is a number of lines. Errors: `NotFound`; `TooManyRequests`.
        """

        def decode(event: ServerEvent, _: Response) -> tuple[list[str], bool]:
            return [event.data] if event.name == "line" else [], event.name == "end"

        query = {"attempt": attempt, "since": since, "tail": tail, "timestamps": timestamps, "prefix": prefix}
        return result_of(EventStream(get(self._path("logs", follow=follow, **query)), decode, resumes=True))

    @operation
    def curves(self, *series: str) -> Operation[Curves]:
        """Returns the metric series of the job: all, or those of these names. A running job has more later."""
        points: dict[str, list[tuple[int, float | None]]] = {name: [] for name in series}
        start: int | None = None
        while True:
            names = ",".join(series) or None
            document = yield from self._json(get(self._path("metrics", series=names, **{"from": start})))
            following = document.get("next")
            try:
                for curve in document["series"]:
                    new = [(int(point[0]), point[1]) for point in curve["points"]]
                    # Points from `next` on come again.
                    new = [point for point in new if following is None or point[0] < following]
                    points.setdefault(curve["name"], []).extend(new)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise BadAnswer(f"the series of {self.name} cannot be read: {error!r}") from error
            if following is None or start is not None and following <= start:
                return Curves(points)
            start = following

    def _command(self, command: str) -> Operation[J]:
        yield from self._json(Request("POST", self._path(command)))
        return (yield from self._refresh())

    @operation
    def stop(self) -> Operation[J]:
        """Makes the job save its state and end, and returns it. Errors: `Conflict` if it is over."""
        return (yield from self._command("stop"))

    @operation
    def preempt(self) -> Operation[J]:
        """Makes the running job save its state and wait in its queue again. Errors: `Conflict`."""
        return (yield from self._command("preempt"))

    @operation
    def checkpoint(self) -> Operation[J]:
        """Makes the running job save a checkpoint. Errors: `Conflict`."""
        return (yield from self._command("checkpoint"))

    @operation
    def restart(
        self, params: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None,
        resume: bool | None = None,
    ) -> Operation[J]:
        """Submits a job that repeats this one, and returns the new job.

        `params` changes parameters and `overrides` fields of the specification; `None` as a value removes one. With
        `resume` it continues from the newest checkpoint; by default it does if this job did not succeed.
        """
        body: dict[str, Any] = {"parameters": dict(params or {}), "overrides": dict(overrides or {}), "resume": resume}
        headers = {"idempotency-key": uuid.uuid4().hex}
        request = send_json("POST", self._path("restart"), body, headers=headers, idempotent=True)
        document = yield from self._json(request)
        return cast(J, type(self)(self._transport, document))

    @operation
    def remove(self) -> Operation[int]:
        """Removes the finished job with its logs, outputs and checkpoints. Returns the bytes freed."""
        return int((yield from self._json(Request("DELETE", self._path()))).get("freed_bytes", 0))

    def _outputs(self) -> Operation[list[OutputFile]]:
        """Returns the files that the job wrote."""
        return read_list(OutputFile.read, (yield from self._json(get(self._path("output")))), "files")

    @operation
    def read(self, path: str) -> Operation[bytes]:
        """Returns the content of a file that the job wrote. Errors: `NotFound`."""
        return (yield from self._fetch(get(self._path("output", *path.split("/"))))).body

    @operation
    def download(self, path: str | None = None, to: str | os.PathLike[str] = ".") -> Operation[list[Path]]:
        """Writes a file, or all files, that the job wrote into the directory `to`, and returns their paths there.

        A file of the same name is replaced once the new one is complete. Errors: `NotFound`.
        """
        names = [path] if path is not None else [file.path for file in (yield from self._outputs())]
        written = []
        for name in names:
            target = _inside(Path(to), name)
            yield from run_blocking_work(partial(target.parent.mkdir, parents=True, exist_ok=True))
            yield from self._fetch(get(self._path("output", *name.split("/")), target=target))
            written.append(target)
        return written

    @operation
    def checkpoints(self) -> Operation[list[Checkpoint]]:
        """Returns the checkpoints of the job, newest first."""
        return read_list(Checkpoint.read, (yield from self._json(get(self._path("checkpoints")))), "checkpoints")

    @operation
    def download_checkpoint(self, which: int | str, to: str | os.PathLike[str]) -> Operation[Path]:
        """Writes a checkpoint into the file `to`, in safetensors form. `which` is a step, `latest` or `best`."""
        yield from self._fetch(get(self._path("checkpoints", which), target=Path(to)))
        return Path(to)

    refresh = operation(_refresh)
    outputs = operation(_outputs)


class JobsCore(Core, Generic[J]):
    """Jobs."""

    _job_class: type[J]

    def _bind(self, document: Any) -> J:
        return cast(J, cast(Any, self._job_class)(self._transport, document))

    @operation
    def get(self, job: str) -> Operation[J]:
        """Returns a job by its name or identifier. Errors: `NotFound`."""
        return self._bind((yield from self._json(get(route("api", "v1", "jobs", job)))))

    @operation
    def submit(
        self, plugin: str | os.PathLike[str], *, data: str | Sequence[str] | Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None, project: str | None = None, idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Operation[J]:
        """Submits a job and returns it.

        `plugin` is a component, whose file is uploaded, or the digest, its first digits, or the name of a plugin that
        the server has. `data` names what it reads: `digits`, `digits/1:/data`, `job:prepare-3/output:/before`, a list
        of such names, or a dictionary from mount points to data. `params` are the plugin's parameters. `project` is by
        default the client's, else the plugin's name. `options` are the other fields of a job's specification. The same
        request with the same `idempotency_key` makes no second job.

        Errors: `NotFound`; `BadRequest`; `Conflict`; `Forbidden`.
        """
        digest, name = yield from self._find_plugin(plugin)
        project = project or self._settings.project or name
        body = {"project": project, "plugin": digest, "parameters": dict(params or {}), "data": _mounts(data)}
        return (yield from self._post({**body, **options}, idempotency_key))

    @operation
    def predict(
        self, model: str, dataset: str, *, split: str | None = None, out: str | None = None,
        project: str | None = None, **options: Unpack[JobOptions],
    ) -> Operation[J]:
        """Submits a job that predicts every item of a dataset, and returns it.

        The fields of the dataset are the inputs of the model, `NAME` or `NAME@VERSION`. The outputs are the job's file
        `predictions.safetensors`, and with `out` also a version of that dataset.
        """
        name, _, version = model.partition("@")
        if version and not version.isdigit():
            raise BadInput(f"{model}: a prediction job takes the number of a version")
        predict = {"model": name, "version": int(version) if version else None, "split": split, "out": out}
        project = project or self._settings.project or "predictions"
        # The server replaces the digest by that of the model's plugin.
        body = {"project": project, "plugin": "0" * 64, "task": "predict", "data": _mounts(dataset), **options}
        return (yield from self._post({**body, "predict": predict}, None))

    def _post(self, spec: Mapping[str, Any], idempotency_key: str | None) -> Operation[J]:
        given = {name: value for name, value in spec.items() if value is not None}
        headers = {"idempotency-key": idempotency_key or uuid.uuid4().hex}
        request = send_json("POST", "/api/v1/jobs", given, headers=headers, idempotent=True)
        return self._bind((yield from self._json(request)))

    def _find_plugin(self, plugin: str | os.PathLike[str]) -> Operation[tuple[str, str]]:
        """Returns the digest of a plugin, which is uploaded if it is a file, and the default project of its jobs."""
        text = os.fspath(plugin)
        if not isinstance(plugin, str) or text.endswith(".wasm"):
            stored = yield from upload_plugin(self, Path(text))
            return stored.digest, Path(text).stem.replace("_", "-").lower()
        plugins = read_list(Plugin.read, (yield from self._json(get("/api/v1/plugins"))), "plugins")
        is_digest = re.fullmatch("[0-9a-f]{6,64}", text) is not None
        found = [it for it in plugins if it.name == text or is_digest and it.digest.startswith(text)]
        if not found:
            raise NotFound(f"the server has no plugin {text}", hint="name a .wasm file to upload it")
        if len(found) > 1:
            hint = "name a digest: " + ", ".join(it.digest[:12] for it in found)
            raise BadInput(f"the server has {len(found)} plugins {text}", hint=hint)
        return found[0].digest, (found[0].name or "jobs").replace("_", "-").lower()

    @operation
    def list(
        self, *, state: str | Iterable[str] | None = None, project: str | None = None, experiment: str | None = None,
        limit: int = 100,
    ) -> Operation[list[J]]:
        """Returns jobs, newest first: at most `limit`, of these states, of a project and of an experiment."""
        states = state if state is None or isinstance(state, str) else ",".join(state)
        found: list[J] = []
        cursor: int | None = None
        while len(found) < limit:
            query = {"state": states, "project": project, "experiment": experiment, "cursor": cursor}
            page = min(_PAGE_JOBS, limit - len(found))
            document = yield from self._json(get(route("api", "v1", "jobs", limit=page, **query)))
            listed = document.get("jobs") or []
            found += [self._bind(job) for job in listed]
            cursor = document.get("cursor")
            if cursor is None or not listed:
                break
        return found


class PluginsCore(Core):
    """Plugins."""

    @operation
    def upload(self, path: str | os.PathLike[str]) -> Operation[Plugin]:
        """Uploads a component and returns it; its digest is that of its content. Errors: `BadRequest`."""
        return (yield from upload_plugin(self, Path(path)))

    @operation
    def list(self) -> Operation[list[Plugin]]:
        """Returns the uploaded plugins."""
        return read_list(Plugin.read, (yield from self._json(get("/api/v1/plugins"))), "plugins")


def upload_plugin(core: Core, path: Path) -> Operation[Plugin]:
    content = yield from run_blocking_work(path.read_bytes)
    # The same content is the same plugin.
    request = Request("POST", "/api/v1/plugins", {"content-type": "application/wasm"}, content, idempotent=True)
    return Plugin.read((yield from core._json(request)))


def _mounts(data: str | Sequence[str] | Mapping[str, str] | None) -> list[dict[str, Any]]:
    """Returns the mounts of a specification. The default mount point is `/data`. Errors: `BadInput`."""
    if isinstance(data, Mapping):
        return [_mount(str(source), point) for point, source in data.items()]
    texts = [data] if isinstance(data, str) else data or []
    return [_mount(source, "/" + point if at else "/data") for source, at, point in (_parted(text) for text in texts)]


def _parted(text: str) -> tuple[str, str, str]:
    source, at, point = str(text).rpartition(":/")
    return (source, at, point) if at else (point, "", "")


def _mount(source: str, point: str) -> dict[str, Any]:
    if source.startswith("job:"):
        job, _, path = source.removeprefix("job:").partition("/")
        first, _, inside = path.partition("/")
        if not job or first not in ("", "output"):
            raise BadInput(f"{source!r} is not data; job:prepare-3/output/train is")
        return {"job": job, "mount": point, **({"path": inside} if inside else {})}
    name, _, version = source.partition("/")
    if not name or version and not version.isdigit():
        raise BadInput(f"{source!r} is not data; digits and digits/1 are")
    return {"dataset": name, "mount": point, **({"version": int(version)} if version else {})}


def _inside(folder: Path, name: str) -> Path:
    """Returns the path of a file below a folder. A server cannot name one outside."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise BadAnswer(f"{name!r} is not a file below a folder")
    return folder.joinpath(*parts)
