"""Asks saggar as TensorFlow Serving is asked, with nothing but Python: status, rows, columns, a version."""

import json
import os
import urllib.error
import urllib.request

HOST = os.environ.get("SAGGAR_HOST", "http://127.0.0.1:5000")
SIX = [
    [0, 0, 0, 0, 255, 255, 0, 0],
    [0, 0, 0, 255, 255, 0, 0, 0],
    [0, 0, 255, 255, 0, 0, 0, 0],
    [0, 255, 255, 0, 0, 0, 0, 0],
    [0, 255, 255, 255, 255, 255, 0, 0],
    [0, 255, 255, 0, 0, 255, 255, 0],
    [0, 0, 255, 255, 255, 255, 255, 0],
    [0, 0, 0, 255, 255, 255, 0, 0],
]


def call(path, body=None):
    """The JSON that answers a GET, or a POST of `body`."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{HOST}/v1/models/{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{path}: {error.code}: {json.load(error)['error']}") from error


def main():
    for version in call("digits")["model_version_status"]:
        print("version", version["version"], version["state"])
    mirrored = [row[::-1] for row in SIX]
    rows = call("digits:predict", {"instances": [{"image": SIX}, {"image": mirrored}]})["predictions"]
    columns = call("digits:predict", {"inputs": {"image": [SIX, mirrored]}})["outputs"]
    assert [row["label"] for row in rows] == columns["label"], (rows, columns)
    for row in rows:
        print(f"digit {row['label']}, probability {row['probability']:.3f}")
    version = call("digits/versions/1:predict", {"instances": [{"image": SIX}]})["predictions"]
    assert len(version) == 1


if __name__ == "__main__":
    main()
