"""Outbox: sends in order, bounded, without waiting for a connection. Requests: pending requests and their replies."""

import asyncio
import itertools
import re
from functools import lru_cache
from typing import NamedTuple

from nats.aio.msg import Msg

from shared.bus.connection import Connection
from shared.bus.metrics import BusMetrics
from shared.bus.wire import NoAnswer, Silence
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
    def __init__(self, connection: Connection, metrics: BusMetrics, prefix: str) -> None:
        self._connection = connection
        self._client = connection.client
        self._metrics = metrics
        self._prefix = prefix
        self._full_subject = lru_cache(maxsize=MAX_SUBJECTS)(self._checked)

    def send(self, subject: str, headers: bytes, body: bytes, reply_to: str = "") -> None:
        """Drop and count the message without a connection or room; ProtocolError if the subject is invalid."""
        self.send_to(self._full_subject(subject), subject, headers, body, reply_to)

    def send_to(self, full_subject: str, counted_as: str, headers: bytes, body: bytes, reply_to: str = "") -> None:
        """Like `send`, for a subject known to be valid."""
        if not self._connection.connected or self._client.pending_data_size > MAX_WAITING:
            self._metrics.dropped(counted_as)
            return
        sizes = f"{len(headers)} {len(headers) + len(body)}"
        line = f"{_PUBLISH} {full_subject} {reply_to} {sizes}\r\n".encode()
        self._client.send(b"".join((line, headers, body, b"\r\n")))
        self._metrics.sent(counted_as).count(len(body))

    async def room(self, patience: float) -> None:
        """Wait until there is room, at most `patience`."""
        if self._connection.connected and self._client.pending_data_size > CROWDED:
            await self._client.flushed(patience)

    def clear(self) -> None:
        """Drop all pending messages: the connection is lost, and old news is of no use."""
        for line in self._client.forget_pending(f"{_PUBLISH} ".encode()):
            self._metrics.dropped(line.split(b" ", 2)[1].decode(errors="replace").removeprefix(self._prefix))

    def _checked(self, subject: str) -> str:
        if not _SUBJECT.fullmatch(subject):
            raise ProtocolError(f"{subject!r} is not a valid subject")
        return self._prefix + subject


STATUS_HEADER = "Status"
NO_SUBSCRIBER = "503"
"""NATS's own reply."""


class _Request(NamedTuple):
    subject: str
    answer: asyncio.Future[Msg]
    timer: asyncio.TimerHandle


class Requests:
    def __init__(self, inbox: str) -> None:
        self.subject = f"{inbox}.*"
        self._inbox = inbox
        self._numbers = itertools.count(1)
        self._waiting: dict[str, _Request] = {}

    def begin(self, subject: str, timeout: float) -> tuple[str, asyncio.Future[Msg]]:
        """Where the reply is to go, and the future reply; it fails with NoAnswer after the timeout."""
        loop = asyncio.get_running_loop()
        reply_to = f"{self._inbox}.{next(self._numbers)}"
        answer: asyncio.Future[Msg] = loop.create_future()
        timer = loop.call_later(max(timeout, 0.0), _fail, subject, answer, Silence.TOO_LATE)
        self._waiting[reply_to] = _Request(subject, answer, timer)
        return reply_to, answer

    def end(self, reply_to: str) -> None:
        self._waiting.pop(reply_to).timer.cancel()

    async def take(self, msg: Msg) -> None:
        request = self._waiting.get(msg.subject)
        if request is None or request.answer.done():
            return  # late or duplicate
        if not msg.data and msg.headers and msg.headers.get(STATUS_HEADER) == NO_SUBSCRIBER:
            _fail(request.subject, request.answer, Silence.NO_LISTENER)
        else:
            request.answer.set_result(msg)

    def fail(self) -> None:
        """Fail all pending requests: the connection is lost."""
        for request in self._waiting.values():
            _fail(request.subject, request.answer, Silence.NOT_CONNECTED)


def _fail(subject: str, answer: asyncio.Future[Msg], silence: Silence) -> None:
    if not answer.done():
        answer.set_exception(NoAnswer(subject, silence))
