"""Models: lists, release and removal of versions, settings and imports."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._bind import operation
from ._documents import Model, ModelVersion, NewVersion, read_list
from ._protocol import SLOW_SECONDS, Core, Operation, Pause, Request, form, get, route, run_blocking_work, send_json
from .errors import DeadlineExceeded, ServerError, UnknownModel

_POLL_SECONDS = 0.1
# Why a stored version does not serve until someone acts.
_FINAL_REASONS = ("MODEL_UNLOADED", "NOT_PROMOTED", "SUPERSEDED", "ASLEEP")


class ModelsCore(Core):
    """Models. Every change returns the model as it is afterwards, and needs a key with `models:write`."""

    def _change(
        self, method: str, model: str, *segments: str, body: Mapping[str, Any] | None = None
    ) -> Operation[Model]:
        path = route("api", "v1", "models", model, *segments)
        empty = Request(method, path, timeout=SLOW_SECONDS)
        request = empty if body is None else send_json(method, path, dict(body), timeout=SLOW_SECONDS)
        return Model.read((yield from self._json(request)))

    def _show(self, model: str) -> Operation[Model]:
        """Returns a model with its versions, and its signature if a version serves. Errors: `UnknownModel`."""
        return Model.read((yield from self._json(get(route("api", "v1", "models", model)))))

    @operation
    def wait(self, model: str, version: int | None = None, timeout: float = 60.0) -> Operation[Model]:
        """Waits until a version of the model serves, by default any, and returns the model.

        Errors: `ServerError` if the version failed to load, or is stored and does not serve until someone acts;
        `DeadlineExceeded` after `timeout` seconds.
        """
        began = time.monotonic()
        while True:
            try:
                shown: Model | None = yield from self._show(model)
            except UnknownModel:
                shown = None
            if shown is not None and (shown.serving is not None if version is None else _serves(shown, version)):
                return shown
            if time.monotonic() - began >= timeout:
                name = model if version is None else f"{model}@{version}"
                raise DeadlineExceeded(f"{name} does not serve after {timeout:g} s", "timeout")
            yield Pause(_POLL_SECONDS)

    def _load(self, model: str, version: int | None = None) -> Operation[Model]:
        """Loads a version beside the default, or what the model needs, and returns when it serves.

        Errors: `ServerError` if it fails to load; `Conflict`; `Unavailable` if it does not fit into the memory.
        """
        return (yield from self._change("POST", model, "load", body=_version(version)))

    @operation
    def unload(self, model: str, version: int | None = None) -> Operation[Model]:
        """Unloads a version, or the model, which stays unloaded until it is loaded."""
        return (yield from self._change("POST", model, "unload", body=_version(version)))

    @operation
    def warm(self, model: str) -> Operation[Model]:
        """Loads a sleeping model and predicts its warm-up samples."""
        return (yield from self._change("POST", model, "warm"))

    @operation
    def promote(self, model: str, version: int | str) -> Operation[Model]:
        """Makes a version the default and keeps it so; `newest` follows new versions again. Errors: `NotFound`."""
        return (yield from self._change("POST", model, "promote", body={"version": version}))

    @operation
    def rollback(self, model: str) -> Operation[Model]:
        """Makes the previous default version the default again. Errors: `Conflict` if it had no other one."""
        return (yield from self._change("POST", model, "rollback"))

    @operation
    def canary(self, model: str, version: int, percent: int) -> Operation[Model]:
        """Gives a version, which is loaded first, a share of the default requests, under the alias `canary`. With 0
        percent the canary ends."""
        if percent == 0:
            shared = yield from self._traffic(model, {})
            return (yield from self._alias(model, "canary", None)) if "canary" in shared.aliases else shared
        yield from self._alias(model, "canary", version)
        return (yield from self._traffic(model, {"stable": 100 - percent, "canary": percent}))

    def _traffic(self, model: str, shares: Mapping[str, int]) -> Operation[Model]:
        """Sets the shares of default requests in percent, by alias or version; an empty dictionary ends them."""
        return (yield from self._change("PUT", model, "traffic", body=shares))

    def _alias(self, model: str, alias: str, version: int | None) -> Operation[Model]:
        """Points an alias at a version, which is loaded first; `None` removes the alias. Errors: `NotFound`."""
        if version is None:
            return (yield from self._change("DELETE", model, "aliases", alias))
        yield from self._load(model, version)
        return (yield from self._change("PUT", model, "aliases", alias, body={"version": version}))

    @operation
    def shadow(self, model: str, to: int | str | None, percent: int = 100) -> Operation[Model]:
        """Repeats a share of the requests on a version, which is loaded first, or on an alias; `None` ends it."""
        if to is None:
            return (yield from self._change("DELETE", model, "shadow"))
        if str(to).isdigit():
            yield from self._load(model, int(to))
        return (yield from self._change("PUT", model, "shadow", body={"to": str(to), "percent": percent}))

    @operation
    def config(self, model: str) -> Operation[dict[str, Any]]:
        """Returns how the model is served: the content of `model.json`."""
        return (yield from self._json(get(route("api", "v1", "models", model, "config"))))

    @operation
    def configure(self, model: str, config: Mapping[str, Any]) -> Operation[dict[str, Any]]:
        """Replaces `model.json`, and returns the answer. Errors: `BadRequest`, which names the wrong key."""
        path = route("api", "v1", "models", model, "config")
        return (yield from self._json(send_json("PUT", path, dict(config))))

    @operation
    def set_projects(self, model: str, projects: Sequence[str]) -> Operation[list[str]]:
        """Sets the projects that the model belongs to, and returns them. Errors: `Forbidden`."""
        path = route("api", "v1", "models", model, "projects")
        document = yield from self._json(send_json("PUT", path, {"projects": list(projects)}))
        return list(document.get("projects", []))

    @operation
    def remove(self, model: str, version: int | None = None) -> Operation[list[str]]:
        """Removes a version, or the model with all of them, and returns what was removed, such as `digits@1`.

        Errors: `Conflict` while something needs the version.
        """
        segments = () if version is None else ("versions", str(version))
        request = Request("DELETE", route("api", "v1", "models", model, *segments))
        return list((yield from self._json(request)).get("removed", []))

    @operation
    def publish(
        self, model: str, *, plugin: str | None = None, from_version: int | None = None, checkpoint: str | None = None
    ) -> Operation[NewVersion]:
        """Makes a version: from the digest of a plugin and the weights of a version, by default the newest, or from a
        job's checkpoint, such as `job:mnist-7/checkpoint@1200`."""
        body = {"plugin": plugin, "from_version": from_version, "from": checkpoint}
        given = {name: value for name, value in body.items() if value is not None}
        path = route("api", "v1", "models", model, "versions")
        return NewVersion.read((yield from self._json(send_json("POST", path, given, timeout=SLOW_SECONDS))))

    @operation
    def import_onnx(
        self, path: str | os.PathLike[str], name: str | None = None, *, batch: Sequence[int] | None = None,
        shapes: Mapping[str, Sequence[int | None]] | None = None, constants: Mapping[str, Any] | None = None,
        external: Iterable[str | os.PathLike[str]] = (),
    ) -> Operation[NewVersion]:
        """Makes a version from an ONNX file and returns it once it is stored; `wait` waits until it serves.

        `batch` has the batch sizes to build graphs for, `shapes` the shape of an input with `None` for the batch, and
        `constants` the values of inputs that become constant. `external` are the files with tensors that the model
        names. Errors: `BadRequest`, which names what is not supported.
        """
        file = Path(path)
        model = name or file.stem.lower().replace("_", "-").replace(" ", "-")
        options = {"batch": batch and list(batch), "shapes": shapes and dict(shapes), "constants": constants}
        given = json.dumps({key: value for key, value in options.items() if value})
        files = [file, *map(Path, external)]
        contents = yield from run_blocking_work(lambda: [file.read_bytes() for file in files])
        kind, body = "application/octet-stream", contents[0]
        if len(files) > 1:
            names = ["model", *(file.name for file in files[1:])]
            kind, body = form([(name, name, None, content) for name, content in zip(names, contents)])
        request = Request(
            "POST",
            route("api", "v1", "models", model, "import", options=given),
            {"content-type": kind},
            body,
            timeout=SLOW_SECONDS,
        )
        return NewVersion.read((yield from self._json(request)))

    show = operation(_show)
    load = operation(_load)
    traffic = operation(_traffic)
    alias = operation(_alias)

    @operation
    def list(self) -> Operation[list[Model]]:
        """Returns the models with their versions, without their signatures."""
        return read_list(Model.read, (yield from self._json(get("/api/v1/models"))), "models")


def _version(version: int | None) -> dict[str, int]:
    return {} if version is None else {"version": version}


def _serves(model: Model, number: int) -> bool:
    """Returns whether a version serves. Errors: `ServerError` if it will not."""
    version: ModelVersion | None = next((it for it in model.versions if it.version == number), None)
    if version is None or version.state == "READY":
        return version is not None
    if version.state == "FAILED" or version.reason_code in _FINAL_REASONS:
        raise ServerError(f"{model.name}@{number} is {version.state}: {version.reason}", "version_not_serving")
    return False

