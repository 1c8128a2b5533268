"""Jobs and models against scripted answers, with both clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saggar
from saggar._jobs import _mounts

from ..conftest import Call, ScriptedServer, answer, events, head

Start = Callable[..., ScriptedServer]


def job(state: str = "RUNNING", **members: Any) -> dict[str, Any]:
    return {
        "id": "01M",
        "name": "digits-7",
        "project": "digits",
        "state": state,
        "step": 3,
        "steps_target": 9,
        **members,
    }


def with_job(call: Call, server: ScriptedServer, method: str, *arguments: Any, **options: Any) -> Any:
    """Calls a method of a job. The script begins with the job."""

    async def asynchronous(client: Any) -> Any:
        result = getattr(await client.jobs.get("digits-7"), method)(*arguments, **options)
        return [line async for line in result] if hasattr(result, "__aiter__") else await result

    def run(client: Any) -> Any:
        if isinstance(client, saggar.AsyncClient):
            return asynchronous(client)
        result = getattr(client.jobs.get("digits-7"), method)(*arguments, **options)
        return list(result) if hasattr(result, "__next__") else result

    return call(run, host=server.url)


def test_data_names_are_those_of_the_command_line() -> None:
    assert _mounts(None) == [] and _mounts("digits") == [{"dataset": "digits", "mount": "/data"}]
    assert _mounts(["digits/2:/a/b", "job:p-1:/c", "job:p-1/output/x/y"]) == [
        {"dataset": "digits", "version": 2, "mount": "/a/b"},
        {"job": "p-1", "mount": "/c"},
        {"job": "p-1", "path": "x/y", "mount": "/data"},
    ]
    assert _mounts({"/data": "a", "/more": "b/1"})[1] == {"dataset": "b", "version": 1, "mount": "/more"}
    for bad in ("", "a/latest", "job:", "job:p-1/logs"):
        with pytest.raises(saggar.BadInput, match="is not data"):
            _mounts(bad)


def test_a_component_is_uploaded_and_run_once(call: Call, scripted: Start, tmp_path: Path) -> None:
    wasm = tmp_path / "My_Net.wasm"
    wasm.write_bytes(b"\0asm")
    server = scripted(answer({"digest": "d" * 64}, 201), head(503, 0, Retry_After="1"), answer(job("QUEUED"), 201))
    submitted = call(
        lambda client: client.jobs.submit(wasm, data="digits", params={"lr": 0.1}, retry=2, device=None),
        host=server.url,
    )
    assert (submitted.name, submitted.state, submitted.step, submitted.is_over, str(submitted)) == (
        "digits-7",
        "QUEUED",
        3,
        False,
        "digits-7",
    )
    assert server.requests[0].headers["content-type"] == "application/wasm" and server.requests[0].body == b"\0asm"
    assert server.requests[2].json == {
        "project": "my-net",
        "plugin": "d" * 64,
        "parameters": {"lr": 0.1},
        "retry": 2,
        "data": [{"dataset": "digits", "mount": "/data"}],
    }
    keys = [request.headers["idempotency-key"] for request in server.requests[1:]]
    assert keys[0] == keys[1] and len(keys[0]) == 32


def test_a_plugin_is_found_by_name_or_digest(call: Call, scripted: Start) -> None:
    plugins = [
        {"digest": "ab" * 32, "declares": {"name": "net"}},
        {"digest": "cd" * 32},
        {"digest": "ce" * 32, "declares": {"name": "net"}},
    ]
    submit = lambda plugin, server, **options: call(  # noqa: E731
        lambda client: client.jobs.submit(plugin), host=server.url, **options
    )
    server = scripted(answer({"plugins": plugins[:2]}), answer(job()))
    submit("net", server)
    assert server.requests[1].json["plugin"] == "ab" * 32 and server.requests[1].json["project"] == "net"
    server = scripted(answer({"plugins": plugins}), answer(job()))
    submit("cdcdcd", server, project="vision")
    assert server.requests[1].json["plugin"] == "cd" * 32 and server.requests[1].json["project"] == "vision"
    with pytest.raises(saggar.BadInput, match="(?s)2 plugins net.*abababababab, cececececece"):
        submit("net", scripted(answer({"plugins": plugins})))
    with pytest.raises(saggar.NotFound, match="no plugin other"):
        submit("other", scripted(answer({"plugins": plugins})))


def test_waiting_survives_a_restart_of_the_server(call: Call, scripted: Start) -> None:
    lost = b""
    ended = job("SUCCEEDED", published=[{"model": "digits", "version": 1}], metrics={"loss": None})
    server = scripted(answer(job()), answer(job()), lost, lost, lost, head(503, 0), lost, answer(ended))
    found = with_job(call, server, "wait")
    assert found.is_over and found.published == ["digits@1"] and found.metrics == {"loss": None}


def test_a_job_that_fails_raises_its_reason(call: Call, scripted: Start) -> None:
    failed = answer(job("FAILED", reason="PLUGIN_ERROR", message="it gave up"))
    with pytest.raises(saggar.JobFailed, match="job digits-7 FAILED: it gave up") as caught:
        with_job(call, scripted(answer(job()), failed), "wait")
    assert caught.value.code == "PLUGIN_ERROR"
    assert with_job(call, scripted(answer(job()), failed), "wait", check=False).state == "FAILED"
    with pytest.raises(saggar.DeadlineExceeded, match="job digits-7 is RUNNING after 0 s"):
        with_job(call, scripted(answer(job())), "wait", timeout=0)
    with pytest.raises(saggar.NotFound):
        with_job(call, scripted(answer(job()), answer({"error": "gone", "code": "not_found"}, 404)), "wait")


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_progress_is_shown_with_and_without_tqdm(
    call: Call, scripted: Start, with_tqdm: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not with_tqdm:
        monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    running, ended = answer(job(metrics={"loss": 0.5})), answer(job("SUCCEEDED", step=9, metrics={"loss": 0.25}))
    assert with_job(call, scripted(answer(job("QUEUED")), running, ended), "follow").state == "SUCCEEDED"
    said = capsys.readouterr().err
    assert "digits-7" in said and "9/9" in said and "loss 0.2500" in said


def test_logs_are_followed_across_lost_connections(call: Call, scripted: Start) -> None:
    first = "id: 1:4\nevent: line\ndata: one\n\nid: 1:8\nevent: line\ndata: two\n\nid: 1:14\nevent: line\ndata: thr"
    second = "id: 1:14\nevent: line\ndata: three\n\nevent: end\ndata: {}\n\n"
    server = scripted(answer(job()), events(first), b"", head(503, 0), events(second))
    assert with_job(call, server, "logs", True, tail=5, timestamps=True) == ["one", "two", "three"]
    asked = server.requests[1:]
    assert asked[0].path == "/api/v1/jobs/digits-7/logs?follow=1&tail=5&timestamps=1"
    assert [request.headers.get("last-event-id") for request in asked] == [None, "1:8", "1:8", "1:8"]


def test_following_a_log_fails_if_it_cannot_be_opened(call: Call, scripted: Start) -> None:
    for said, kind in [
        (b"", saggar.Unreachable),
        (answer({"error": "no", "code": "not_found"}, 404), saggar.NotFound),
        (answer({"error": "full", "code": "streams_full"}, 429), saggar.TooManyRequests),
    ]:
        with pytest.raises(kind):
            with_job(call, scripted(answer(job()), said), "logs")


def test_curves_are_read_in_pages(call: Call, scripted: Start) -> None:
    pages = [
        {
            "series": [{"name": "loss", "points": [[1, 0.5], [8, None], [9, 3]]}, {"name": "a", "points": [[5, 2]]}],
            "next": 9,
        },
        {"series": [{"name": "loss", "points": [[9, 3]]}, {"name": "a", "points": []}], "next": None},
    ]
    server = scripted(answer(job()), *map(answer, pages))
    curves = with_job(call, server, "curves", "loss", "a")
    assert [request.path for request in server.requests[1:]] == [
        "/api/v1/jobs/digits-7/metrics?series=loss%2Ca",
        "/api/v1/jobs/digits-7/metrics?series=loss%2Ca&from=9",
    ]
    assert (
        curves["loss"][:, 0].tolist() == [1, 8, 9]
        and np.isnan(curves["loss"][1, 1])
        and curves["a"].tolist() == [[5, 2]]
    )
    frame = curves.to_frame()
    assert (
        frame.index.name == "step"
        and frame.loc[9, "loss"] == 3
        and np.isnan(frame.loc[1, "a"])
        and frame.loc[5, "a"] == 2
    )
    import matplotlib

    matplotlib.use("Agg")
    axes = curves.plot("loss", logy=True)
    assert [line.get_label() for line in axes.get_lines()] == ["loss"] and axes.get_yscale() == "log"
    assert len(curves.plot(ax=axes).get_lines()) == 3 and "loss: 3 points" in repr(curves)
    with pytest.raises(saggar.BadAnswer, match="cannot be read"):
        with_job(call, scripted(answer(job()), answer({"series": [{"name": "x", "points": [3]}]})), "curves")


def test_outputs_are_written_inside_the_folder(call: Call, scripted: Start, tmp_path: Path) -> None:
    files = answer({"files": [{"path": "a/b.csv", "bytes": 3}, {"path": "c é.txt", "bytes": 0}]})
    server = scripted(answer(job()), files, answer(b"1,2"), answer(b""))
    written = with_job(call, server, "download", to=tmp_path / "new")
    assert [path.relative_to(tmp_path / "new").as_posix() for path in written] == ["a/b.csv", "c é.txt"]
    assert written[0].read_bytes() == b"1,2" and written[1].read_bytes() == b""
    assert server.requests[3].path == "/api/v1/jobs/digits-7/output/c%20%C3%A9.txt"
    for name in ("../x", "/etc/x", "a/../../x", "", "a\\..\\x"):
        with pytest.raises(saggar.BadAnswer, match="is not a file below a folder"):
            with_job(
                call, scripted(answer(job()), answer({"files": [{"path": name}]})), "download", to=tmp_path / "new"
            )
    # A download that breaks off leaves the old file.
    with pytest.raises(saggar.Unreachable):
        with_job(call, scripted(answer(job()), head(length=9) + b"half"), "download", "a/b.csv", to=tmp_path / "new")
    assert (
        sorted(path.name for path in (tmp_path / "new/a").iterdir()) == ["b.csv"] and written[0].read_bytes() == b"1,2"
    )


def test_jobs_are_listed_by_pages(call: Call, scripted: Start) -> None:
    server = scripted(answer({"jobs": [job(), job()], "cursor": 5}), answer({"jobs": [job("FAILED")], "cursor": None}))
    listed = call(lambda client: client.jobs.list(state=["RUNNING", "FAILED"], project="p", limit=4), host=server.url)
    assert [it.state for it in listed] == ["RUNNING", "RUNNING", "FAILED"]
    assert [request.path for request in server.requests] == [
        "/api/v1/jobs?limit=4&state=RUNNING%2CFAILED&project=p",
        "/api/v1/jobs?limit=2&state=RUNNING%2CFAILED&project=p&cursor=5",
    ]
    for document in ({"jobs": [{}]}, {"jobs": [3]}, {"jobs": [job(step="x")]}):
        with pytest.raises(saggar.BadAnswer, match="describes a job as"):
            call(lambda client: client.jobs.list(), host=scripted(answer(document)).url)


def test_jobs_are_controlled(call: Call, scripted: Start) -> None:
    for command in ("stop", "preempt", "checkpoint"):
        server = scripted(answer(job()), answer(job()), answer(job("STOPPING")))
        assert with_job(call, server, command).state == "STOPPING"
        assert server.requests[1].line.startswith(f"POST /api/v1/jobs/digits-7/{command} ")
    server = scripted(answer(job()), answer(job("QUEUED", name="digits-8")))
    again = with_job(call, server, "restart", {"lr": 1}, {"seed": 4}, resume=False)
    assert again.name == "digits-8"
    assert server.requests[1].json == {"parameters": {"lr": 1}, "overrides": {"seed": 4}, "resume": False}
    assert with_job(call, scripted(answer(job()), answer({"freed_bytes": 7})), "remove") == 7


def model(*versions: dict[str, Any], **members: Any) -> bytes:
    return answer({"name": "m", "versions": versions, "aliases": {}, **members})


def test_a_canary_loads_the_version_first_and_ends_with_0_percent(call: Call, scripted: Start) -> None:
    server = scripted(model(), model(), model(serving=1, traffic={"stable": 90, "canary": 10}))
    assert call(lambda client: client.models.canary("m", 2, 10), host=server.url).traffic == {
        "stable": 90,
        "canary": 10,
    }
    assert [(request.line.split()[0], request.path, request.json) for request in server.requests] == [
        ("POST", "/api/v1/models/m/load", {"version": 2}),
        ("PUT", "/api/v1/models/m/aliases/canary", {"version": 2}),
        ("PUT", "/api/v1/models/m/traffic", {"stable": 90, "canary": 10}),
    ]
    server = scripted(model(aliases={"canary": 2}), model())
    call(lambda client: client.models.canary("m", 2, 0), host=server.url)
    assert [request.line.split()[:2] for request in server.requests] == [
        ["PUT", "/api/v1/models/m/traffic"],
        ["DELETE", "/api/v1/models/m/aliases/canary"],
    ]


def test_models_are_waited_for(call: Call, scripted: Start) -> None:
    unknown = answer({"error": "no", "code": "unknown_model"}, 404)
    loading = model({"version": 3, "state": "LOADING"})
    server = scripted(unknown, loading, model({"version": 3, "state": "READY", "aliases": ["stable"]}, serving=3))
    found = call(lambda client: client.models.wait("m", 3), host=server.url)
    assert found.serving == 3 and found.versions[0].aliases == ["stable"] and found.signature is None
    for version, reason in [
        ({"state": "FAILED", "reason": "damaged"}, "m@3 is FAILED: damaged"),
        ({"state": "UNLOADED", "reason_code": "NOT_PROMOTED", "reason": "waits"}, "m@3 is UNLOADED: waits"),
    ]:
        with pytest.raises(saggar.ServerError, match=reason):
            call(lambda client: client.models.wait("m", 3), host=scripted(model({"version": 3, **version})).url)
    with pytest.raises(saggar.DeadlineExceeded, match="m@3 does not serve after 0 s"):
        call(lambda client: client.models.wait("m", 3, timeout=0), host=scripted(unknown).url)


def test_the_other_model_commands_send_what_the_rest_interface_names(call: Call, scripted: Start) -> None:
    commands: list[tuple[Callable[[Any], Any], list[tuple[str, str, Any]]]] = [
        (lambda models: models.promote("m", "newest"), [("POST", "promote", {"version": "newest"})]),
        (lambda models: models.rollback("m"), [("POST", "rollback", None)]),
        (lambda models: models.load("m"), [("POST", "load", {})]),
        (lambda models: models.unload("m", 2), [("POST", "unload", {"version": 2})]),
        (lambda models: models.warm("m"), [("POST", "warm", None)]),
        (lambda models: models.alias("m", "next", None), [("DELETE", "aliases/next", None)]),
        (lambda models: models.shadow("m", "next", 5), [("PUT", "shadow", {"to": "next", "percent": 5})]),
        (
            lambda models: models.shadow("m", 2),
            [("POST", "load", {"version": 2}), ("PUT", "shadow", {"to": "2", "percent": 100})],
        ),
        (lambda models: models.shadow("m", None), [("DELETE", "shadow", None)]),
        (lambda models: models.configure("m", {"pin": True}), [("PUT", "config", {"pin": True})]),
        (lambda models: models.config("m"), [("GET", "config", None)]),
        (lambda models: models.set_projects("m", ["p"]), [("PUT", "projects", {"projects": ["p"]})]),
        (lambda models: models.remove("m", 2), [("DELETE", "versions/2", None)]),
        (lambda models: models.publish("m", checkpoint="job:a"), [("POST", "versions", {"from": "job:a"})]),
    ]
    for command, expected in commands:
        server = scripted(model())
        call(lambda client: command(client.models), host=server.url)
        sent = [(it.line.split()[0], it.path, json.loads(it.body) if it.body else None) for it in server.requests]
        assert sent == [(method, f"/api/v1/models/m/{path}", body) for method, path, body in expected]


def test_an_onnx_file_is_sent_with_its_external_files(call: Call, scripted: Start, tmp_path: Path) -> None:
    (tmp_path / "Res_Net.onnx").write_bytes(b"onnx")
    (tmp_path / "weights.bin").write_bytes(b"w")
    made = answer({"model": "res-net", "version": 1, "is_new": True})
    server = scripted(made)
    path = tmp_path / "Res_Net.onnx"
    assert call(lambda client: client.models.import_onnx(path, batch=[1, 8]), host=server.url).version == 1
    assert server.requests[0].path == "/api/v1/models/res-net/import?options=%7B%22batch%22%3A+%5B1%2C+8%5D%7D"
    assert server.requests[0].body == b"onnx"
    server = scripted(made)
    call(lambda client: client.models.import_onnx(path, "m", external=[tmp_path / "weights.bin"]), host=server.url)
    assert (
        b'name="model"' in server.requests[0].body
        and b'name="weights.bin"; filename="weights.bin"' in server.requests[0].body
    )


def test_answers_of_another_form_are_refused(call: Call, scripted: Start) -> None:
    for document in ({}, {"models": 3}, {"models": [3]}, {"models": [None]}):
        with pytest.raises(saggar.BadAnswer):
            call(lambda client: client.models.list(), host=scripted(answer(document)).url)
    old = call(lambda client: client.models.list(), host=scripted(answer({"models": [{"new": 1}]})).url)
    assert old[0].name == "" and old[0].raw == {"new": 1}
