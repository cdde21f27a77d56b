"""What became of a call to the API server, and metrics of calls under client-go's names."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec
from prometheus_client import Counter, Histogram

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


@dataclass(frozen=True, slots=True)
class ApiResponse:
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
            return one_line(_STATUS.decode(self.body).message)
        except msgspec.DecodeError:
            return one_line(self.body[:200].decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class CallResult:
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
        causes = _STATUS.decode(body).details.causes
    except msgspec.DecodeError:
        return False
    return any(cause.field == "metadata.uid" for cause in causes or ())


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    details: _Details = _Details()


_STATUS = msgspec.json.Decoder(_Status)


class CallMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._total = metrics.counter(
            "rest_client_requests_total", "Calls to the API server by method and status", ("method", "code")
        )
        self._seconds = metrics.histogram(
            "rest_client_request_duration_seconds", "How long calls to the API server take, retries included", ("verb",)
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, method: str, status: int, seconds: float) -> None:
        """`status` 0: no answer."""
        counter = self._counters.get((method, status))
        if counter is None:
            code = str(status) if status else "<error>"
            counter = self._counters[method, status] = self._total.labels(method, code)
        counter.inc()
        histogram = self._histograms.get(method)
        if histogram is None:
            histogram = self._histograms[method] = self._seconds.labels(method)
        histogram.observe(seconds)
