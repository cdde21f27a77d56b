"""Outbox: sends in order, bounded, without waiting for a connection: to subscriptions of this process, and to NATS."""

import re
from functools import lru_cache

from shared.bus.link import Link
from shared.bus.local import Reach
from shared.bus.metrics import BusMetrics
from shared.errors import ProtocolError

MAX_WAITING = 32 << 20
"""Pending bytes in the client; with more, messages are dropped."""
CROWDED = 4 << 20
"""Pending bytes above which `room` waits."""
MAX_SUBJECTS = 4096
"""Subjects remembered as valid."""

_PUBLISH = "HPUB"
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


class Outbox:
    def __init__(self, link: Link, metrics: BusMetrics, prefix: str) -> None:
        self._connection = link.connection
        self._client = link.connection.client
        self._local = link.local
        self._metrics = metrics
        self._prefix = prefix
        self.full_subject = lru_cache(maxsize=MAX_SUBJECTS)(self._checked)
        """The subject with the prefix; ProtocolError if it is invalid."""

    def send(self, full_subject: str, counted_as: str, headers: bytes, body: bytes, reply_to: str = "") -> Reach:
        """Drop and count the message without a connection or room. Returns who has got it in this process.

        Without a connection nothing is delivered here either: a process without NATS is cut off as a whole.
        """
        if not (self._connection.is_open and self._client.accepts(MAX_WAITING)):
            self._metrics.dropped(counted_as)
            return Reach.NOBODY
        self._metrics.sent(counted_as).count(len(body))
        reach = self._local.deliver(full_subject, headers, body, reply_to)
        if reach is not Reach.ALL:
            sizes = f"{len(headers)} {len(headers) + len(body)}"
            line = f"{_PUBLISH} {full_subject} {reply_to} {sizes}\r\n".encode()
            self._client.send(b"".join((line, headers, body, b"\r\n")))
        return reach

    async def room(self, patience: float) -> None:
        """Wait until there is room, at most `patience`."""
        if self._connection.connected and not self._client.accepts(CROWDED):
            await self._client.flushed(patience)

    def clear(self) -> None:
        """Drop all pending messages: the connection is lost, and old news is of no use."""
        for line in self._client.forget_pending(f"{_PUBLISH} ".encode()):
            self._metrics.dropped(line.split(b" ", 2)[1].decode(errors="replace").removeprefix(self._prefix))

    def _checked(self, subject: str) -> str:
        if not _SUBJECT.fullmatch(subject):
            raise ProtocolError(f"{subject!r} is not a valid subject")
        return self._prefix + subject
