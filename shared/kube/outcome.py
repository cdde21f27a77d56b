"""Calls to the API server: results, retries, our own rate limit, and metrics under client-go's names."""

import random
from enum import StrEnum

import msgspec

from shared.kube.errors import one_line
from shared.telemetry.metrics import Metrics


class CallOutcome(StrEnum):
    OK = "ok"
    CONFLICT = "conflict"
    """The object is not as expected: bound already, changed meanwhile, existing (409), or recreated under the same
    name, which the server reports as invalid (422) when a patch names the uid.
    """
    NOT_FOUND = "not found"
    GONE = "gone"
    THROTTLED = "throttled"
    """429, even after the client's own retries; `CallResult.retry_after` says when to retry."""
    FAILED = "failed"
    """Refused for another reason (4xx), so not executed."""
    UNREACHABLE = "unreachable"
    """Not received by the server, so not executed."""
    UNKNOWN = "unknown"
    """No answer or 5xx: it may have been executed. Look before retrying."""


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: int = 0


class StatusBody(msgspec.Struct):
    """The server's error."""

    code: int = 0
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after(self) -> float | None:
        """Seconds, if the server named them."""
        return (
            float(self.details.retry_after_seconds) if self.details and self.details.retry_after_seconds > 0 else None
        )


STATUS = msgspec.json.Decoder(StatusBody)


class ApiResponse(msgspec.Struct, frozen=True, gc=False):
    """An HTTP response. `retry_after`: seconds, if the server named them."""

    status: int
    body: bytes
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The server's error message on one line: that of a Status, else the beginning of the body."""
        try:
            return one_line(STATUS.decode(self.body).message)
        except msgspec.DecodeError:
            return one_line(self.body[:200].decode(errors="replace"))


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """`status`: the HTTP status, 0 without an answer. `message`: the error on one line, empty on success."""

    outcome: CallOutcome
    status: int = 0
    message: str = ""
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is CallOutcome.OK


_OUTCOMES = {404: CallOutcome.NOT_FOUND, 409: CallOutcome.CONFLICT, 410: CallOutcome.GONE, 429: CallOutcome.THROTTLED}
_DONE = {status: CallResult(CallOutcome.OK, status) for status in (200, 201, 202)}


def result_of(answer: ApiResponse) -> CallResult:
    done = _DONE.get(answer.status)
    if done is not None:
        return done
    if answer.ok:
        return CallResult(CallOutcome.OK, answer.status)
    outcome = _OUTCOMES.get(answer.status, CallOutcome.UNKNOWN if answer.status >= 500 else CallOutcome.FAILED)
    if answer.status == 422 and _is_of_another(answer.body):
        outcome = CallOutcome.CONFLICT
    return CallResult(outcome, answer.status, answer.message, answer.retry_after)


def _is_of_another(body: bytes) -> bool:
    """Whether a change was refused because the object has another uid."""
    try:
        details = STATUS.decode(body).details
    except msgspec.DecodeError:
        return False
    return details is not None and any(cause.field == "metadata.uid" for cause in details.causes or ())


class CallMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._total = metrics.counter(
            "rest_client_requests_total", "Calls to the API server by method and status", ("method", "code")
        )
        self._seconds = metrics.histogram(
            "rest_client_request_duration_seconds", "How long calls to the API server take, retries included", ("verb",)
        )

    def count(self, method: str, status: int, seconds: float) -> None:
        """`status` 0: no answer."""
        self._total.labels(method, str(status) if status else "<error>").inc()
        self._seconds.labels(method).observe(seconds)


# Rate limit and retries

FIRST_RETRY_AFTER = 0.1
"""Seconds until the first retry unless the server says when; doubled each time."""
LONGEST_WAIT = 5.0
"""With a longer Retry-After the call fails at once."""
JITTER = 0.25
"""Share by which a wait may be longer, so that not all callers retry together."""


class TokenBucket:
    """`rate` tokens a second, above 0; at most `burst`, at least 1. Starts full. First come, first served.

    It does not wait itself, and a caller that would wait too long takes nothing from those behind it.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._interval = 1.0 / rate
        self._grace = (max(burst, 1) - 1) * self._interval
        self._full_at = float("-inf")
        """When the bucket will be full unless more is taken."""

    def take(self, now: float, deadline: float) -> float | None:
        """When the caller may go; None, and nothing is taken, if that is after the deadline."""
        at = max(now, self._full_at - self._grace)
        if at > deadline:
            return None
        self._full_at = max(now, self._full_at) + self._interval
        return at

    def give_back(self) -> None:
        """Return an unused token."""
        self._full_at -= self._interval


def wait_before_retry(repeatable: bool, answer: ApiResponse, retries: int) -> float | None:
    """Seconds until the call may be retried, None if it may not. `repeatable`: doing it twice does no harm."""
    if answer.status == 429 or (answer.status >= 500 and repeatable):
        wait = answer.retry_after if answer.retry_after is not None else FIRST_RETRY_AFTER * 2**retries
        return jittered(wait) if wait <= LONGEST_WAIT else None
    return None


def jittered(wait: float) -> float:
    return wait * random.uniform(1.0, 1.0 + JITTER)


def retry_after(header: str | None) -> float | None:
    """The seconds of a Retry-After header, if it names any."""
    return float(header) if header and header.isascii() and header.isdigit() else None
