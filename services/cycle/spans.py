"""Traces of rounds, and of each pod's attempt: it is linked to the round that decided it."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.messages.queue import Outcome, QueuedPod, Verdict
from shared.telemetry.tracing import TraceContext, Tracer


@dataclass(slots=True)
class _Round:
    number: int
    context: TraceContext
    pods: int
    at: float


class RoundSpans:
    """A round is traced if one of its pods is."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._round: _Round | None = None

    def context(self, number: int, pods: Sequence[str], now: float) -> TraceContext | None:
        """Of the round of this number, for the messages that belong to it."""
        if not self._tracer.enabled:
            return None
        self.end(number, now)
        if self._round is None:
            sampled = any(self._tracer.pod(uid).sampled for uid in pods)
            self._round = _Round(number, self._tracer.new(sampled), len(pods), now)
        return self._round.context

    def attempt(self, queued: QueuedPod, outcome: Outcome, now: float) -> None:
        if not self._tracer.enabled:
            return
        pod = self._tracer.pod(queued.pod.uid)
        failed = outcome.message if outcome.verdict in (Verdict.UNSCHEDULABLE, Verdict.FAILED) else ""
        self._tracer.record(
            "attempt",
            self._tracer.child(pod),
            queued.taken_at,
            now,
            parent=pod,
            attributes={
                "pod": queued.pod.key,
                "attempt": queued.attempt,
                "result": str(outcome.verdict),
                "node": outcome.node,
            },
            links=[] if self._round is None else [self._round.context],
            failed=failed,
        )

    def end(self, current: int, now: float) -> None:
        """Told again and again which round runs; one that does not any more is recorded."""
        ended = self._round
        if ended is not None and ended.number != current:
            self._round = None
            attributes = {"round": ended.number, "pods": ended.pods}
            self._tracer.record("round", ended.context, ended.at, now, attributes=attributes)
