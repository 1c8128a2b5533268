"""Requests, errors, retries and events, without a connection."""

from __future__ import annotations

import pickle
import random

import pytest

import saggar
from saggar import errors
from saggar._protocol import (
    EventParser,
    EventStream,
    Request,
    Response,
    ServerEvent,
    Settings,
    check_version,
    form,
    get,
    json_object,
    retry_delay,
    route,
)


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_events_are_parsed_wherever_the_chunks_end() -> None:
    text = (
        "id: 1:7\nevent: line\ndata:  a: é \n\n: a remark\n\nevent: line\r\ndata:\r\n\r\ndata:{\ndata: 1}\n\nid: 9\ndata: x"
    ).encode()
    expected = [ServerEvent("line", " a: é ", "1:7"), ServerEvent("line", ""), ServerEvent("", "{\n1}")]
    assert parse(text) == expected
    assert parse(*(text[at : at + 1] for at in range(len(text)))) == expected
    random.seed(1)
    for _ in range(50):
        cuts = sorted(random.sample(range(len(text)), 6))
        assert parse(*(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)]))) == expected


def test_an_incomplete_event_is_dropped() -> None:
    for cut in (b"event: line\nda", b"event: line\ndata: half", b"data: whole\n", b"\n\n", b""):
        assert parse(cut) == []


def test_paths_quote_every_segment() -> None:
    assert route("models", "digits@2", "predict") == "/models/digits@2/predict"
    assert route("a", "x/../y?z#", "é") == "/a/x%2F..%2Fy%3Fz%23/%C3%A9"
    assert route("a", limit=3, state=None, follow=True, tail=False) == "/a?limit=3&follow=1"
    assert route("a", tail=0, step=None) == "/a?tail=0"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="is not a name"):
            route("api", "v1", "models", name)


def test_settings_come_from_arguments_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = Settings.resolve
    assert resolve(None, None, None, None, 1, 2).host == "http://127.0.0.1:5000"
    monkeypatch.setenv("SAGGAR_HOST", "https://box:5000/")
    monkeypatch.setenv("SAGGAR_API_KEY", " sgr_1 ")
    monkeypatch.setenv("SAGGAR_CA", "")
    monkeypatch.setenv("SAGGAR_PROJECT", "vision")
    found = resolve(None, None, None, None, 1, 2)
    assert (found.host, found.key, found.ca, found.project) == ("https://box:5000", "sgr_1", None, "vision")
    assert not found.is_loopback and resolve("localhost:1", None, None, None, 1, 2).is_loopback
    assert resolve("box:1", "k", "ca.pem", "p", 1, 2) == Settings("http://box:1", "k", "ca.pem", "p", 1, 2)
    for host in ("ftp://x", "http://", "http://x:99999", "http://[x", "http://x?y"):
        with pytest.raises(ValueError, match="is not the address"):
            resolve(host, None, None, None, 1, 2)
    with pytest.raises(ValueError, match="the key contains"):
        resolve(None, "a\nb", None, None, 1, 2)


def test_a_client_does_not_show_its_key() -> None:
    client = saggar.Client(key="sgr_secret")
    assert "sgr_secret" not in repr(client) and repr(client) == "Client(http://127.0.0.1:5000)"


def test_errors_have_the_class_of_their_code_or_status() -> None:
    def error(status: int, code: str = "x") -> errors.SaggarError:
        return errors.from_answer(status, b'{"error": "e", "code": "%s", "hint": "h"}' % code.encode(), "r-1")

    kinds = {
        (400, "bad_input"): saggar.BadInput,
        (400, "bad_json"): saggar.BadRequest,
        (401, "no_key"): saggar.Unauthorized,
        (403, "missing_scope"): saggar.Forbidden,
        (404, "unknown_model"): saggar.UnknownModel,
        (404, "not_found"): saggar.NotFound,
        (408, "deadline_queued"): saggar.DeadlineExceeded,
        (409, "conflict"): saggar.Conflict,
        (413, "too_large"): saggar.TooLarge,
        (415, "x"): saggar.BadRequest,
        (422, "plugin_rejected"): saggar.PluginRejected,
        (429, "queue_full"): saggar.QueueFull,
        (429, "rate_limited"): saggar.TooManyRequests,
        (500, "plugin_trap"): saggar.PluginFailed,
        (500, "internal"): saggar.ServerError,
        (503, "not_ready"): saggar.Unavailable,
        (504, "deadline"): saggar.DeadlineExceeded,
        (507, "disk_full"): saggar.StorageFull,
        (599, ""): saggar.ServerError,
    }
    for (status, code), kind in kinds.items():
        assert type(error(status, code)) is kind, (status, code)
    found = error(404, "unknown_model")
    assert (found.message, found.code, found.hint, found.request_id, found.status) == (
        "e",
        "unknown_model",
        "h",
        "r-1",
        404,
    )
    assert str(found) == "e (unknown_model)\nhint: h\nrequest: r-1"
    assert isinstance(error(400, "bad_input"), ValueError) and isinstance(error(504), TimeoutError)
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is saggar.UnknownModel and str(again) == str(found)


