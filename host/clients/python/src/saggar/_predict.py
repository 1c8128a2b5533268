"""Predictions: the binary form of the Open Inference Protocol for arrays, a multipart form for files, and events for
models that stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import errors
from ._bind import operation, streaming
from ._documents import Port, Signature
from ._protocol import (
    SLOW_SECONDS, Core, EventStream, Operation, Request, Response, ServerEvent, form, get, json_object, not_saggar,
    route, run_blocking_work, send_json,
)
from ._tensors import Array, as_array, decode, encode, fit, from_json, is_text, to_json

_HEADER_LENGTH = "inference-header-content-length"
# The server's longest deadline.
_STREAM_SECONDS = 600.0


class Prediction(Mapping[str, Array]):
    """The outputs of a model by name, as arrays.

    Of a batch, the first axis of each output counts items; of a single item, the outputs have no such axis. Texts are
    arrays of `str` objects.
    """

    def __init__(self, outputs: dict[str, Array], response: Response, signature: Signature, single: bool) -> None:
        self._outputs = outputs
        self._response = response
        self._signature = signature
        self._single = single

    def __getitem__(self, name: str) -> Array:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        return f"Prediction({self.model}, {self._outputs!r})"

    @property
    def model(self) -> str:
        """The version that answered: `digits@3`."""
        return self._response.header("x-saggar-model")

    @property
    def version(self) -> int:
        """The number of that version, 0 if the server does not say."""
        number = self.model.rpartition("@")[2]
        return int(number) if number.isdigit() else 0

    @property
    def device(self) -> str:
        """The device that computed it."""
        return self._response.header("x-saggar-device")

    @property
    def request_id(self) -> str:
        """The identifier of the request in the server's log."""
        return self._response.header("x-request-id")

    @property
    def warnings(self) -> list[str]:
        """What the server warns of about the inputs, such as a picture that was distorted."""
        return self._response.header_values("x-saggar-warning")

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds in the `queue`, in the model (`compute`) and in `total`."""
        parts = [part.strip().partition(";dur=") for part in self._response.header("server-timing").split(",")]
        return {name: float(milliseconds) for name, _, milliseconds in parts if milliseconds}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer, with names in lower case."""
        return {name.lower(): value for name, value in self._response.headers}

    def top_k(self, k: int = 3, output: str | None = None) -> list[list[tuple[str, float]]]:
        """Returns the `k` most probable classes of each item with their probabilities, the most probable first.

        `output` is a vector for each item; by default the output whose semantics are `probabilities`. A single item is
        a list of one. Classes without names are their numbers. Errors: `ValueError` if there is no such output.
        """
        ports = {port.name: port for port in self._signature.outputs}
        if output is None:
            output = next((name for name in self if name in ports and ports[name].semantics == "probabilities"), None)
        if output is None or output not in self._outputs:
            raise ValueError(f"no output has probabilities; name one of {', '.join(self)} with output=")
        rows = self._outputs[output][None] if self._single else self._outputs[output]
        if rows.ndim != 2:
            raise ValueError(f"output {output} is not a vector for each item: its shape is {rows.shape}")
        names = ports[output].classes if output in ports else []
        names = names if len(names) == rows.shape[1] else [str(at) for at in range(rows.shape[1])]
        order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
        return [[(names[at], float(row[at])) for at in best] for row, best in zip(rows, order)]


@dataclass(frozen=True)
class Piece:
    """A part of an output that a model sent early. `value` is a text, or an array; `item` numbers the items of a batch.

    The last piece of a stream is empty and has the whole prediction as `result`.
    """

    output: str
    value: str | Array
    item: int | None = None
    result: Prediction | None = None

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class _Call:
    """The inputs of a prediction, fitted to the model."""

    model: str
    signature: Signature
    arrays: dict[str, Array]
    files: dict[str, Path]
    single: bool

    def infer_request(self, outputs: Sequence[str] | None, headers: dict[str, str], timeout: float | None) -> Request:
        ports = {port.name: port for port in self.signature.inputs}
        inputs, parts = [], []
        for name, array in self.arrays.items():
            datatype, data = encode(name, array)
            shape = self._shape(ports.get(name), array)
            size = {"binary_data_size": len(data)}
            inputs.append({"name": name, "datatype": datatype, "shape": shape, "parameters": size})
            parts.append(data)
        document: dict[str, Any] = {"inputs": inputs, "parameters": {"binary_data_output": True}}
        if outputs is not None:
            document["outputs"] = [{"name": name} for name in outputs]
        head = json.dumps(document).encode()
        # Compression costs more time than it saves for most tensors.
        headers = {_HEADER_LENGTH: str(len(head)), "accept-encoding": "identity", **headers}
        headers["content-type"] = "application/octet-stream"
        path = route("v2", "models", self.model, "infer")
        # A prediction changes nothing, so it may be repeated.
        return Request("POST", path, headers, b"".join([head, *parts]), idempotent=True, timeout=timeout)

    def _shape(self, port: Port | None, array: Array) -> list[int]:
        """Returns the shape that is sent: a text is one element of an item."""
        batch = [1] if self.single and self.signature.batch_sizes else []
        if port is not None and is_text(port) and array.ndim == (0 if self.single else 1):
            return [*batch, *array.shape, 1]
        return [*batch, *array.shape]

    def form_request(self, headers: dict[str, str], timeout: float | None) -> Operation[Request]:
        """Returns a request with files, which are read outside an event loop."""
        files = yield from run_blocking_work(lambda: {name: path.read_bytes() for name, path in self.files.items()})
        parts = [(name, None, "application/json", json.dumps(value).encode()) for name, value in self._json().items()]
        kind, body = form([*parts, *((name, self.files[name].name, None, content) for name, content in files.items())])
        path = route("models", self.model, "predict")
        return Request("POST", path, {**headers, "content-type": kind}, body, idempotent=True, timeout=timeout)

    def json_request(self, headers: dict[str, str], timeout: float | None) -> Request:
        headers = {**headers, "content-type": "application/json"}
        body = json.dumps(self._json()).encode()
        return Request("POST", route("models", self.model, "predict"), headers, body, timeout=timeout)

    def _json(self) -> dict[str, Any]:
        return {name: to_json(name, array) for name, array in self.arrays.items()}


