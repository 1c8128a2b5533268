"""KServe's own client over gRPC against a server with the models `digits`, `echo` and `teller`: argument 1 is its address."""

import asyncio
import sys

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

URL = sys.argv[1].removeprefix("http://")


def request(model, name, array, datatype, binary, request_id="seven"):
    given = InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model, [given], request_id=request_id)


async def main():
    client = InferenceGRPCClient(url=URL)
    assert await client.is_server_live() and await client.is_server_ready()
    assert await client.is_model_ready("digits") and not await client.is_model_ready("none")

    given = np.array([[0.1, -0.0, 1e-45, 3.4e38]] * 300, dtype=np.float32)
    for binary in (True, False):
        answer = await client.infer(request("echo", "x", given, "FP32", binary))
        assert answer.id == "seven" and answer.model_name == "echo", answer
        got = answer.outputs[0].as_numpy()
        assert got.dtype == np.float32 and got.tobytes() == given.tobytes(), (binary, got)

    prompt = np.array([["né"], ["b"]], dtype=np.object_)
    for binary in (True, False):
        answer = await client.infer(request("teller", "prompt", prompt, "BYTES", binary))
        said = next(output for output in answer.outputs if output.name == "said").as_numpy().flatten()
        texts = [text.decode() if isinstance(text, bytes) else text for text in said]
        assert texts == ["né", "b"], (binary, texts)

    image = (np.arange(64, dtype=np.uint8) % 17).reshape(1, 8, 8)
    answers = [await client.infer(request("digits", "image", image, "UINT8", binary)) for binary in (True, False)]
    first, second = ([output.as_numpy().tobytes() for output in answer.outputs] for answer in answers)
    assert first == second and len(first) > 1

    half = np.zeros((1, 4), dtype=np.float16)
    try:
        await client.infer(request("echo", "x", half, "FP16", True))
        raise AssertionError("it was not refused")
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "expected datatype FP32" in error.details(), error

    asked = [client.infer(request("echo", "x", given, "FP32", True)) for _ in range(32)]
    for answer in await asyncio.gather(*asked):
        assert answer.outputs[0].as_numpy().tobytes() == given.tobytes()
    await client.close()
    print("ok kserve", flush=True)


asyncio.run(main())
