"""Predictions against scripted answers, with both clients."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saggar

from ..conftest import Call, Received, ScriptedServer, answer, events, head

Start = Callable[..., ScriptedServer]

IMAGE = {"name": "image", "dtype": "uint8", "shape": [2, 2], "semantics": "image"}
DIGITS = {
    "inputs": [IMAGE],
    "outputs": [
        {"name": "label", "dtype": "int32", "shape": [], "semantics": "class"},
        {
            "name": "probabilities",
            "dtype": "float32",
            "shape": [3],
            "semantics": "probabilities",
            "classes": ["a", "b", "c"],
        },
    ],
    "batch_sizes": [1, 8],
}
TELLER = {
    "inputs": [
        {"name": "prompt", "dtype": "uint8", "shape": [64], "semantics": "text"},
        {"name": "times", "dtype": "uint32", "shape": [], "default": 1.0},
    ],
    "outputs": [{"name": "said", "dtype": "uint8", "shape": [64], "semantics": "text"}],
    "batch_sizes": [1],
}


def described(signature: dict[str, Any], model: str = "digits") -> bytes:
    return answer({"model": model, "version": 1, "signature": signature})


def inferred(*outputs: tuple[str, str, list[int], bytes], cut: int | None = None, **headers: str) -> bytes:
    """An answer of the Open Inference Protocol with binary outputs, of which `cut` bytes are sent."""
    listed = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, datatype, shape, data in outputs
    ]
    text = json.dumps({"model_name": "digits", "model_version": "1", "outputs": listed}).encode()
    body = (text + b"".join(data for *_, data in outputs))[:cut]
    headers = {"Inference_Header_Content_Length": str(len(text)), "X_Saggar_Model": "digits@1", **headers}
    return answer(body, **headers)


def labels(*values: int) -> tuple[str, str, list[int], bytes]:
    return ("label", "INT32", [len(values)], struct.pack(f"<{len(values)}i", *values))


def sent(request: Received) -> tuple[dict[str, Any], bytes]:
    """The JSON and the binary part of a request."""
    length = int(request.headers["inference-header-content-length"])
    return json.loads(request.body[:length]), request.body[length:]


def test_an_array_is_sent_as_binary_data_and_answered_with_arrays(call: Call, scripted: Start) -> None:
    probabilities = ("probabilities", "FP32", [1, 3], struct.pack("<3f", 0.25, 0.5, 0.25))
    timing = "queue;dur=0.5, compute;dur=1.25, total;dur=2"
    headers = {"X_Request_Id": "r-1", "Server_Timing": timing, "X_Saggar_Device": "cpu", "X_Saggar_Warning": "w"}
    server = scripted(described(DIGITS), inferred(labels(2), probabilities, **headers))
    options = {"deadline": 1.5, "keep_alive": "5m", "request_id": "mine", "outputs": ["label", "probabilities"]}
    image = np.array([[1, 2], [3, 4]], np.uint8)
    found = call(lambda client: client.predict("digits@2", image, **options), host=server.url, key="k-1")
    assert server.requests[0].line == "GET /models/digits@2/predict HTTP/1.1"
    asked = server.requests[1]
    assert asked.line == "POST /v2/models/digits@2/infer HTTP/1.1"
    assert [
        asked.headers[name]
        for name in (
            "authorization",
            "x-saggar-deadline-ms",
            "x-saggar-keep-alive",
            "x-request-id",
            "user-agent",
        )
    ] == ["Bearer k-1", "1500", "5m", "mine", f"saggar/{saggar.__version__} python"]
    document, binary = sent(asked)
    assert document == {
        "inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 2, 2], "parameters": {"binary_data_size": 4}}],
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "label"}, {"name": "probabilities"}],
    }
    assert binary == bytes([1, 2, 3, 4])
    assert list(found) == ["label", "probabilities"] and len(found) == 2
    assert found["label"].shape == () and found["label"].dtype == np.int32 and found["label"] == 2
    assert found["probabilities"].tolist() == [0.25, 0.5, 0.25]
    assert (found.model, found.version, found.device, found.request_id) == ("digits@1", 1, "cpu", "r-1")
    assert found.warnings == ["w"] and found.timings == {"queue": 0.5, "compute": 1.25, "total": 2.0}
    assert found.headers["x-saggar-model"] == "digits@1" and "digits@1" in repr(found)
    assert found.top_k(2) == [[("b", 0.5), ("a", 0.25)]]
    assert found.top_k(9, "probabilities") == [[("b", 0.5), ("a", 0.25), ("c", 0.25)]]
    for output in ("label", "nothing"):
        with pytest.raises(ValueError, match="output"):
            found.top_k(output=output)


def test_a_batch_keeps_its_axis_and_big_endian_inputs_are_converted(call: Call, scripted: Start) -> None:
    server = scripted(described(DIGITS), inferred(labels(1, 2, 3)))
    images = np.arange(12, dtype=">i8").reshape(3, 2, 2)[:, ::-1]
    found = call(lambda client: client.predict("digits", {"image": images}), host=server.url)
    document, binary = sent(server.requests[1])
    assert document["inputs"][0]["shape"] == [3, 2, 2] and "outputs" not in document
    assert binary == bytes([2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9])
    assert found["label"].tolist() == [1, 2, 3]


def test_texts_are_scalars_or_vectors(call: Call, scripted: Start) -> None:
    said = ("said", "BYTES", [1, 1], b"\x02\x00\x00\x00\xc3\xa9")
    server = scripted(described(TELLER, "teller"), inferred(said, X_Saggar_Model="teller@1"))
    found = call(lambda client: client.predict("teller", "é"), host=server.url)
    document, binary = sent(server.requests[1])
    assert document["inputs"] == [
        {"name": "prompt", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": 6}}
    ]
    assert binary == b"\x02\x00\x00\x00\xc3\xa9" and found["said"].shape == () and str(found["said"]) == "é"
    both = ("said", "BYTES", [2, 1], b"\x01\x00\x00\x00a\x01\x00\x00\x00b")
    server = scripted(described(TELLER, "teller"), inferred(both, X_Saggar_Model="teller@1"))
    found = call(lambda client: client.predict("teller", {"prompt": ["a", "b"], "times": [1, 1]}), host=server.url)
    shapes = [given["shape"] for given in sent(server.requests[1])[0]["inputs"]]
    assert shapes == [[2, 1], [2]] and found["said"].tolist() == ["a", "b"]


def test_the_default_model_is_asked_by_its_name(call: Call, scripted: Start) -> None:
    answered = inferred(labels(1), X_Saggar_Model="writer@1")
    server = scripted(described(DIGITS, "writer"), answered)
    call(lambda client: client.predict(None, np.zeros((2, 2), np.uint8)), host=server.url)
    assert [request.path for request in server.requests] == ["/predict", "/v2/models/writer/infer"]


def test_classes_are_those_of_the_version_that_answered(call: Call, scripted: Start) -> None:
    probabilities = ("probabilities", "FP32", [1, 3], struct.pack("<3f", 0.1, 0.7, 0.2))
    other = {**DIGITS, "outputs": [{**DIGITS["outputs"][1], "classes": ["x", "y", "z"]}]}
    server = scripted(
        described(DIGITS),
        inferred(probabilities, X_Saggar_Model="digits@2"),
        answer({"model": "digits", "version": 2, "signature": other}),
    )
    image = np.zeros((2, 2), np.uint8)
    assert call(lambda client: client.predict("digits", image), host=server.url).top_k(1)[0][0][0] == "y"
    assert [request.path for request in server.requests][2:] == ["/models/digits@2/predict"]
    gone = answer({"error": "unloaded", "code": "version_not_serving"}, 404)
    server = scripted(described(DIGITS), inferred(probabilities, X_Saggar_Model="digits@2"), gone)
    assert call(lambda client: client.predict("digits", image), host=server.url).top_k(1)[0][0][0] == "b"
    assert len(server.requests) == 3


def test_a_model_that_sleeps_is_woken_by_a_prediction_without_inputs(call: Call, scripted: Start) -> None:
    asleep = answer({"error": "it sleeps", "code": "not_ready"}, 503, Retry_After="1")
    missing = answer({"error": "image: missing", "code": "bad_input"}, 400)
    server = scripted(asleep, asleep, missing, described(DIGITS), inferred(labels(1)))
    assert call(lambda client: client.predict("digits@1", np.zeros((2, 2), np.uint8)), host=server.url)["label"] == 1
    assert [request.line.split(" ")[0] for request in server.requests] == ["GET", "POST", "POST", "GET", "POST"]
    assert server.requests[2].json == {} and server.requests[2].path == "/models/digits@1/predict"
    gone = answer({"error": "version 9 is unknown", "code": "version_not_serving"}, 404)
    with pytest.raises(saggar.NotFound, match="version 9 is unknown"):
        call(lambda client: client.predict("digits@9", []), host=scripted(gone).url)
    unloaded = answer({"error": "it is unloaded", "code": "not_ready"}, 503)
    with pytest.raises(saggar.Unavailable, match="it is unloaded"):
        call(lambda client: client.predict("digits", []), host=scripted(unloaded).url)


def test_a_changed_signature_is_read_again_once(call: Call, scripted: Start) -> None:
    refused = answer({"error": "image: no such input", "code": "bad_input", "hint": "look"}, 400)
    new = {**DIGITS, "inputs": [{**IMAGE, "name": "picture"}]}
    server = scripted(
        described(DIGITS), inferred(labels(1)), refused, described(new), inferred(labels(2)), refused, described(new)
    )
    image = np.zeros((2, 2), np.uint8)

    def blocking(client: Any) -> Any:
        first, second = client.predict("digits", image), client.predict("digits", image)
        with pytest.raises(saggar.BadInput, match="no such input"):
            client.predict("digits", image)
        return first, second

    async def asynchronous(client: Any) -> Any:
        first, second = await client.predict("digits", image), await client.predict("digits", image)
        with pytest.raises(saggar.BadInput, match="no such input"):
            await client.predict("digits", image)
        return first, second

    first, second = call(
        lambda client: blocking(client) if isinstance(client, saggar.Client) else asynchronous(client), host=server.url
    )
    assert (first["label"], second["label"]) == (1, 2)
    assert sent(server.requests[4])[0]["inputs"][0]["name"] == "picture"
    assert len(server.requests) == 7


def test_the_servers_errors_arrive_with_their_hint(call: Call, scripted: Start) -> None:
    for document, status, kind in [
        (
            {"error": "image: expected shape [-1, 2, 2], got [1, 3]", "code": "bad_input", "hint": "GET /v2"},
            400,
            saggar.BadInput,
        ),
        (
            {"error": "no model x", "code": "unknown_model", "hint": "GET /v2", "request_id": "r-9"},
            404,
            saggar.UnknownModel,
        ),
        ({"error": "late", "code": "deadline_queued", "hint": "GET /v2"}, 408, saggar.DeadlineExceeded),
    ]:
        server = scripted(described(DIGITS), answer(document, status))
        with pytest.raises(kind, match="(?s)" + str(document["error"])[:5] + ".*hint: GET /v2"):
            call(lambda client: client.predict("digits", np.zeros((1, 3), np.uint8)), host=server.url)
        assert len(server.requests) == 2


def test_several_inputs_need_names(call: Call, scripted: Start) -> None:
    two = {**DIGITS, "inputs": [IMAGE, {**IMAGE, "name": "mask"}]}
    server = scripted(described(two))
    with pytest.raises(saggar.BadInput, match="digits takes the inputs image, mask"):
        call(lambda client: client.predict("digits", np.zeros((2, 2), np.uint8)), host=server.url)


def test_broken_answers_are_refused(call: Call, scripted: Start) -> None:
    image = np.zeros((2, 2), np.uint8)
    negative = {
        "outputs": [{"name": "label", "datatype": "INT32", "shape": [-1], "parameters": {"binary_data_size": 4}}]
    }
    text = json.dumps(negative).encode()
    for said, reason in [
        (inferred(labels(1, 2), cut=-1), "the answer ends 1 bytes early"),
        (inferred(labels(1), cut=20), "the answer ends within its header"),
        (answer(b"<html>"), "the answer is not JSON"),
        (answer({"outputs": 3}), "not one of the Open Inference Protocol"),
        (
            answer({"outputs": [{"name": "label", "datatype": "INT32", "shape": [1], "data": [1]}]}),
            "Open Inference Protocol",
        ),
        (inferred(("label", "INT32", [2], bytes(4))), r"INT32\[2\] has 8 bytes, got 4"),
        (inferred(("label", "INT32", [0], b"")), "Open Inference Protocol"),
        (answer(text + bytes(4), Inference_Header_Content_Length=str(len(text))), "ends .* early"),
        (
            answer(inferred(labels(1)).split(b"\r\n\r\n", 1)[1] + b"xx", Inference_Header_Content_Length="134"),
            "JSON|follow",
        ),
    ]:
        server = scripted(described(DIGITS), said)
        with pytest.raises(saggar.BadAnswer, match=reason):
            call(lambda client: client.predict("digits", image), host=server.url)


def test_an_answer_that_breaks_off_is_asked_for_again(call: Call, scripted: Start) -> None:
    broken = head(length=5000) + b'{"outputs"'
    image = np.zeros((2, 2), np.uint8)
    server = scripted(described(DIGITS), broken, inferred(labels(4)))
    assert call(lambda client: client.predict("digits", image), host=server.url)["label"] == 4
    server = scripted(described(DIGITS), broken)
    with pytest.raises(saggar.Unreachable, match="broke off"):
        call(lambda client: client.predict("digits", image), host=server.url)
    assert len(server.requests) == 4


def test_a_file_is_sent_as_a_form(call: Call, scripted: Start, tmp_path: Path) -> None:
    file = tmp_path / "7.png"
    file.write_bytes(b"\x89PNG\r\n")
    signature = {**DIGITS, "inputs": [IMAGE, {"name": "scale", "dtype": "float32", "shape": [], "default": 1.0}]}
    server = scripted(
        described(signature), answer({"label": 7, "probabilities": [0, None, 1]}, X_Saggar_Model="digits@1")
    )
    found = call(lambda client: client.predict("digits", {"image": file, "scale": 0.5}), host=server.url)
    asked = server.requests[1]
    assert asked.line == "POST /models/digits/predict HTTP/1.1"
    assert asked.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="image"; filename="7.png"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\r\n' in asked.body
    assert b'name="scale"\r\nContent-Type: application/json\r\n\r\n0.5\r\n' in asked.body
    assert found["label"].dtype == np.int32 and found["label"] == 7 and found.version == 1
    assert np.isnan(found["probabilities"][1]) and found["probabilities"].dtype == np.float32


def test_a_stream_yields_pieces_and_then_the_prediction(call: Call, scripted: Start) -> None:
    text = (
        'event: piece\ndata: {"said":"h"}\n\n: c\n\nevent: later\ndata: {}\n\nevent: piece\ndata: {"item":1,"said":"i"}\n\n'
        'event: done\ndata: {"said":"hi"}\n\nevent: piece\ndata: {"said":"after"}\n\n'
    )
    server = scripted(described(TELLER, "teller"), events(text))
    pieces = call(lambda client: client.stream("teller", {"prompt": "h", "times": 2}), host=server.url)
    assert server.requests[1].json == {"prompt": "h", "times": 2}
    assert server.requests[1].headers["accept"] == "text/event-stream"
    assert [(str(piece), piece.output, piece.item) for piece in pieces] == [
        ("h", "said", None),
        ("i", "said", 1),
        ("", "", None),
    ]
    assert pieces[-1].result["said"] == "hi" and pieces[0].result is None


def test_a_stream_that_fails_or_breaks_off_raises(call: Call, scripted: Start) -> None:
    piece = 'event: piece\ndata: {"said":"h"}\n\n'
    trap = 'event: error\ndata: {"error": "it trapped", "code": "plugin_trap", "hint": ""}\n\n'
    for said, kind, reason in [
        (events(piece + trap), saggar.PluginFailed, "it trapped"),
        (events(piece), saggar.Unreachable, "ended early"),
        (events(piece + "event: done\ndata: nonsense\n\n"), saggar.BadAnswer, "not JSON"),
        (events('event: piece\ndata: {"other": 1}\n\n'), saggar.BadAnswer, "a piece of no output"),
        (answer({}), saggar.BadAnswer, "not a stream of events"),
        (answer({"error": "full", "code": "queue_full"}, 429), saggar.QueueFull, "full"),
    ]:
        server = scripted(described(TELLER, "teller"), said)
        with pytest.raises(kind, match=reason):
            call(lambda client: client.stream("teller", "h"), host=server.url)
        assert len(server.requests) == 2


def test_what_cannot_be_sent_is_refused_before_a_request(call: Call, scripted: Start, tmp_path: Path) -> None:
    server = scripted(described(DIGITS))
    for value, reason in [
        (np.full((2, 2), 300), "300 of an array of int64 does not fit into uint8"),
        (np.array([[object()] * 2] * 2), "of type object"),
        ([[1], [1, 2]], "not an array"),
        ([[1, 2**70], [0, 0]], "does not fit into uint8"),
    ]:
        with pytest.raises(saggar.BadInput, match=reason):
            call(lambda client: client.predict("digits", value), host=server.url)
    with pytest.raises(saggar.BadRequest, match="the header x-request-id cannot carry"):
        call(lambda client: client.predict("digits", [[1, 2], [3, 4]], request_id="a\r\nb"), host=server.url)
    with pytest.raises(saggar.BadInput, match="streams take no files"):
        call(lambda client: client.stream("digits", tmp_path / "x"), host=server.url)
    assert {request.path for request in server.requests} == {"/models/digits/predict"}
