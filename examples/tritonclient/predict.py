"""Asks saggar by the Open Inference Protocol, with Triton's own client: metadata, JSON, binary tensors, a batch."""

import os

import numpy as np
import tritonclient.http as triton

SIX = np.array(
    [
        [0, 0, 0, 0, 255, 255, 0, 0],
        [0, 0, 0, 255, 255, 0, 0, 0],
        [0, 0, 255, 255, 0, 0, 0, 0],
        [0, 255, 255, 0, 0, 0, 0, 0],
        [0, 255, 255, 255, 255, 255, 0, 0],
        [0, 255, 255, 0, 0, 255, 255, 0],
        [0, 0, 255, 255, 255, 255, 255, 0],
        [0, 0, 0, 255, 255, 255, 0, 0],
    ],
    dtype=np.uint8,
)


def ask(client, images, binary):
    """The label and its probability for each image."""
    image = triton.InferInput("image", list(images.shape), "UINT8")
    image.set_data_from_numpy(images, binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("label", "probability")]
    answer = client.infer("digits", [image], outputs=wanted)
    return list(zip(answer.as_numpy("label").tolist(), answer.as_numpy("probability").tolist()))


def main():
    host = os.environ.get("SAGGAR_HOST", "http://127.0.0.1:5000").removeprefix("http://")
    client = triton.InferenceServerClient(host)
    assert client.is_server_live() and client.is_model_ready("digits")
    for tensor in client.get_model_metadata("digits")["inputs"]:
        print("takes", tensor["name"], tensor["datatype"], tensor["shape"])
    batch = np.stack([SIX, np.fliplr(SIX), 255 - SIX])
    as_json = ask(client, batch, binary=False)
    as_bytes = ask(client, batch, binary=True)
    assert as_json == as_bytes, (as_json, as_bytes)
    for label, probability in as_bytes:
        print(f"digit {label}, probability {probability:.3f}")


if __name__ == "__main__":
    main()
