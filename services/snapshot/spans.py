"""Traces of commits: one span for each, and one in the trace of each pod that is sampled."""

from dataclasses import dataclass

from shared.messages.state import Commit, Committed
from shared.telemetry.tracing import TraceContext, Tracer


@dataclass(slots=True)
class _Begun:
    commit: Commit
    parent: TraceContext | None
    at: float


class CommitSpans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._begun: _Begun | None = None

    def begin(self, commit: Commit, parent: TraceContext | None, now: float) -> None:
        if self._begun is None or (commit.epoch, commit.round) != _id(self._begun.commit):
            self._begun = _Begun(commit, parent, now)

    def end(self, committed: Committed, now: float) -> int:
        """How many decisions were taken; nought for an answer that was given before."""
        begun = self._begun
        if begun is None or (committed.epoch, committed.round) != _id(begun.commit):
            return 0
        self._begun = None
        if self._tracer.enabled:
            self._record(begun, committed, now)
        refused = {conflict.uid for conflict in committed.conflicts}
        return sum(decision.uid not in refused for decision in begun.commit.decisions)

    def _record(self, begun: _Begun, committed: Committed, now: float) -> None:
        tracer, parent, decisions = self._tracer, begun.parent, begun.commit.decisions
        context = tracer.new(False) if parent is None else tracer.child(parent)
        refused = {conflict.uid: conflict.reason for conflict in committed.conflicts}
        attributes = {"round": committed.round, "decisions": len(decisions), "conflicts": len(refused)}
        tracer.record("commit", context, begun.at, now, parent=parent, attributes=attributes)
        for decision in decisions:
            pod = tracer.pod(decision.uid)
            reason = refused.get(decision.uid, "")
            if pod.sampled or reason:
                tracer.record(
                    "assume",
                    tracer.child(pod),
                    begun.at,
                    now,
                    parent=pod,
                    attributes={
                        "pod": decision.key,
                        "node": decision.node,
                    },
                    links=[context],
                    failed=reason,
                )


def _id(commit: Commit) -> tuple[int, int]:
    return commit.epoch, commit.round
