"""Predictions of a real server."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from pathlib import Path

import numpy as np
import pandas
import pytest

import saggar

from ..conftest import Call

IMAGE = (np.arange(64, dtype=np.uint8) % 17 * 15).reshape(8, 8)


def test_arrays_of_every_layout_are_answered_alike(call: Call, digits: str) -> None:
    expected = call(lambda client: client.predict(digits, IMAGE))
    assert expected["label"].dtype == np.int32 and expected["label"].shape == ()
    assert expected["probabilities"].dtype == np.float32 and expected["probabilities"].shape == (10,)
    assert expected["probabilities"].sum() == pytest.approx(1, abs=1e-5)
    assert expected.model.startswith("digits@") and expected.version >= 1 and expected.device == "cpu"
    assert expected.request_id and expected.timings["total"] > 0 and not expected.warnings
    for same in (
        np.asfortranarray(IMAGE),
        IMAGE.astype(">i4"),
        IMAGE.astype(np.int64),
        IMAGE.tolist(),
        {"image": IMAGE},
        np.ascontiguousarray(IMAGE[::-1])[::-1],
        pandas.DataFrame(IMAGE),
    ):
        found = call(lambda client: client.predict(digits, same))
        assert (found["probabilities"] == expected["probabilities"]).all(), type(same)
    batch = call(
        lambda client: client.predict(digits, np.stack([IMAGE, 255 - IMAGE, IMAGE]), outputs=["probabilities"])
    )
    assert list(batch) == ["probabilities"] and batch["probabilities"].shape == (3, 10)
    assert np.allclose(batch["probabilities"][2], expected["probabilities"], atol=1e-6)
    best = batch.top_k(2)
    assert len(best) == 3 and best[0][0][0] == str(expected["label"]) and best[0][0][1] >= best[0][1][1]


def test_a_version_an_alias_and_the_default_model_are_asked(call: Call, client: saggar.Client, digits: str) -> None:
    serving = client.models.show(digits).serving
    for name in (f"{digits}@{serving}", f"{digits}@stable", digits):
        assert call(lambda client: client.predict(name, IMAGE)).version == serving


def test_a_picture_is_sent_as_a_file(call: Call, digits: str) -> None:
    file = Path(os.environ["TEST_DIGITS"]) / "held-out/7.png"
    found = call(lambda client: client.predict(digits, file))
    assert found["label"].dtype == np.int32 and found.top_k(1)[0][0][0] == str(found["label"])


def test_accuracy_over_a_loaded_split_is_that_of_training(call: Call, digits: str) -> None:
    test = call(lambda client: client.data.load("digits", "test"))
    assert test["image"].shape == (359, 8, 8) and test["image"].dtype == np.uint8
    found = call(lambda client: client.predict(digits, test["image"], deadline=30))
    assert (found["label"] == test["label"]).mean() > 0.8


def test_texts_are_read_and_streamed(call: Call, teller: str) -> None:
    found = call(lambda client: client.predict(teller, {"prompt": "héllo", "times": 2}))
    assert str(found["said"]) == "héllohéllo" and found["lengths"].tolist() == [6, 12]
    batch = call(lambda client: client.predict(teller, {"prompt": np.array(["a", "bé"]), "times": [1, 3]}))
    assert batch["said"].tolist() == ["a", "bébébé"] and batch["lengths"].shape == (2, 2)
    assert str(call(lambda client: client.predict(teller, "only"))["said"]) == "only"
    pieces = call(lambda client: client.stream(teller, {"prompt": "héllo", "times": 2}))
    assert "".join(str(piece) for piece in pieces if piece.output == "said") == "héllohéllo"
    assert str(pieces[-1].result["said"]) == "héllohéllo" and pieces[-1].result.version >= 1
    assert [piece.value.tolist() for piece in pieces if piece.output == "lengths"] == [[[6, 12]]]


def test_what_does_not_fit_is_refused_by_the_server_with_a_hint(call: Call, digits: str, teller: str) -> None:
    for model, value, reason in [
        (digits, np.zeros((8, 9), np.uint8), r"expected shape \[-1, 8, 8\], got \[1, 8, 9\]"),
        (digits, np.full((8, 8), np.nan), "expected datatype UINT8"),
        (digits, np.full((8, 8), 0.5, np.float32), "expected datatype UINT8"),
        (digits, {"image": IMAGE, "more": 1}, "more: the model has no such input"),
        (digits, {}, "image"),
        (teller, "x" * 65, "64 bytes|too long|65"),
        (teller, b"\xff", "not UTF-8"),
    ]:
        with pytest.raises(saggar.BadInput, match=f"(?s){reason}.*\nhint: ") as caught:
            call(lambda client: client.predict(model, value))
        assert caught.value.status == 400 and caught.value.request_id
    with pytest.raises(saggar.BadInput, match="no such output"):
        call(lambda client: client.predict(digits, IMAGE, outputs=["nothing"]))
    for name in ("nothing", f"{digits}@99", f"{digits}@nothing"):
        with pytest.raises(saggar.NotFound, match=name.partition("@")[0]) as missing:
            call(lambda client: client.predict(name, IMAGE))
        assert missing.value.code in ("unknown_model", "not_found", "version_not_serving")
    with pytest.raises(saggar.DeadlineExceeded):
        call(lambda client: client.stream(teller, {"prompt": "x", "endless": 1}, deadline=0.05))


def test_keys_and_certificates_are_checked(call: Call, digits: str) -> None:
    for key, kind in ((None, saggar.Unauthorized), ("sgr_wrong", saggar.Unauthorized)):
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("SAGGAR_API_KEY")
            with pytest.raises(kind, match="(?s)hint: "):
                call(lambda client: client.predict(digits, IMAGE), key=key)
    host, ca, other = (os.environ[name] for name in ("TEST_TLS_HOST", "TEST_TLS_CA", "TEST_OTHER_CA"))
    assert call(lambda client: client.server_version(), host=host, ca=ca) == saggar.__version__
    assert call(lambda client: client.server_version(), host=host.replace("127.0.0.1", "localhost"), ca=ca)
    for wrong in (other, None):
        with pytest.raises(saggar.CertificateError, match="(?s)is not trusted.*hint: .*SAGGAR_CA"):
            call(lambda client: client.server_version(), host=host, ca=wrong)
    with pytest.raises(saggar.SaggarError):
        call(lambda client: client.server_version(), host=host.replace("https:", "http:"))


def test_many_requests_at_once_share_a_client(digits: str) -> None:
    async def run() -> list[saggar.Prediction]:
        async with saggar.AsyncClient() as client:
            images = [np.roll(IMAGE, shift) for shift in range(64)]
            return await asyncio.gather(*(client.predict(digits, image) for image in images))

    found = asyncio.run(run())
    assert len(found) == 64 and len({prediction.request_id for prediction in found}) == 64


def test_the_documented_header_is_on_the_wire(client: saggar.Client) -> None:
    with urllib.request.urlopen(os.environ["SAGGAR_HOST"] + "/version") as answer:
        assert answer.headers["x-saggar-version"] == client.server_version() == saggar.__version__
    assert client.ready()
