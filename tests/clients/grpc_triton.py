"""tritonclient over gRPC against a server with the models `digits` (versions 1 and 2), `echo` and `teller`: argument 1 is its
address. The checks are those of triton.py, and the answers are compared with those over HTTP bit by bit.

Each check is a function; one that fails ends the run with its traceback.
"""

import asyncio
import json
import queue
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

URL = sys.argv[1].removeprefix("http://")
IMAGE = (np.arange(64, dtype=np.uint8) % 17).reshape(1, 8, 8)


def refused(code, call, *args, **kwargs):
    """What the server says to a call that it refuses."""
    try:
        call(*args, **kwargs)
    except InferenceServerException as error:
        assert error.status() == f"StatusCode.{code}", (error.status(), error.message())
        return error.message()
    raise AssertionError("it was not refused")


def tensor(name, array, datatype, module=grpc):
    given = module.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def image(array=IMAGE, module=grpc):
    return tensor("image", array, "UINT8", module)


def typed(model, name, array, datatype, field, values):
    """A request with typed contents, which the client does not write."""
    request = service_pb2.ModelInferRequest(model_name=model, id="typed")
    given = request.inputs.add(name=name, datatype=datatype, shape=array.shape)
    getattr(given.contents, field).extend(values)
    return request


def metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("digits") and client.is_model_ready("digits", "1")
    assert not client.is_model_ready("none") and not client.is_model_ready("digits", "99")
    over_http = http.InferenceServerClient(URL)
    as_json = {"as_json": True}
    server = client.get_server_metadata(**as_json)
    assert server == over_http.get_server_metadata(), server
    for model in ("digits", "echo", "teller"):
        expected = over_http.get_model_metadata(model)
        got = client.get_model_metadata(model, **as_json)
        for tensors in (got["inputs"], got["outputs"]):
            for described in tensors:
                described["shape"] = [int(dim) for dim in described.get("shape", [])]
        assert got == expected, (got, expected)
    config = client.get_model_config("digits").config
    expected = over_http.get_model_config("digits")
    assert (config.name, config.platform, config.backend) == ("digits", expected["platform"], "saggar")
    assert config.max_batch_size == expected["max_batch_size"]
    assert config.input[0].dims == [8, 8] and config.input[0].name == "image"
    assert config.parameters["saggar"].string_value == expected["parameters"]["saggar"]["string_value"]
    delay = config.dynamic_batching.max_queue_delay_microseconds
    assert delay == expected["dynamic_batching"]["max_queue_delay_microseconds"]
    refused("NOT_FOUND", client.get_model_metadata, "none")
    refused("NOT_FOUND", client.get_model_config, "none")


def floats(client):
    """What goes in comes out, to the bit."""
    given = np.array([[0.1, -0.0, 1e-45, 3.4e38], [np.nan, np.inf, -np.inf, -2.5]], dtype=np.float32)
    result = client.infer("echo", [tensor("x", given, "FP32")], request_id="7")
    got = result.as_numpy("y")
    assert got.dtype == np.float32 and got.tobytes() == given.tobytes(), got
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("7", "echo", "1"), response
    request = typed("echo", "x", given, "FP32", "fp32_contents", given.flatten().tolist())
    response = client._client_stub.ModelInfer(request)
    assert response.raw_output_contents[0] == given.tobytes() and response.id == "typed"


def texts(client):
    given = np.array([["né"], ["😀 and"], [""]], dtype=np.object_)
    times = np.array([2, 1, 3], dtype=np.uint32)
    inputs = [tensor("prompt", given, "BYTES"), tensor("times", times, "UINT32")]
    said = client.infer("teller", inputs).as_numpy("said")
    assert said.shape == (3, 1) and [text.decode() for text in said.flatten()] == ["néné", "😀 and", ""], said
    request = typed("teller", "prompt", given, "BYTES", "bytes_contents", [text.encode() for text in given.flatten()])
    counts = request.inputs.add(name="times", datatype="UINT32", shape=[3])
    counts.contents.uint_contents.extend(times.tolist())
    result = grpc.InferResult(client._client_stub.ModelInfer(request))
    assert np.array_equal(result.as_numpy("said"), said)


