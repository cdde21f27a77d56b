"""Traces of pods: how long each waited for an attempt, and its whole way from the watch to being seen bound."""

from services.queue.core import QueueCore
from services.queue.events import Ended
from shared.messages.queue import Batch
from shared.telemetry.tracing import AttributeValue, Tracer


class PodSpans:
    def __init__(self, tracer: Tracer, core: QueueCore) -> None:
        self._tracer = tracer
        self._core = core

    def taken(self, batch: Batch, now: float) -> None:
        if not self._tracer.enabled:
            return
        for queued in batch.pods:
            uid = queued.pod.uid
            root = self._tracer.pod(uid)
            since = self._core.queued_at(uid)
            if root.sampled and since is not None:
                attributes: dict[str, AttributeValue] = {"pod": queued.pod.key, "attempt": queued.attempt}
                span = self._tracer.child(root)
                self._tracer.record("queue", span, since, now, parent=root, attributes=attributes)

    def ended(self, ended: Ended) -> None:
        """A pod that was tried and deleted all the same has failed."""
        if not self._tracer.enabled:
            return
        self._tracer.record(
            "pod",
            self._tracer.pod(ended.uid),
            ended.seen_at,
            ended.ended_at,
            attributes={"pod": ended.key, "profile": ended.profile, "attempts": ended.attempts, "bound": ended.bound},
            failed="" if ended.bound or not ended.attempts else "it was deleted before it was bound",
        )
