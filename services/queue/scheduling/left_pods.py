"""Remembers for a while how pods that left the queue went through it, for those who ask later. Bounded by number."""

from typing import NamedTuple

from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.bounded import BoundedDict

MAX_LEFT = 8192
"""Pods that left, the last of each name: some 5 MiB."""


class LeftPod(NamedTuple):
    """`created`: as the API server wrote it. `transitions`: as of QueuedPodInfo, the last one is that it left."""

    uid: str
    created: str | None
    attempts: int
    transitions: tuple[float | str, ...]


class LeftPods:
    def __init__(self, most: int = MAX_LEFT) -> None:
        self._left: BoundedDict[tuple[str, str], LeftPod] = BoundedDict(most)

    def record(self, info: QueuedPodInfo) -> None:
        meta = info.pod.metadata
        self._left[meta.namespace, meta.name] = LeftPod(
            info.uid, meta.creation_timestamp, info.attempts, info.transitions
        )

    def of(self, namespace: str, name: str) -> LeftPod | None:
        return self._left.get((namespace, name))