def outputs(client):
    """Those that are asked for, in their order, and equal to those over HTTP."""
    names = [output.name for output in client.get_model_metadata("digits").outputs]
    over_http = http.InferenceServerClient(URL).infer("digits", [image(module=http)])
    everything = client.infer("digits", [image()])
    assert [output.name for output in everything.get_response().outputs] == names
    for order in (names, names[::-1], names[:1]):
        result = client.infer("digits", [image()], outputs=[grpc.InferRequestedOutput(name) for name in order])
        assert [output.name for output in result.get_response().outputs] == order
        for name in order:
            got, expected = result.as_numpy(name), over_http.as_numpy(name)
            assert got.dtype == expected.dtype and got.shape == expected.shape, name
            assert got.tobytes() == expected.tobytes() == everything.as_numpy(name).tobytes(), name
    assert "no such output" in refused(
        "INVALID_ARGUMENT", client.infer, "digits", [image()], outputs=[grpc.InferRequestedOutput("other")]
    )


def batches(client):
    name = client.get_model_metadata("digits").outputs[0].name
    pictures = np.random.default_rng(0).integers(0, 17, (37, 8, 8), dtype=np.uint8)
    together = client.infer("digits", [image(pictures)]).as_numpy(name)
    expected = http.InferenceServerClient(URL).infer("digits", [image(pictures, http)]).as_numpy(name)
    alone = [client.infer("digits", [image(picture[None])]).as_numpy(name) for picture in pictures]
    assert together.tobytes() == expected.tobytes() and np.array_equal(together, np.concatenate(alone))


def compression(client):
    given = np.tile(np.arange(4, dtype=np.float32), (500, 1))
    for algorithm in (None, "gzip", "deflate"):
        result = client.infer("echo", [tensor("x", given, "FP32")], compression_algorithm=algorithm)
        assert np.array_equal(result.as_numpy("y"), given), algorithm


def versions(client):
    for version in ("1", "2"):
        result = client.infer("digits", [image()], model_version=version)
        assert result.get_response().model_version == version
    assert "version 99" in refused("NOT_FOUND", client.infer, "digits", [image()], model_version="99")


def mistakes(client):
    """The server says what is wrong, and serves on."""
    bad = lambda *args, **kwargs: refused("INVALID_ARGUMENT", client.infer, *args, **kwargs)
    assert "no model none" in refused("NOT_FOUND", client.infer, "none", [image()])
    assert "expected datatype UINT8" in bad("digits", [tensor("image", IMAGE.astype(np.float32), "FP32")])
    assert "expected shape [-1, 8, 8]" in bad("digits", [image(IMAGE[0])])
    assert "no such input" in bad("digits", [tensor("picture", IMAGE, "UINT8")])
    assert "given twice" in bad("digits", [image(), image()])
    assert "missing" in bad("digits", [])
    assert "expected datatype FP32" in bad("echo", [tensor("x", np.zeros((1, 4), dtype=np.float16), "FP16")])
    half = grpc.InferInput("x", [1, 4], "BF16")
    half._raw_content = bytes(8)
    assert 'got "BF16"' in bad("echo", [half])
    short = grpc.InferInput("image", [2, 8, 8], "UINT8")
    short._raw_content = IMAGE.tobytes()
    assert "byte size mismatch" in bad("digits", [short])
    long = np.array([["x" * 65]], dtype=np.object_)
    assert "too long" in bad("teller", [tensor("prompt", long, "BYTES")])
    huge = np.zeros((5_000_000, 4), dtype=np.float32)
    assert "more than" in refused("RESOURCE_EXHAUSTED", client.infer, "echo", [tensor("x", huge, "FP32")])
    prompt = tensor("prompt", np.array([["x"]], dtype=np.object_), "BYTES")
    endless = tensor("endless", np.ones(1, dtype=np.uint8), "UINT8")
    refused("DEADLINE_EXCEEDED", client.infer, "teller", [prompt, endless], client_timeout=0.3)
    assert client.infer("digits", [image()], parameters={"mine": "x"}, priority=1, sequence_id=3).get_response()


def statistics(client):
    stats = lambda: client.get_inference_statistics("echo", "1").model_stats[0]
    before = stats()
    item = np.zeros((1, 4), dtype=np.float32)
    client.infer("echo", [tensor("x", item, "FP32")])
    client.infer("echo", [tensor("x", np.repeat(item, 8, axis=0), "FP32")])
    after = stats()
    assert after.inference_count - before.inference_count == 9
    assert after.inference_stats.success.count - before.inference_stats.success.count == 2
    assert after.inference_stats.queue.ns > 0 and after.last_inference > 1_600_000_000_000
    expected = http.InferenceServerClient(URL).get_inference_statistics("echo", "1")["model_stats"][0]
    assert (after.name, after.version, after.inference_count) == ("echo", "1", expected["inference_count"])
    assert [batch.batch_size for batch in after.batch_stats] == [batch["batch_size"] for batch in expected["batch_stats"]]
    every = {(model.name, model.version) for model in client.get_inference_statistics().model_stats}
    assert every >= {("digits", "2"), ("echo", "1")}, every
    refused("NOT_FOUND", client.get_inference_statistics, "none")


