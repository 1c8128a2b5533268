"""Datasets, jobs and models of a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas
import pytest

import saggar

from ..conftest import Call


def test_arrays_survive_a_push_and_a_load(call: Call) -> None:
    fields = {
        "f4": np.array([[0.5, np.nan], [np.inf, -0.0], [1, 2]], np.float64),
        "i8": np.array([2**62, -1, 0]),
        "u8": np.array([2**64 - 1, 0, 1], np.uint64),
        "f2": np.array([1.5, 2, 3], ">f2"),
        "b": np.array([True, False, True]),
        "i2": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(3, 2)),
        "text": ["é", "abc", ""],
        "class": ["dog", "cat", "dog"],
    }
    pushed = call(
        lambda client: client.data.push(fields, "kinds", classes={"class": ["cat", "dog"]}, description="all")
    )
    assert pushed.items == 3 and pushed.splits == {"train": 3}
    assert {field.name: (field.dtype, field.shape) for field in pushed.fields} == {
        "f4": ("float32", [2]),
        "i8": ("int64", []),
        "u8": ("uint64", []),
        "f2": ("float16", []),
        "b": ("uint8", []),
        "i2": ("int32", [2]),
        "text": ("uint8", [3]),
        "class": ("uint8", []),
    }
    assert next(field.classes for field in pushed.fields if field.name == "class") == ["cat", "dog"]
    loaded = call(lambda client: client.data.load("kinds"))
    for name in ("f4", "i8", "u8", "f2", "b", "i2"):
        assert np.array_equal(
            loaded[name], np.asarray(fields[name]).astype(loaded[name].dtype), equal_nan=name[0] == "f"
        ), name
    assert [bytes(row).rstrip(b"\0").decode() for row in loaded["text"]] == fields["text"]
    assert loaded["class"].tolist() == [1, 0, 1]
    again = call(lambda client: client.data.push(fields, "kinds", classes={"class": ["cat", "dog"]}, description="all"))
    assert str(again) == str(pushed), "equal content is the same version"


def test_a_table_is_stored_as_its_csv_file_is(call: Call, tmp_path: Path, unique: str) -> None:
    rows = 50
    table = pandas.DataFrame(
        {
            "length": np.linspace(0.1, 2, rows),
            "count": np.arange(rows),
            "species": ["setosa", "virginica"] * (rows // 2),
        }
    )
    file, name = f"flowers-{unique}.csv", f"table-{unique}"
    table.to_csv(tmp_path / file, index=False)
    of_table = call(lambda client: client.data.push(table, name))
    of_file = call(lambda client: client.data.push(tmp_path / file))
    assert of_file.name == f"flowers-{unique}"
    assert [field.raw for field in of_table.fields] == [field.raw for field in of_file.fields]
    one, other = (call(lambda client: client.data.load(str(it))) for it in (of_table, of_file))
    assert all(np.array_equal(one[name], other[name]) for name in ("x", "label"))
    # Splits of a table are those of a CSV file, too.
    split = call(lambda client: client.data.push(table, name, splits={"train": 0.8, "test": 0.2}))
    assert split.splits == {"train": 40, "test": 10}
    (tmp_path / "dataset.json").write_text(
        json.dumps(
            {
                "format": "csv",
                "file": file,
                "splits": {"train": 0.8, "test": 0.2},
                "fields": [{"name": "x", "columns": [0, 2], "dtype": "float32"}],
            }
        )
    )
    of_file = call(lambda client: client.data.push(tmp_path, of_file.name))
    one, other = (call(lambda client: client.data.load(str(it), "test")) for it in (split, of_file))
    assert np.array_equal(one["x"], other["x"])


def test_datasets_are_listed_and_removed(call: Call, tmp_path: Path, unique: str) -> None:
    name = f"gone-{unique}"
    call(lambda client: client.data.push({"x": [1]}, name, progress=True))
    call(lambda client: client.data.push({"x": [2]}, name))
    assert [str(version) for version in call(lambda client: client.data.list(name))] == [f"{name}/1", f"{name}/2"]
    assert call(lambda client: client.data.show(f"{name}/1")).items == 1
    assert call(lambda client: client.data.remove(f"{name}/1")) > 0
    assert call(lambda client: client.data.remove(name)) > 0
    with pytest.raises(saggar.NotFound):
        call(lambda client: client.data.show(name))
    with pytest.raises(saggar.NotFound):
        call(lambda client: client.data.remove(f"{name}/1"))
    (tmp_path / "x.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(saggar.BadRequest) as caught:
        call(lambda client: client.data.push(tmp_path, "broken"))
    assert caught.value.code == "bad_dataset"
    with pytest.raises(saggar.BadRequest):
        call(lambda client: client.data.push({"x": [1]}, "No Name"))


def test_a_job_is_followed_and_its_results_are_read(
    call: Call,
    client: saggar.Client,
    digits: str,
    lenet: Path,
    tmp_path: Path,
    unique: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = f"followed-{unique}"
    submit = {"data": "digits", "params": {"epochs": 3, "model": project}, "project": project, "seed": 7, "retry": 1}
    submit |= {"checkpoint_every": {"steps": 20}, "message": "a note"}
    job = call(lambda client: client.jobs.submit(lenet, **submit))
    # The job's methods here block, whichever client submitted it.
    job = client.jobs.get(job.name)
    assert job.follow(timeout=180).state == "SUCCEEDED" and job.name in capsys.readouterr().err
    assert job.document["spec"]["seed"] == 7 and job.document["spec"]["retry"] == 1 and job.project == project
    lines = list(job.logs(follow=True))
    assert lines[-1] == f"job {job.name} SUCCEEDED" and any("validation/accuracy" in line for line in lines)
    assert list(job.logs(tail=1)) == lines[-1:] and list(job.logs(attempt=1)) == lines
    curves = job.curves()
    assert curves["loss"].dtype == np.float64 and curves["loss"][-1, 0] == job.steps_target
    assert set(job.curves("loss")) == {"loss"} and curves.to_frame()["loss"].dropna().iloc[-1] == job.metrics["loss"]
    assert [file.path for file in job.outputs()] == ["confusion.csv"]
    (written,) = job.download(to=tmp_path)
    assert written == tmp_path / "confusion.csv" and written.read_bytes() == job.read("confusion.csv")
    with pytest.raises(saggar.NotFound, match="confusion.csv"):
        job.read("nothing.csv")
    newest = job.checkpoints()[0]
    assert (
        job.download_checkpoint("latest", tmp_path / "c.safetensors").stat().st_size > 0 and 0 < newest.step <= job.step
    )
    again = job.restart({"epochs": 1}, {"seed": 8}, resume=False).wait(timeout=180)
    assert again.document["spec"]["parameters"]["epochs"] == 1 and again.document["spec"]["seed"] == 8
    assert again.remove() > 0
    with pytest.raises(saggar.NotFound):
        again.refresh()
    assert [it.name for it in client.jobs.list(project=project, state=["SUCCEEDED"])] == [job.name]
    with pytest.raises(saggar.Conflict):
        job.stop()


def test_a_running_job_is_stopped(call: Call, client: saggar.Client, digits: str, lenet: Path) -> None:
    job = client.jobs.submit(lenet, data="digits/1:/data", params={"epochs": 100_000, "model": "endless"})
    with pytest.raises(saggar.DeadlineExceeded):
        job.wait(timeout=0.2)
    lines = job.logs(follow=True)
    assert next(lines)
    lines.close()  # type: ignore[attr-defined]
    job.stop()
    with pytest.raises(saggar.JobFailed, match=f"job {job.name} CANCELLED"):
        job.wait(timeout=60)
    assert call(lambda client: client.jobs.get(job.name)).is_over


def test_wrong_jobs_are_refused(call: Call, lenet: Path) -> None:
    for options, kind in [
        ({"data": "nothing"}, saggar.NotFound),
        ({"data": "digits", "params": {"lr": "much"}}, saggar.BadRequest),
        ({"data": "digits", "priority": 101}, saggar.BadRequest),
        ({"nonsense": 1}, saggar.BadRequest),
    ]:
        with pytest.raises(kind) as caught:
            call(lambda client: client.jobs.submit(lenet, **options))
        assert caught.value.status in (400, 404, 422) and caught.value.message
    with pytest.raises(saggar.NotFound, match="no plugin nothing"):
        call(lambda client: client.jobs.submit("nothing"))
    with pytest.raises(FileNotFoundError):
        call(lambda client: client.jobs.submit("nothing.wasm"))


def test_plugins_are_found_by_name_and_a_request_is_submitted_once(
    call: Call, client: saggar.Client, lenet: Path
) -> None:
    plugin = call(lambda client: client.plugins.upload(lenet))
    assert plugin.trains and plugin.predicts and plugin.name == "lenet" and plugin in client.plugins.list()
    submit = {"data": "digits", "params": {"epochs": 1, "model": "once"}, "project": "once"}
    submit["idempotency_key"] = os.urandom(8).hex()
    first = call(lambda client: client.jobs.submit(plugin.digest[:8], **submit))
    second = call(lambda client: client.jobs.submit("lenet", **submit))
    assert first.name == second.name
    client.jobs.get(first.name).wait(timeout=180)


def test_a_dataset_is_predicted_as_a_job(call: Call, client: saggar.Client, digits: str) -> None:
    job = call(lambda client: client.jobs.predict(digits, "digits", split="test", out="answers"))
    job = client.jobs.get(job.name).wait(timeout=180)
    assert client.data.show("answers").items == 359 and job.project == "predictions"
    assert [file.path for file in job.outputs()] == ["predictions.safetensors"]
    stored = call(lambda client: client.data.from_job(job.name, "again", "predictions.safetensors"))
    assert stored.items == 359
    with pytest.raises(saggar.NotFound):
        call(lambda client: client.data.from_job(job.name, "again", "nothing"))


def test_versions_are_released_and_rolled_back(
    call: Call, client: saggar.Client, digits: str, lenet: Path, unique: str
) -> None:
    name = f"released-{unique}"
    params = {"epochs": 2, "model": name}
    job = client.jobs.submit(lenet, data="digits", params=params, checkpoint_every={"steps": 10}).wait(timeout=180)
    client.models.wait(name, 1)
    client.jobs.submit(lenet, data="digits", params={"epochs": 2, "model": name}, seed=3).wait(timeout=180)
    client.models.wait(name, 2)
    models = lambda change: call(lambda client: change(client.models))  # noqa: E731
    assert models(lambda it: it.promote(name, 1)).serving == 1
    assert models(lambda it: it.rollback(name)).serving == 2
    assert models(lambda it: it.promote(name, "newest")).follows_newest
    shared = models(lambda it: it.canary(name, 1, 10))
    assert shared.traffic == {"stable": 90, "canary": 10} and shared.aliases["canary"] == 1
    image = np.zeros((8, 8), np.uint8)
    assert {client.predict(name, image).version for _ in range(100)} == {1, 2}
    assert client.predict(f"{name}@canary", image).version == 1
    ended = models(lambda it: it.canary(name, 1, 0))
    assert ended.traffic == {} and "canary" not in ended.aliases
    assert models(lambda it: it.alias(name, "first", 1)).aliases["first"] == 1
    assert "first" not in models(lambda it: it.alias(name, "first", None)).aliases
    assert models(lambda it: it.shadow(name, 1, 50)).raw["shadow"] == {"to": "1", "percent": 50}
    assert models(lambda it: it.shadow(name, None)).raw["shadow"] is None
    assert models(lambda it: it.traffic(name, {})).traffic == {}
    models(lambda it: it.configure(name, {"queue": {"timeout": "5s"}}))
    assert models(lambda it: it.config(name))["queue"]["timeout"] == "5s"
    with pytest.raises(saggar.BadRequest, match="quue"):
        models(lambda it: it.configure(name, {"quue": {}}))
    assert models(lambda it: it.set_projects(name, ["vision"])) == ["vision"]
    assert models(lambda it: it.set_projects(name, [])) == []
    # A version that is not loaded, and a model that sleeps, are loaded by the first prediction of a client.
    models(lambda it: it.unload(name, 1))
    assert call(lambda client: client.predict(f"{name}@1", image)).version == 1
    client.predict(name, image, keep_alive="0s")
    while client.models.show(name).state == "READY":
        pass
    assert call(lambda client: client.predict(name, image, keep_alive="10m")).version == 2
    made = models(lambda it: it.publish(name, plugin=job.document["spec"]["plugin"], from_version=1))
    assert made.model == name
    made = models(lambda it: it.publish(name, checkpoint=f"job:{job.name}"))
    assert made.version >= 2
    client.models.wait(name, client.models.show(name).serving)
    models(lambda it: it.unload(name))
    with pytest.raises(saggar.SaggarError, match="(?s)hint: "):
        client.predict(name, image)
    assert models(lambda it: it.load(name)).state == "READY"
    assert models(lambda it: it.warm(name)).state == "READY"
    assert name in [it.name for it in models(lambda it: it.list())]
    assert models(lambda it: it.show(name)).signature.inputs[0].name == "image"
    with pytest.raises(saggar.Conflict):
        models(lambda it: it.remove(name, client.models.show(name).serving))
    removed = models(lambda it: it.remove(name))
    assert f"{name}@1" in removed
    with pytest.raises(saggar.UnknownModel):
        models(lambda it: it.show(name))


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """A Protocol Buffers message of these fields: numbers, and bytes or integers below 128."""
    parts = (
        bytes([tag << 3, value]) if isinstance(value, int) else bytes([tag << 3 | 2, len(value)]) + value
        for tag, value in fields
    )
    return b"".join(parts)


def negation() -> bytes:
    """An ONNX model: `y`, `float32[-1, 4]`, is the negative `x`."""
    shape = message((1, message((2, b"n"))), (1, message((1, 4))))
    values = [message((1, name), (2, message((1, message((1, 1), (2, shape)))))) for name in (b"x", b"y")]
    node = message((1, b"x"), (2, b"y"), (4, b"Neg"))
    graph = message((1, node), (2, b"g"), (11, values[0]), (12, values[1]))
    return message((1, 8), (7, graph), (8, message((1, b""), (2, 17))))


def test_an_onnx_model_is_imported_and_keeps_nan_and_infinities(
    call: Call, client: saggar.Client, tmp_path: Path, unique: str
) -> None:
    (tmp_path / f"neg_{unique}.onnx").write_bytes(negation())
    made = call(lambda client: client.models.import_onnx(tmp_path / f"neg_{unique}.onnx", batch=[1, 4]))
    assert (made.model, made.version, made.is_new) == (f"neg-{unique}", 1, True)
    call(lambda client: client.models.wait(made.model, 1))
    given = np.array([[np.nan, np.inf, -np.inf, 1e-40], [0, 1, 2, 3], [1, 2, 3, 4]])
    found = call(lambda client: client.predict(made.model, given))
    assert found["y"].dtype == np.float32 and found["y"].shape == (3, 4)
    assert np.array_equal(found["y"], -given.astype(np.float32), equal_nan=True)
    with pytest.raises(saggar.BadInput, match="1e[+]300 of an array of float64 does not fit into float32"):
        call(lambda client: client.predict(made.model, [1e300, 0, 0, 0]))
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    with pytest.raises(saggar.BadRequest):
        call(lambda client: client.models.import_onnx(tmp_path / "broken.onnx"))


def test_a_key_of_fewer_rights_is_forbidden_the_rest(call: Call, client: saggar.Client, digits: str) -> None:
    import httpx

    made = httpx.post(
        os.environ["SAGGAR_HOST"] + "/api/v1/keys", json={"name": f"p{os.urandom(4).hex()}", "scopes": ["predict"]},
        headers={"authorization": f"Bearer {os.environ['SAGGAR_API_KEY']}"}, trust_env=False,
    ).json()  # fmt: skip
    image = np.zeros((8, 8), np.uint8)
    assert call(lambda client: client.predict(digits, image), key=made["key"])["label"].shape == ()
    for refused in (lambda it: it.jobs.list(), lambda it: it.models.promote(digits, 1), lambda it: it.data.list()):
        with pytest.raises(saggar.Forbidden, match="(?s)hint: ") as caught:
            call(refused, key=made["key"])
        assert caught.value.code == "missing_scope"
