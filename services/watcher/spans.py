"""Traces of pods begin here: each time the stream tells of one that waits, how long it took to be told."""

from collections.abc import Iterable

from shared.messages.watch import PodChange, WatchBeat, Watched
from shared.telemetry.tracing import Tracer


class WatchSpans:
    def __init__(self, tracer: Tracer, schedulers: frozenset[str]) -> None:
        self._tracer = tracer
        self._schedulers = schedulers

    def told(self, messages: Iterable[Watched | WatchBeat], began: float, now: float) -> None:
        """From `began`, when the pods in these messages were read, until `now`, when the bus has them."""
        if not self._tracer.enabled:
            return
        for message in messages:
            for change in message.changes if isinstance(message, Watched) else ():
                if isinstance(change, PodChange) and self._waits(change):
                    self._record(change, began, now)

    def _waits(self, change: PodChange) -> bool:
        gone = change.gone or change.finished
        return not gone and not change.node and change.scheduler in self._schedulers

    def _record(self, change: PodChange, began: float, now: float) -> None:
        pod = self._tracer.pod(change.uid)
        if pod.sampled:
            attributes = {"pod": f"{change.namespace}/{change.name}"}
            span = self._tracer.child(pod)
            self._tracer.record("watch", span, began, now, parent=pod, attributes=attributes)