def streams(client):
    """A stream answers in order; the pieces of a streaming model come before its last response."""
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    prompt = tensor("prompt", np.array([["abc"]], dtype=np.object_), "BYTES")
    client.async_stream_infer("teller", [prompt], request_id="streamed", enable_empty_final_response=True)
    client.async_stream_infer("none", [prompt], request_id="gone")
    for at in range(20):
        client.async_stream_infer("echo", [tensor("x", np.full((1, 4), at, dtype=np.float32), "FP32")], request_id=str(at))
    pieces, last = [], None
    while last is None:
        result, error = answers.get(timeout=60)
        assert error is None and result.get_response().id == "streamed", error
        if result.get_response().parameters["triton_final_response"].bool_param:
            last = result
        elif result.as_numpy("said") is not None:
            pieces.append(result.as_numpy("said").flatten()[0])
    whole = last.as_numpy("said").flatten()[0]
    assert b"".join(pieces) == whole == b"abc" and len(pieces) > 1, (pieces, whole)
    _, error = answers.get(timeout=60)
    assert "no model none" in error.message(), error
    for at in range(20):
        result, error = answers.get(timeout=60)
        assert error is None and result.get_response().id == str(at), (error, at)
        assert np.array_equal(result.as_numpy("y"), np.full((1, 4), at, dtype=np.float32))
    client.stop_stream()


def together(_):
    """Many threads, and every answer is its own request's."""

    def ask(seed):
        client = grpc.InferenceServerClient(URL)
        rng = np.random.default_rng(seed)
        for _ in range(20):
            given = rng.standard_normal((rng.integers(1, 9), 4)).astype(np.float32)
            got = client.infer("echo", [tensor("x", given, "FP32")]).as_numpy("y")
            assert got.tobytes() == given.tobytes()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))


def asynchronous(_):
    async def ask():
        async with grpc_aio.InferenceServerClient(URL) as client:
            assert await client.is_server_live() and await client.is_model_ready("echo")
            given = [np.full((1, 4), at, dtype=np.float32) for at in range(64)]
            asked = [client.infer("echo", [tensor("x", array, "FP32")]) for array in given]
            for array, result in zip(given, await asyncio.gather(*asked)):
                assert result.as_numpy("y").tobytes() == array.tobytes()

            async def requests():
                for array in given[:8]:
                    yield {"model_name": "echo", "inputs": [tensor("x", array, "FP32")]}

            got = []
            async for result, error in client.stream_infer(requests()):
                assert error is None, error
                got.append(result.as_numpy("y"))
            assert [array.tobytes() for array in got] == [array.tobytes() for array in given[:8]]
            try:
                await client.infer("none", [image()])
                raise AssertionError("it was not refused")
            except InferenceServerException as error:
                assert error.status() == "StatusCode.NOT_FOUND", error

    asyncio.run(ask())


def repository(client):
    """Load and unload, and what the index says meanwhile. Last: it takes models away."""
    index = lambda: {(item.name, item.version): item.state for item in client.get_model_repository_index().models}
    assert index()[("echo", "1")] == "READY"
    client.unload_model("echo")
    assert not client.is_model_ready("echo") and index()[("echo", "1")] == "UNAVAILABLE"
    item = np.zeros((1, 4), dtype=np.float32)
    refused("UNAVAILABLE", client.infer, "echo", [tensor("x", item, "FP32")])
    client.load_model("echo")
    assert client.is_model_ready("echo") and index()[("echo", "1")] == "READY"
    assert np.array_equal(client.infer("echo", [tensor("x", item, "FP32")]).as_numpy("y"), item)
    client.load_model("echo", config=json.dumps({"batch": {"max_items": 4}}))
    assert client.get_model_config("echo").config.max_batch_size == 4
    assert "nonsense" in refused("INVALID_ARGUMENT", client.load_model, "echo", config=json.dumps({"nonsense": 1}))
    files = {"file:../x": b"x"}
    assert "file:" in refused("INVALID_ARGUMENT", client.load_model, "echo", config="{}", files=files)
    refused("NOT_FOUND", client.load_model, "none")
    client.unload_model("none")
    client.unload_model("teller", unload_dependents=True)
    assert not client.is_model_ready("teller")
    client.load_model("teller")


CHECKS = [
    *(metadata, floats, texts, outputs, batches, compression, versions, mistakes),
    *(statistics, streams, together, asynchronous, repository),
]

for check in CHECKS:
    with grpc.InferenceServerClient(URL) as server:
        check(server)
    print("ok", check.__name__, flush=True)
