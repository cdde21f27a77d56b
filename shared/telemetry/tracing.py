"""Traces: spans recorded after the fact, with given ids and times.

A pod's trace ids, and whether it is sampled, are derived from the pod's uid, so that all services agree on them without
communication. Its spans come from several processes and meet at the collector.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

if TYPE_CHECKING:  # lazily: slow to import, and few processes export
    from shared.telemetry.export import SpanSink


AttributeValue = str | bool | int | float

_HEX = frozenset("0123456789abcdef")
_SAMPLING_BITS = 56
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("flotilla")
_UNSET, _LENGTHS = Status(StatusCode.UNSET), (2, 32, 16, 2)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span's identity: its trace, its own id, and whether the trace is sampled."""

    trace_id: int
    span_id: int
    sampled: bool

    def traceparent(self) -> str:
        """The W3C header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"

    def fields(self) -> dict[str, str]:
        """Fields of a log line that lead to the trace."""
        return {"trace_id": f"{self.trace_id:032x}", "span_id": f"{self.span_id:016x}"}

    @staticmethod
    def parse(header: str) -> "TraceContext | None":
        """Parse a W3C traceparent; None if it is invalid. Later versions may have further fields."""
        version, *fields = header.split("-")
        if [len(version), *map(len, fields[:3])] != list(_LENGTHS) or version == "ff":
            return None
        if (version == "00" and len(fields) > 3) or not _HEX.issuperset(version + "".join(fields[:3])):
            return None
        trace_id, span_id, flags = (int(field, 16) for field in fields[:3])
        return TraceContext(trace_id, span_id, bool(flags & 1)) if trace_id and span_id else None


def unix_time(at: float) -> float:
    """The Unix time that corresponds to a time of `time.monotonic`."""
    return time.time() - (time.monotonic() - at)


class Tracer:
    """Records nothing without a sink; `enabled` tells callers to skip the work.

    Spans have times of the monotonic clock; `date` converts them to Unix time.
    """

    def __init__(
        self,
        service: str,
        name: str,
        *,
        ratio: float = 0.0,
        ids: random.Random,
        sink: "SpanSink | None" = None,
        date: Callable[[float], float] = unix_time,
    ) -> None:
        self.enabled = sink is not None
        self._date = date
        self._sink = sink
        self._ids = ids
        self._threshold = round(ratio * (1 << _SAMPLING_BITS))
        self._resource = Resource({"service.name": f"flotilla-{service}", "service.instance.id": name})

    def pod(self, uid: str) -> TraceContext:
        """The root of a pod's trace; equal in all processes with the same ratio."""
        digest = blake2b(uid.encode(errors="surrogatepass"), digest_size=24, person=b"flotilla-trace").digest()
        trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:])
        sampled = trace_id & ((1 << _SAMPLING_BITS) - 1) < self._threshold
        return TraceContext(trace_id or 1, span_id or 1, sampled)

    def new(self, sampled: bool) -> TraceContext:
        """The root of a new trace."""
        return TraceContext(self._ids.getrandbits(128) or 1, self._ids.getrandbits(64) or 1, sampled)

    def child(self, parent: TraceContext) -> TraceContext:
        return TraceContext(parent.trace_id, self._ids.getrandbits(64) or 1, parent.sampled)

    def record(
        self,
        name: str,
        context: TraceContext,
        start: float,
        end: float,
        *,
        parent: TraceContext | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        links: Sequence[TraceContext] = (),
        failed: str = "",
    ) -> None:
        """A finished span. `failed`: why it failed; such a span is recorded even if it is not sampled."""
        if self._sink is None or not (context.sampled or failed):
            return
        began = self._date(start)
        self._sink.put(
            ReadableSpan(
                name,
                context=_span_context(context, remote=False),
                parent=None if parent is None else _span_context(parent, remote=True),
                resource=self._resource,
                attributes=dict(attributes or {}),
                links=[Link(_span_context(link, remote=True)) for link in links],
                kind=SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR, failed) if failed else _UNSET,
                start_time=_nanoseconds(began),
                end_time=_nanoseconds(began + max(end - start, 0.0)),
                instrumentation_scope=_SCOPE,
            )
        )

    def close(self) -> None:
        """Export what is waiting, within a bounded time."""
        if self._sink is not None:
            self._sink.close()


def _span_context(context: TraceContext, *, remote: bool) -> SpanContext:
    """With the sampled flag, so that it is exported."""
    return SpanContext(context.trace_id, context.span_id, is_remote=remote, trace_flags=_SAMPLED)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e6) * 1000
