"""KServe's own client against a server with the models `digits`, `echo` and `teller`: argument 1 is its address."""

import asyncio
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import RequestedOutput

URL = sys.argv[1]


def request(model, name, array, datatype, binary, outputs=None):
    given = InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model, [given], request_id="seven", request_outputs=outputs)


async def main():
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    assert await client.is_server_live(URL) and await client.is_server_ready(URL)
    assert await client.is_model_ready(URL, "digits") and not await client.is_model_ready(URL, "none")

    given = np.array([[0.1, -0.0, 1e-45, 3.4e38]] * 300, dtype=np.float32)
    for binary in (True, False):
        for parameters in (None, {"binary_data": True}, {"binary_data": False}):
            outputs = [RequestedOutput("y", parameters)]
            answer = await client.infer(URL, request("echo", "x", given, "FP32", binary, outputs), model_name="echo")
            assert answer.id == "seven" and answer.model_name == "echo", answer
            got = answer.outputs[0].as_numpy()
            assert got.dtype == np.float32 and got.tobytes() == given.tobytes(), (binary, parameters, got)

    prompt = np.array([["né"], ["b"]], dtype=np.object_)
    for binary in (True, False):
        answer = await client.infer(URL, request("teller", "prompt", prompt, "BYTES", binary), model_name="teller")
        said = next(output for output in answer.outputs if output.name == "said").as_numpy().flatten()
        texts = [text.decode() if isinstance(text, bytes) else text for text in said]
        assert texts == ["né", "b"], texts

    half = np.zeros((1, 4), dtype=np.float16)
    try:
        await client.infer(URL, request("echo", "x", half, "FP16", True), model_name="echo")
        raise AssertionError("it was not refused")
    except httpx.HTTPStatusError as error:
        assert "expected datatype FP32" in str(error) and error.response.status_code == 400, error

    asked = [client.infer(URL, request("echo", "x", given, "FP32", True), model_name="echo") for _ in range(32)]
    for answer in await asyncio.gather(*asked):
        assert answer.outputs[0].as_numpy().tobytes() == given.tobytes()
    await client.close()

    first = InferenceRESTClient(RESTConfig(protocol="v1", timeout=60))
    assert await first.is_server_live(URL) is True
    assert await first.is_model_ready(URL, "echo") is True
    answer = await first.infer(URL, {"instances": [[0.5, 1.0, 2.0, 4.0]]}, model_name="echo")
    assert answer["predictions"] == [[0.5, 1.0, 2.0, 4.0]], answer
    await first.close()
    print("ok kserve", flush=True)


asyncio.run(main())
