"""The errors of the client. All derive from `SaggarError`.

An error status becomes the class of its `code`, if that has one, else the class of the status.
"""

from __future__ import annotations

import json
from typing import Any


class SaggarError(Exception):
    """An error of the server, of the connection, or of the arguments.

    `message` says what is wrong and `code` says it from a fixed set. `hint` says what may help, and is empty if nothing
    is known. `request_id` names the request in the server's log, and `status` is the HTTP status; both are empty (0) if
    the error is not an answer of the server.
    """

    code = "error"

    def __init__(self, message: str, code: str = "", hint: str = "", request_id: str = "", status: int = 0) -> None:
        # All arguments are passed on by position, so that the error can be pickled.
        super().__init__(message, code, hint, request_id, status)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.request_id = request_id
        self.status = status

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})"
        if self.hint:
            text += f"\nhint: {self.hint}"
        if self.request_id:
            text += f"\nrequest: {self.request_id}"
        return text


class Unreachable(SaggarError):
    """No server answers at the address, or the connection broke before the whole answer had arrived."""

    code = "unreachable"


class CertificateError(Unreachable):
    """The server's certificate is not signed by a trusted authority, or is for another name."""

    code = "bad_certificate"


class BadAnswer(SaggarError):
    """The answer is not one of a saggar server: not JSON, incomplete, or contradictory."""

    code = "bad_answer"


class BadRequest(SaggarError):
    """The request is malformed or refused (400, 406, 413, 415, 422)."""


class BadInput(BadRequest, ValueError):
    """An input does not fit the model. The client raises it too, for arrays that have no form on the wire."""

    code = "bad_input"


class PluginRejected(BadRequest):
    """The model's plugin refused the input (422)."""


class TooLarge(BadRequest):
    """The body is too large (413)."""


class VersionSkew(BadRequest):
    """The versions of client and server are too far apart."""

    code = "version_skew"


class Unauthorized(SaggarError):
    """The key is missing, unknown or expired (401)."""


class Forbidden(SaggarError):
    """The key may not do this (403)."""


class NotFound(SaggarError):
    """The object or the route does not exist (404, 405)."""

    code = "not_found"


class UnknownModel(NotFound):
    """The model or the version does not exist (404)."""


class Conflict(SaggarError):
    """The state of the object does not allow the operation (409)."""


class TooManyRequests(SaggarError):
    """The rate or the quota of the key is used up, or a queue is full (429)."""


class QueueFull(TooManyRequests):
    """The queue of the model is full (429)."""


class DeadlineExceeded(SaggarError, TimeoutError):
    """The deadline passed in the queue or in the model (408, 504), or the client's timeout passed."""

    code = "deadline"


class ServerError(SaggarError):
    """A fault of the server (5xx)."""

    code = "internal"


class PluginFailed(ServerError):
    """The model's plugin failed or trapped (500)."""


class Unavailable(ServerError):
    """The server or the model is not ready, or there is no memory: try again (503)."""


class StorageFull(ServerError):
    """The storage quota or the disk is full (507)."""


class JobFailed(SaggarError):
    """A job ended in another state than `SUCCEEDED`. `code` is the reason, such as `PLUGIN_ERROR`."""

    code = "job_failed"


_BY_STATUS: dict[int, type[SaggarError]] = {
    401: Unauthorized, 403: Forbidden, 404: NotFound, 405: NotFound, 408: DeadlineExceeded, 409: Conflict,
    413: TooLarge, 429: TooManyRequests, 503: Unavailable, 504: DeadlineExceeded, 507: StorageFull,
}

_BY_CODE: dict[str, type[SaggarError]] = {
    "bad_input": BadInput, "plugin_rejected": PluginRejected, "plugin_error": PluginFailed, "plugin_trap": PluginFailed,
    "queue_full": QueueFull, "unknown_model": UnknownModel, "version_skew": VersionSkew,
    # Of streams, whose errors come after the status.
    "deadline": DeadlineExceeded, "deadline_queued": DeadlineExceeded, "device_lost": Unavailable,
    "memory_full": Unavailable, "not_ready": Unavailable, "out_of_memory": Unavailable, "stopping": Unavailable,
}


def from_document(document: Any, status: int = 0) -> SaggarError:
    """Returns the error that the body of an error answer, or the data of an `error` event, describes."""
    document = document if isinstance(document, dict) else {}
    text = {key: str(document.get(key) or "") for key in ("error", "code", "hint", "request_id")}
    default = BadRequest if 400 <= status < 500 else ServerError
    kind = _BY_CODE.get(text["code"]) or _BY_STATUS.get(status) or default
    message = text["error"] or f"the server answers with status {status}"
    return kind(message, text["code"] or (str(status) if status else ""), text["hint"], text["request_id"], status)


def from_answer(status: int, body: bytes, request_id: str) -> SaggarError:
    """Returns the error of an answer with an error status. The body may come from a proxy and have any form."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = {}
    return from_document({"request_id": request_id, **document}, status)
