"""tritonclient against a server with the models `digits` (versions 1 and 2), `echo` and `teller`: argument 1 is its address.

Each check is a function; one that fails ends the run with its traceback.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

URL = sys.argv[1].removeprefix("http://")
IMAGE = (np.arange(64, dtype=np.uint8) % 17).reshape(1, 8, 8)


def refused(status, call, *args, **kwargs):
    """What the server says to a call that it refuses."""
    try:
        call(*args, **kwargs)
    except InferenceServerException as error:
        assert error.status() == str(status), (error.status(), error.message())
        return error.message()
    raise AssertionError("it was not refused")


def tensor(name, array, datatype, binary=True):
    given = http.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def image(array=IMAGE, binary=True):
    return tensor("image", array, "UINT8", binary)


def metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("digits") and client.is_model_ready("digits", "1")
    assert not client.is_model_ready("none") and not client.is_model_ready("digits", "99")
    server = client.get_server_metadata()
    assert server["name"] == "saggar" and server["version"]
    assert {"binary_tensor_data", "model_repository", "statistics", "model_configuration"} <= set(server["extensions"])
    digits = client.get_model_metadata("digits")
    assert digits["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, 8, 8]}], digits
    assert all(output["shape"][0] == -1 for output in digits["outputs"]), digits
    prompt = client.get_model_metadata("teller")["inputs"][0]
    assert prompt == {"name": "prompt", "datatype": "BYTES", "shape": [-1, 1]}, prompt
    config = client.get_model_config("digits")
    assert config["max_batch_size"] > 1 and config["input"][0]["data_type"] == "TYPE_UINT8", config
    refused(404, client.get_model_metadata, "none")
    refused(404, client.get_model_config, "none")


def floats(client):
    """What goes in comes out, to the bit, in each combination of JSON and binary data."""
    given = np.array([[0.1, -0.0, 1e-45, 3.4e38], [np.pi, 1e-7, 16777217.0, -2.5]], dtype=np.float32)
    for sends_binary in (True, False):
        for gets_binary in (True, False, None):
            outputs = None if gets_binary is None else [http.InferRequestedOutput("y", binary_data=gets_binary)]
            result = client.infer("echo", [tensor("x", given, "FP32", sends_binary)], outputs=outputs, request_id="7")
            got = result.as_numpy("y")
            assert got.dtype == np.float32 and got.tobytes() == given.tobytes(), (sends_binary, gets_binary, got)
            response = result.get_response()
            assert (response["id"], response["model_name"], response["model_version"]) == ("7", "echo", "1"), response


def not_finite(client):
    given = np.array([[np.nan, np.inf, -np.inf, 1.0]], dtype=np.float32)
    for sends_binary in (True, False):
        for gets_binary in (True, False):
            outputs = [http.InferRequestedOutput("y", binary_data=gets_binary)]
            got = client.infer("echo", [tensor("x", given, "FP32", sends_binary)], outputs=outputs).as_numpy("y")
            assert np.array_equal(got, given, equal_nan=True), (sends_binary, gets_binary, got)


def texts(client):
    given = np.array([["né"], ["😀 and"], [""]], dtype=np.object_)
    times = np.array([2, 1, 3], dtype=np.uint32)
    for binary in (True, False):
        inputs = [tensor("prompt", given, "BYTES", binary), tensor("times", times, "UINT32", binary)]
        outputs = [http.InferRequestedOutput("said", binary_data=binary)]
        said = client.infer("teller", inputs, outputs=outputs).as_numpy("said")
        assert said.shape == (3, 1), said
        texts = [text.decode() if isinstance(text, bytes) else text for text in said.flatten()]
        assert texts == ["néné", "😀 and", ""], (binary, texts)


def outputs(client):
    """Those that are asked for, in their order; every one without being asked."""
    names = [output["name"] for output in client.get_model_metadata("digits")["outputs"]]
    everything = client.infer("digits", [image()])
    assert [output["name"] for output in everything.get_response()["outputs"]] == names
    for order in (names, names[::-1], names[:1]):
        wanted = [http.InferRequestedOutput(name, binary_data=at % 2 == 0) for at, name in enumerate(order)]
        result = client.infer("digits", [image()], outputs=wanted)
        assert [output["name"] for output in result.get_response()["outputs"]] == order
        for name in order:
            assert np.allclose(result.as_numpy(name), everything.as_numpy(name)), name


def batches(client):
    name = client.get_model_metadata("digits")["outputs"][0]["name"]
    pictures = np.random.default_rng(0).integers(0, 17, (37, 8, 8), dtype=np.uint8)
    together = client.infer("digits", [image(pictures)]).as_numpy(name)
    alone = [client.infer("digits", [image(picture[None])]).as_numpy(name) for picture in pictures]
    assert together.shape[0] == 37 and np.array_equal(together, np.concatenate(alone))


def compression(client):
    given = np.tile(np.arange(4, dtype=np.float32), (500, 1))
    for request in (None, "gzip", "deflate"):
        for response in (None, "gzip", "deflate"):
            result = client.infer(
                "echo",
                [tensor("x", given, "FP32")],
                request_compression_algorithm=request,
                response_compression_algorithm=response,
            )
            assert np.array_equal(result.as_numpy("y"), given), (request, response)


def raw(client):
    """A bare body is one item of a model's only input."""
    item = np.array([1.5, -2.5, 3.5, 4.5], dtype=np.float32)
    response = client._post("v2/models/echo/infer", item.tobytes(), {"Inference-Header-Content-Length": "0"}, None)
    assert response.status_code == 200
    length = int(response.get("Inference-Header-Content-Length"))
    body = response.read()
    assert json.loads(body[:length])["outputs"][0]["shape"] == [1, 4]
    assert body[length:] == item.tobytes()


