"""Metrics and traces of the cycle."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from services.cycle.round.admission import PodInfo
from shared.bounded import BoundedDict
from shared.messages.queue import Outcome, Verdict
from shared.telemetry.metrics import GrowingSums, Metrics
from shared.telemetry.tracing import TraceContext, Tracer

RESULTS = {
    Verdict.DECIDED: "scheduled",
    Verdict.UNSCHEDULABLE: "unschedulable",
    Verdict.FAILED: "error",
    Verdict.SUPERSEDED: "scheduled",
}
"""The labels that kube-scheduler uses."""


ALGORITHM_SECONDS = tuple(0.001 * 2**i for i in range(15))
MAX_ROUNDS = 64
"""Rounds whose beginning is remembered; two are under way at most."""


class CycleMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.rounds = metrics.counter("flotilla_rounds_total", "Rounds begun.")
        self.refused = metrics.counter("flotilla_cycle_refused_total", "Messages refused.")
        self.held = metrics.gauge("flotilla_cycle_pods", "Pods without an outcome yet.")
        self.workers = metrics.gauge("flotilla_workers", "Workers that hold shards.")
        self.faults = metrics.counter(
            "flotilla_worker_faults_total",
            "Answers that cannot have been right when they were given.",
            ["worker", "reason"],
        )
        self._attempts = metrics.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "From the pod's leaving the queue to its outcome.",
            ["result", "profile"],
        )

        self._algorithm = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "From a round's first ask to its commit, for each pod that got a node in it.",
            buckets=ALGORITHM_SECONDS,
        )
        self.preemption_attempts = GrowingSums(
            metrics.counter("scheduler_preemption_attempts_total", "Pods for which victims were searched.")
        )
        self.hints = GrowingSums(
            metrics.counter(
                "flotilla_hints_total",
                "Pods that fit nowhere, by the result of the search for a hint: sent, none, dropped.",
                ["result"],
            )
        )
        self._began: BoundedDict[int, float] = BoundedDict(MAX_ROUNDS)
        self._committed = 0
        """The last round whose decisions were sent."""

    def asked(self, number: int, now: float) -> None:
        """A round of this number asks workers, perhaps not for the first time."""
        self._began.setdefault(number, now)

    def committed(self, number: int, pods: int, now: float) -> None:
        """The round's decisions are sent, perhaps not for the first time. A round that needed no ask took no time."""
        if number <= self._committed:
            return
        self._committed, began = number, self._began.pop(number, now)
        self._algorithm.observe(now - began, pods)

    def attempt(self, info: PodInfo, outcome: Outcome, now: float) -> None:
        self._attempts.labels(RESULTS[outcome.verdict], info.template.profile).observe(now - info.taken_at)


@dataclass(slots=True)
class _RoundSpan:
    context: TraceContext
    pods: frozenset[str]
    at: float


class RoundSpans:
    """Traces rounds, and each pod's attempt with a link to its rounds. A round is traced if one of its pods is.

    One round may be asked about while another is committed.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._rounds: dict[int, _RoundSpan] = {}

    def context(self, number: int, pods: Sequence[str], now: float) -> TraceContext | None:
        """For messages of the round of this number."""
        if not self._tracer.enabled:
            return None
        span = self._rounds.get(number)
        if span is None:
            sampled = any(self._tracer.pod(uid).sampled for uid in pods)
            span = self._rounds[number] = _RoundSpan(self._tracer.new(sampled), frozenset(pods), now)
        return span.context

    def attempt(self, info: PodInfo, outcome: Outcome, now: float) -> None:
        if not self._tracer.enabled:
            return
        pod = self._tracer.pod(info.uid)
        attributes: dict[str, str | int] = {
            "pod": info.key,
            "attempt": info.attempt,
            "result": str(outcome.verdict),
            "node": outcome.node,
        }
        self._tracer.record(
            "attempt",
            self._tracer.child(pod),
            info.taken_at,
            now,
            parent=pod,
            attributes=attributes,
            links=[span.context for span in self._rounds.values() if info.uid in span.pods],
            failed=outcome.message if outcome.verdict in (Verdict.UNSCHEDULABLE, Verdict.FAILED) else "",
        )

    def end(self, under_way: Collection[int], now: float) -> None:
        """Records the rounds that are not under way any more."""
        for number in [number for number in self._rounds if number not in under_way]:
            span = self._rounds.pop(number)
            attributes = {"round": number, "pods": len(span.pods)}
            self._tracer.record("round", span.context, span.at, now, attributes=attributes)