def test_error_bodies_of_any_form_are_understood() -> None:
    for body in (b"<html>Bad Gateway</html>", b"", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"error": null}'):
        error = errors.from_answer(502, body, "")
        assert type(error) is saggar.ServerError and error.message == "the server answers with status 502"
        assert error.code == "502"


def test_answers_that_are_not_objects_are_refused() -> None:
    for body in (b"<html>", b"", b"[1]", b"null", b"\xff", b"{" * 100_000, b'{"a": 1'):
        with pytest.raises(saggar.BadAnswer, match="is that a saggar server"):
            json_object(body)


def test_only_passing_errors_of_idempotent_requests_are_retried() -> None:
    again, once = get("/x"), Request("POST", "/x")
    lost, busy, wrong = saggar.Unreachable("l"), saggar.TooManyRequests("b", status=429), saggar.BadRequest("w")
    assert 0 < (retry_delay(again, lost, "", 0, 2) or 0) < 0.2
    assert retry_delay(again, busy, "7", 1, 2) == 7
    for request, error, after, attempt in [
        (once, lost, "", 0),
        (once, busy, "1", 0),
        (again, wrong, "", 0),
        (again, lost, "", 2),
        (again, busy, "", 0),
        (again, busy, "86400", 0),
        (again, saggar.CertificateError("c"), "", 0),
        (again, saggar.ServerError("s"), "1", 0),
    ]:
        assert retry_delay(request, error, after, attempt, 2) is None, (request.method, error)


def test_servers_of_a_distant_version_are_refused() -> None:
    major, minor, _ = map(int, saggar.__version__.split("."))
    for near in ("", f"{major}.{minor}.9", f"{major}.{minor + 1}.0-rc.1", "x", "1.2"):
        check_version(near)
    for far in (f"{major}.{minor + 2}.0", f"{major + 1}.{minor}.0"):
        with pytest.raises(saggar.VersionSkew, match="minor versions may differ by one"):
            check_version(far)


def test_forms_have_no_line_breaks_in_names() -> None:
    kind, body = form([('a"\r\nx', "b\n.png", None, b"1"), ("c", None, "application/json", b"2")])
    boundary = kind.removeprefix("multipart/form-data; boundary=")
    assert body.decode() == (
        f'--{boundary}\r\nContent-Disposition: form-data; name="a___x"; filename="b_.png"\r\nContent-Type: image/png\r\n'
        f'\r\n1\r\n--{boundary}\r\nContent-Disposition: form-data; name="c"\r\nContent-Type: application/json\r\n'
        f"\r\n2\r\n--{boundary}--\r\n"
    )


def test_a_stream_is_opened_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("saggar._protocol.time.monotonic", lambda: now[0])
    stream: EventStream[str] = EventStream(get("/x"), lambda event, _: ([event.data], event.name == "end"), True)
    with pytest.raises(saggar.Unreachable):
        stream.delay_after(saggar.Unreachable("never opened"))
    opened = Response(200, [("Content-Type", "text/event-stream")])
    stream.begin(opened)
    assert list(stream.feed(b"id: 4\ndata: a\n\ndata: hal")) == ["a"]
    assert stream.delay_after(None) > 0
    assert stream.request().headers["last-event-id"] == "4"
    now[0] = 59
    assert stream.delay_after(saggar.Unreachable("x")) > 0
    stream.begin(opened)
    assert list(stream.feed(b": still here\n\n")) == []
    now[0] = 118
    assert stream.delay_after(None) > 0
    now[0] = 300
    with pytest.raises(saggar.Unreachable, match="gone"):
        stream.delay_after(saggar.Unreachable("gone"))
    assert list(stream.feed(b"event: end\ndata: b\n\ndata: c\n\n")) == ["b"] and stream.is_done