def versions(client):
    for version in ("1", "2"):
        result = client.infer("digits", [image()], model_version=version)
        assert result.get_response()["model_version"] == version
    assert "version 99" in refused(404, client.infer, "digits", [image()], model_version="99")


def mistakes(client):
    """The server says what is wrong in the form that the client reads, and serves on."""
    assert "no model none" in refused(404, client.infer, "none", [image()])
    assert "expected datatype UINT8" in refused(400, client.infer, "digits", [tensor("image", IMAGE.astype(np.float32), "FP32")])
    assert "expected shape [-1, 8, 8]" in refused(400, client.infer, "digits", [image(IMAGE[0])])
    assert "no such input" in refused(400, client.infer, "digits", [tensor("picture", IMAGE, "UINT8")])
    assert "given twice" in refused(400, client.infer, "digits", [image(), image()])
    assert "missing" in refused(400, client.infer, "digits", [])
    other = [http.InferRequestedOutput("other")]
    assert "no such output" in refused(400, client.infer, "digits", [image()], outputs=other)
    reserved = {"inputs": [], "parameters": {"triton_x": 1}}
    response = client._post("v2/models/digits/infer", json.dumps(reserved), None, None)
    assert response.status_code == 400 and "triton_x" in json.loads(response.read())["error"]
    short = http.InferInput("image", [2, 8, 8], "UINT8")
    short._raw_data, short._parameters["binary_data_size"] = IMAGE.tobytes(), IMAGE.nbytes
    assert "byte size mismatch" in refused(400, client.infer, "digits", [short])
    long = np.array([["x" * 65]], dtype=np.object_)
    assert "too long" in refused(400, client.infer, "teller", [tensor("prompt", long, "BYTES")])
    assert client.infer("digits", [image()], parameters={"mine": "x"}, priority=1, sequence_id=3).get_response()


def statistics(client):
    before = client.get_inference_statistics("echo", "1")["model_stats"][0]
    item = np.zeros((1, 4), dtype=np.float32)
    client.infer("echo", [tensor("x", item, "FP32")])
    client.infer("echo", [tensor("x", np.repeat(item, 8, axis=0), "FP32")])
    refused(400, client.infer, "echo", [tensor("x", item[0], "FP32")])
    after = client.get_inference_statistics("echo", "1")["model_stats"][0]
    assert (after["name"], after["version"]) == ("echo", "1")
    grown = {key: after[key] - before[key] for key in ("inference_count", "execution_count")}
    assert grown == {"inference_count": 9, "execution_count": 2}, grown
    count = lambda stats, key: stats["inference_stats"][key]["count"]
    for key in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert count(after, key) - count(before, key) == 2, key
        assert after["inference_stats"][key]["ns"] > 0, key
    assert count(after, "fail") == count(before, "fail") and count(after, "cache_hit") == 0
    assert after["last_inference"] > 1_600_000_000_000
    sizes = [batch["batch_size"] for batch in after["batch_stats"]]
    assert {1, 8} <= set(sizes) and sizes == sorted(sizes), sizes
    assert {(model["name"], model["version"]) for model in client.get_inference_statistics()["model_stats"]} >= {
        ("digits", "2"),
        ("echo", "1"),
    }
    refused(404, client.get_inference_statistics, "none")


def together(_):
    """Many threads, each with a connection of its own, and every answer is its own request's."""

    def ask(seed):
        client = http.InferenceServerClient(URL)
        rng = np.random.default_rng(seed)
        for _ in range(20):
            given = rng.standard_normal((rng.integers(1, 9), 4)).astype(np.float32)
            got = client.infer("echo", [tensor("x", given, "FP32", bool(seed % 2))]).as_numpy("y")
            assert got.tobytes() == given.tobytes()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))
    client = http.InferenceServerClient(URL, concurrency=8)
    asked = [client.async_infer("digits", [image()]) for _ in range(64)]
    first, *others = [request.get_result().as_numpy("class") for request in asked]
    assert all(np.array_equal(first, other) for other in others)


def repository(client):
    """Load and unload, and what the index says meanwhile. Last: it takes models away."""
    index = lambda: {(item["name"], item.get("version")): item["state"] for item in client.get_model_repository_index()}
    assert index()[("echo", "1")] == "READY"
    client.unload_model("echo")
    assert not client.is_model_ready("echo") and index()[("echo", "1")] == "UNAVAILABLE"
    item = np.zeros((1, 4), dtype=np.float32)
    refused(503, client.infer, "echo", [tensor("x", item, "FP32")])
    client.load_model("echo")
    assert client.is_model_ready("echo") and index()[("echo", "1")] == "READY"
    assert np.array_equal(client.infer("echo", [tensor("x", item, "FP32")]).as_numpy("y"), item)
    client.load_model("echo", config=json.dumps({"batch": {"max_items": 4}}))
    config = client.get_model_config("echo")
    assert config["max_batch_size"] == 4, config
    assert json.loads(config["parameters"]["saggar"]["string_value"])["batch"]["max_items"] == 4, config
    assert "nonsense" in refused(400, client.load_model, "echo", config=json.dumps({"nonsense": 1}))
    assert "file:" in refused(400, client.load_model, "echo", config="{}", files={"file:../x": b"x"})
    assert client.is_model_ready("echo")
    refused(404, client.load_model, "none")
    client.unload_model("none")
    client.unload_model("teller", unload_dependents=True)
    assert not client.is_model_ready("teller")


CHECKS = [metadata, floats, not_finite, texts, outputs, batches, compression, raw, versions, mistakes, statistics, together]

for check in [*CHECKS, repository]:
    with http.InferenceServerClient(URL) as server:
        check(server)
    print("ok", check.__name__, flush=True)
