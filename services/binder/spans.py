"""Traces of bindings: one span for each attempt, in its pod's trace, and one below it for each call that it made."""

from dataclasses import dataclass

from services.binder.events import Call, Done, Ended, Result
from shared.telemetry.tracing import AttributeValue, Tracer


@dataclass(frozen=True, slots=True)
class _Call:
    asked: str
    began: float
    ended: float
    failed: str


class BindSpans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._calls: dict[tuple[str, int], list[_Call]] = {}

    @property
    def enabled(self) -> bool:
        return self._tracer.enabled

    def called(self, call: Call, result: Result, began: float, ended: float) -> None:
        """Of an attempt that has not ended: its end is what makes us forget this."""
        failed = "" if isinstance(result, Done) else result.message
        made = _Call(call.asked, began, ended, failed)
        self._calls.setdefault((call.uid, call.attempt), []).append(made)

    def ended(self, end: Ended, now: float) -> None:
        order, tracer = end.order, self._tracer
        calls = self._calls.pop((order.uid, order.attempt), [])
        pod = tracer.pod(order.uid)
        if not (pod.sampled or end.reason):
            return
        context = tracer.child(pod)
        attributes: dict[str, AttributeValue] = {
            "pod": order.key,
            "node": order.node,
            "attempt": order.attempt,
        }
        tracer.record("bind", context, end.began, now, parent=pod, attributes=attributes, failed=end.reason)
        for call in calls:
            # Below a failure everything is told, sampled or not.
            inside = tracer.child(context)
            tracer.record(call.asked, inside, call.began, call.ended, parent=context, failed=call.failed)
