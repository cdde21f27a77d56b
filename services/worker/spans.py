"""Traces of evaluations: a child of the round that asked."""

from dataclasses import dataclass

from shared.messages.rounds import Proposals, Propose
from shared.telemetry.tracing import TraceContext, Tracer


@dataclass(slots=True)
class _Begun:
    id: tuple[int, int, int]
    parent: TraceContext | None
    classes: int
    at: float


class EvaluationSpans:
    """Only the newest ask is ever answered."""

    def __init__(self, tracer: Tracer, worker: str) -> None:
        self._tracer = tracer
        self._worker = worker
        self._begun: _Begun | None = None

    def begin(self, propose: Propose, parent: TraceContext | None, now: float) -> None:
        self._begun = _Begun((propose.epoch, propose.round, propose.ask), parent, len(propose.classes), now)

    def end(self, answer: Proposals, now: float) -> float:
        """How many seconds it took."""
        begun = self._begun
        if begun is None or begun.id != (answer.epoch, answer.round, answer.ask):
            return 0.0
        self._begun = None
        if self._tracer.enabled and begun.parent is not None:
            failed = next((a.failure.message for a in answer.answers if a.failure is not None), "")
            self._tracer.record(
                "evaluate",
                self._tracer.child(begun.parent),
                begun.at,
                now,
                parent=begun.parent,
                attributes={"worker": self._worker, "shards": len(answer.shards), "classes": begun.classes},
                failed=failed,
            )
        return now - begun.at
