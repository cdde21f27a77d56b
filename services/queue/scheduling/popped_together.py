"""Pods that leave the queue together."""

from collections.abc import Iterator
from typing import NamedTuple

from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.messages.queue import Gang


class PoppedTogether(NamedTuple):
    """Pods to hand out next to each other; `gang` is None if the first goes by itself.

    `numbers`: of a gang that is a tree, the number of each pod's group in it.
    """

    pods: list[QueuedPodInfo]
    gang: Gang | None = None
    numbers: tuple[int, ...] = ()

    def gangs(self) -> Iterator[Gang | None]:
        """What to say of each pod, without what the batch says once of its gang."""
        gang = self.gang
        for number in self.numbers or (0,) * len(self.pods):
            yield None if gang is None else Gang(gang.key, gang.least, group=number)
