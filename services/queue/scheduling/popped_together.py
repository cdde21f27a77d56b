"""Pods that leave the queue together."""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from msgspec.structs import replace

from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.messages.queue import Gang
from shared.model.objects import encode_msgpack


class PoppedTogether(NamedTuple):
    """Pods to hand out next to each other; `gang` is None if the first goes by itself.

    `numbers`: of a gang that is a tree, the number of each pod's group in it.
    """

    pods: list[QueuedPodInfo]
    gang: Gang | None = None
    numbers: tuple[int, ...] = ()

    def gangs(self) -> Iterator[Gang | None]:
        """What to say of each pod; what the groups of a tree are is said once for all."""
        if self.gang is None or not self.gang.groups:
            yield from repeat(self.gang, len(self.pods))
            return
        one = replace(self.gang, groups=())
        for number in self.numbers:
            yield replace(one, group=number)

    @property
    def size(self) -> int:
        """Bytes that they take in a batch, about."""
        groups = () if self.gang is None else self.gang.groups
        return sum(len(info.body) for info in self.pods) + (len(encode_msgpack(groups)) if groups else 0)