@dataclass(frozen=True)
class _Description:
    """What the server said about a model: `reference` asks for it, and `version` is the one that was described."""

    reference: str
    version: str
    signature: Signature


class PredictCore(Core):
    """Predictions."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        # By the reference that was asked for. A prediction that is refused asks again.
        self._descriptions: dict[str, _Description] = {}

    def _describe(self, model: str | None, wake: bool = True) -> Operation[_Description]:
        """Describes a model, which is loaded first if it sleeps. The default model is never known already."""
        if model in self._descriptions:
            return self._descriptions[model]
        path = route("models", model, "predict") if model else "/predict"
        try:
            document = yield from self._json(Request("GET", path))
        except (errors.NotFound, errors.Unavailable) as error:
            if not wake or error.code not in ("version_not_serving", "not_ready"):
                raise
            # A prediction loads the model or the version, also one without inputs, and a description does not.
            try:
                yield from self._json(send_json("POST", path, {}, idempotent=True, timeout=SLOW_SECONDS))
            except errors.BadRequest:
                pass
            document = yield from self._json(get(path))
        name = str(document.get("model", ""))
        signature = Signature.read(document.get("signature"))
        described = _Description(model or name, f"{name}@{document.get('version')}", signature)
        if model:
            self._descriptions[model] = described
        return described

    def _signature_of(self, response: Response, described: _Description) -> Operation[Signature]:
        """Returns the signature of the version that answered, which can be another one than was described."""
        answered = response.header("x-saggar-model")
        if answered in ("", described.version):
            return described.signature
        try:
            return (yield from self._describe(answered, wake=False)).signature
        except (errors.NotFound, errors.Unavailable):
            # It was unloaded after it answered.
            return described.signature

    @operation
    def predict(
        self, model: str | None, inputs: Any, *, outputs: Sequence[str] | None = None, deadline: float | None = None,
        keep_alive: str | None = None, request_id: str | None = None,
    ) -> Operation[Prediction]:
        """Asks a model for a prediction and returns its outputs as arrays.

        `model` is `NAME`, `NAME@VERSION` or `NAME@ALIAS`; `None` means the server's default model. `inputs` maps the
        names of inputs to values; for a model that needs only one, the value alone is enough. A value is anything that
        `numpy.asarray` takes, a text or an array of texts, or a `pathlib.Path` of a file, such as an image.

        Shape: as the model takes an item, `client.models.show(model).signature`, or with a leading axis for a batch.
        DType: a value is converted to the type of the input if every element fits, rounded for floats. Others are sent
        as they are, and the server refuses them. NaN and infinities are kept.

        `outputs` selects outputs. `deadline` limits the time in the queue and in the model, in seconds. `keep_alive` is
        how long the model then stays loaded, such as `10m`. `request_id` is your identifier of the request.

        Errors: `BadInput`; `UnknownModel`; `DeadlineExceeded`; `QueueFull`; `PluginRejected`; `PluginFailed`.
        """
        headers, timeout = _headers(deadline, keep_alive, request_id), _timeout(deadline)
        was_known = model in self._descriptions
        described = yield from self._describe(model)
        while True:
            try:
                call = _fitted(described, inputs)
                if call.files:
                    request = yield from call.form_request(headers, timeout)
                else:
                    request = call.infer_request(outputs, headers, timeout)
                response = yield from self._fetch(request)
                break
            except (errors.BadRequest, errors.NotFound):
                # The model may have another signature now.
                if not was_known or model is None:
                    raise
                was_known, before = False, described.signature
                self._descriptions.pop(model, None)
                described = yield from self._describe(model)
                if described.signature == before:
                    raise
        call = replace(call, signature=(yield from self._signature_of(response, described)))
        if call.files:
            return _json_prediction(json_object(response.body), response, call, outputs)
        return _binary_prediction(response, call)

    @streaming
    def stream(
        self, model: str | None, inputs: Any, *, deadline: float | None = None, keep_alive: str | None = None,
        request_id: str | None = None,
    ) -> Operation[EventStream[Piece]]:
        """Asks a model for a prediction and yields the pieces of its outputs as the model writes them.

        The arguments are those of `predict`, without files. The last piece has the whole prediction as `result`. A
        model that does not stream sends only that. Ending the iteration early cancels the prediction.

        Errors: those of `predict`; `Unreachable` if the connection breaks before the end.
        """
        call = _fitted((yield from self._describe(model)), inputs)
        if call.files:
            raise errors.BadInput(f"{', '.join(call.files)}: streams take no files")
        headers, timeout = _headers(deadline, keep_alive, request_id), _timeout(deadline)

        def decode_event(event: ServerEvent, response: Response) -> tuple[list[Piece], bool]:
            if event.name == "piece":
                return [_piece(json_object(event.data), call.signature)], False
            if event.name == "done":
                result = _json_prediction(json_object(event.data), response, call, None)
                return [Piece("", "", result=result)], True
            if event.name == "error":
                raise errors.from_document(json_object(event.data))
            return [], False

        return EventStream(call.json_request(headers, timeout or _STREAM_SECONDS), decode_event, resumes=False)


def _timeout(deadline: float | None) -> float | None:
    """Returns the timeout of a request with a deadline: the server reports a missed one first."""
    return deadline + 5 if deadline is not None else None


def _headers(deadline: float | None, keep_alive: str | None, request_id: str | None) -> dict[str, str]:
    milliseconds = None if deadline is None else str(max(1, round(deadline * 1000)))
    headers = {"x-saggar-deadline-ms": milliseconds, "x-saggar-keep-alive": keep_alive, "x-request-id": request_id}
    return {name: value for name, value in headers.items() if value is not None}


def _fitted(described: _Description, inputs: Any) -> _Call:
    model, signature = described.reference, described.signature
    ports = {port.name: port for port in signature.inputs}
    if not isinstance(inputs, Mapping):
        needed = [port.name for port in signature.inputs if port.default is None] or list(ports)
        if len(needed) != 1:
            raise errors.BadInput(f"{model} takes the inputs {', '.join(ports)}: give them by name, as a dictionary")
        inputs = {needed[0]: inputs}
    files = {name: value for name, value in inputs.items() if isinstance(value, Path)}
    # An input that the model does not have is sent too: the server's error names those that it has.
    others = {name: value for name, value in inputs.items() if name not in files}
    arrays = {
        name: fit(ports[name], value) if name in ports else as_array(name, value) for name, value in others.items()
    }
    dims = {name: 0 if is_text(port) else len(port.shape) for name, port in ports.items()}
    single = all(array.ndim == dims[name] for name, array in arrays.items() if name in dims)
    return _Call(model, signature, arrays, files, single)


def _binary_prediction(response: Response, call: _Call) -> Prediction:
    """Reads an answer of the Open Inference Protocol. Every output must be as long as it says."""
    length = response.header(_HEADER_LENGTH)
    at = int(length) if length.isdigit() else len(response.body)
    if at > len(response.body):
        raise not_saggar(f"the answer ends within its header of {at} bytes")
    document = json_object(response.body[:at])
    ports = {port.name: port for port in call.signature.outputs}
    outputs = {}
    try:
        for output in document["outputs"]:
            name, datatype, shape = output["name"], output["datatype"], [int(dim) for dim in output["shape"]]
            size = int(output["parameters"]["binary_data_size"])
            if min([size, *shape]) < 0 or at + size > len(response.body):
                raise errors.BadAnswer(f"output {name}: the answer ends {at + size - len(response.body)} bytes early")
            array = decode(name, datatype, shape, response.body[at : at + size])
            at += size
            if call.single and call.signature.batch_sizes:
                array = array[0, ...]
            outputs[name] = array[..., 0] if name in ports and is_text(ports[name]) and array.ndim else array
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise errors.BadAnswer(f"the answer is not one of the Open Inference Protocol: {error!r}") from error
    if at != len(response.body):
        raise errors.BadAnswer(f"{len(response.body) - at} bytes follow the last output")
    return Prediction(outputs, response, call.signature, call.single)


def _json_prediction(
    document: dict[str, Any], response: Response, call: _Call, selected: Sequence[str] | None
) -> Prediction:
    ports = [port for port in call.signature.outputs if port.name in document]
    outputs = {port.name: from_json(port, document[port.name]) for port in ports}
    chosen = {name: outputs[name] for name in (selected if selected is not None else outputs) if name in outputs}
    return Prediction(chosen, response, call.signature, call.single)


def _piece(document: dict[str, Any], signature: Signature) -> Piece:
    ports = {port.name: port for port in signature.outputs}
    for name, value in document.items():
        if name in ports and (name != "item" or len(document) == 1):
            return Piece(name, value if isinstance(value, str) else from_json(ports[name], value), document.get("item"))
    raise errors.BadAnswer(f"a piece of no output: {str(document)[:80]}")
