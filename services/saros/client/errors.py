"""What the client raises.

ClientError (a SarosError)
├── NoAnswerError          it could not be reached, hung up, or took too long
├── UnusableError          the client cannot ask: it was closed, or has an address that is none
├── UnreadableError        an answer that is not the API's
├── QueueFullError         no room in a batcher: events come faster than they can be sent
├── UnsentError            events that were not acknowledged, though tried again; its cause says why
└── ApiError               the API answered with a problem
    ├── InvalidError       the request is wrong (400, 405, 408, 413, 415, 422, 431)
    ├── UnauthorizedError  the key is missing or not known (401)
    ├── ForbiddenError     the key has not the scope (403)
    ├── NotFoundError      no such item or user, or no such route (404)
    ├── ConflictError      somebody else was faster (409)
    ├── BusyError          not now; it was tried again already (429, 502, 503, 504)
    └── ServerError        a defect of the service (500)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from saros.client.answers import Receipt
from saros.errors import SarosError


class ClientError(SarosError):
    """All that the client raises on purpose."""


class NoAnswerError(ClientError):
    """No answer came. `sent` is false where it is certain that the request never arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class UnusableError(ClientError):
    """The client cannot ask anybody: it was closed, or its address is none."""


class UnreadableError(ClientError):
    """An answer that is not the API's: most likely something else listens at the address."""


class QueueFullError(ClientError):
    """A batcher has no room for another event. Its cause is the last error of sending, if there was one."""


class UnsentError(ClientError):
    """Events were not acknowledged: `unsent` are their places. `receipt` says what became of the others."""

    def __init__(self, unsent: Sequence[int], receipt: Receipt, why: str) -> None:
        super().__init__(f"{len(unsent)} events were not acknowledged: {why}")
        self.unsent, self.receipt = tuple(unsent), receipt


class ApiError(ClientError):
    """The API answered with a problem (RFC 9457). `problem` holds all of its members, of which `type` never changes."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None) -> None:
        self.status, self.problem, self.retry_after_s = status, problem, retry_after_s
        self.type = str(problem.get("type", "about:blank"))
        self.detail = str(problem.get("detail", problem.get("title", "")))
        self.request_id = str(problem.get("request_id", ""))
        request = f" (request {self.request_id})" if self.request_id else ""
        super().__init__(f"{status} {self.type.rpartition(':')[2]}: {self.detail}{request}")


class InvalidError(ApiError):
    """The request is wrong, and will be when it is sent again."""

    @property
    def errors(self) -> list[dict[str, str]]:
        """All that is wrong, each with `in`, `name` and `detail`."""
        return list(self.problem.get("errors", ()))


class UnauthorizedError(ApiError):
    """The key is missing, or not known."""


class ForbiddenError(ApiError):
    """The key is known, and has not the scope."""


class NotFoundError(ApiError):
    """The model does not know this item, or there is no such route."""


class ConflictError(ApiError):
    """The gate is at another revision than the one that was to be changed."""


class BusyError(ApiError):
    """Not now. `retry_after_s` says when, if the API knows."""


class ServerError(ApiError):
    """A defect of the service; its log has the request's id."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError, 403: ForbiddenError, 404: NotFoundError, 409: ConflictError, 429: BusyError,
    502: BusyError, 503: BusyError, 504: BusyError,
}  # fmt: skip


def api_error(status: int, problem: Mapping[str, Any], retry_after_s: float | None) -> ApiError:
    """Return the error of an answer."""
    kind = _BY_STATUS.get(status, InvalidError if status < 500 else ServerError)
    return kind(status, problem, retry_after_s)
