"""Traces of rounds, and of each pod's attempt: it is linked to the round that decided it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shared.messages.queue import Outcome, QueuedPod, Verdict
from shared.telemetry.tracing import TraceContext, Tracer


@dataclass(slots=True)
class _Round:
    context: TraceContext
    pods: frozenset[str]
    at: float


class RoundSpans:
    """A round is traced if one of its pods is. One round may be asked about while another is committed."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._rounds: dict[int, _Round] = {}

    def context(self, number: int, pods: Sequence[str], now: float) -> TraceContext | None:
        """Of the round of this number, for the messages that belong to it."""
        if not self._tracer.enabled:
            return None
        round_ = self._rounds.get(number)
        if round_ is None:
            sampled = any(self._tracer.pod(uid).sampled for uid in pods)
            round_ = self._rounds[number] = _Round(self._tracer.new(sampled), frozenset(pods), now)
        return round_.context

    def attempt(self, queued: QueuedPod, outcome: Outcome, taken_at: float, now: float) -> None:
        if not self._tracer.enabled:
            return
        pod = self._tracer.pod(queued.pod.uid)
        failed = outcome.message if outcome.verdict in (Verdict.UNSCHEDULABLE, Verdict.FAILED) else ""
        self._tracer.record(
            "attempt",
            self._tracer.child(pod),
            taken_at,
            now,
            parent=pod,
            attributes={
                "pod": queued.pod.key,
                "attempt": queued.attempt,
                "result": str(outcome.verdict),
                "node": outcome.node,
            },
            links=[round_.context for round_ in self._rounds.values() if outcome.uid in round_.pods],
            failed=failed,
        )

    def end(self, under_way: Collection[int], now: float) -> None:
        """Told again and again which rounds are under way; one that is not any more is recorded."""
        for number in [number for number in self._rounds if number not in under_way]:
            ended = self._rounds.pop(number)
            attributes = {"round": number, "pods": len(ended.pods)}
            self._tracer.record("round", ended.context, ended.at, now, attributes=attributes)
