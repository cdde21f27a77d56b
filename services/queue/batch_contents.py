"""What goes into one batch: pods, and what is said of their gangs, measured as they are sent."""

from collections.abc import Sequence

from shared.messages.limits import HALF_A_MESSAGE, MAX_BODY
from shared.messages.queue import Gang, QueuedPod
from shared.model.objects import encode_msgpack

MAX_BATCH_BYTES = HALF_A_MESSAGE
"""Bytes of a batch, half of what a message may hold; larger pods and gangs go alone."""
MAX_ENTRY_BYTES = MAX_BODY - 1024
"""Bytes of a pod or gang in a batch: all that a message holds, but for what the batch says of itself."""
LONGEST_ATTEMPT = (1 << 32) - 1
"""For pods that are measured: takes as many bytes as any attempt."""


class BatchContents:
    def __init__(self) -> None:
        self.pods: list[QueuedPod] = []
        self.gangs: dict[str, Gang] = {}
        self._size = 0

    def has_room(self, gang: Gang | None, size: int) -> bool:
        """Whether pods that take so much can be added; otherwise they go with a later batch."""
        is_said = gang is not None and gang.key in self.gangs
        return not self.pods or (self._size + size <= MAX_BATCH_BYTES and not is_said)

    def add(self, pods: Sequence[QueuedPod], gang: Gang | None, size: int) -> None:
        """Adds the pods of one entry of the queue."""
        self.pods += pods
        self._size += size
        if gang is not None and gang != Gang(gang.key, gang.least):  # there is more to say than its pods have
            self.gangs[gang.key] = gang


def size_of(pods: Sequence[QueuedPod], gang: Gang | None) -> int:
    """Bytes that the pods of one entry take in a batch."""
    return len(encode_msgpack(pods)) + (len(encode_msgpack((gang.key, gang))) if gang is not None else 0)
