"""Requests: pending requests of a service, and their replies."""

import asyncio
import itertools
from dataclasses import dataclass

from nats.aio.msg import Msg

from shared.bus.wire import NoAnswer, Silence

STATUS_HEADER = "Status"
NO_SUBSCRIBER = "503"
"""NATS's own reply."""


@dataclass(slots=True)
class _Request:
    """`heard`: a subscription of this process has got it, of which NATS knows nothing."""

    subject: str
    answer: asyncio.Future[Msg]
    timer: asyncio.TimerHandle
    heard: bool = False


class Requests:
    def __init__(self, inbox: str) -> None:
        self.subject = f"{inbox}.*"
        self.inbox = inbox
        self._numbers = itertools.count(1)
        self._waiting: dict[str, _Request] = {}

    def begin(self, subject: str, timeout: float) -> tuple[str, asyncio.Future[Msg]]:
        """Where the reply is to go, and the future reply; it fails with NoAnswer after the timeout."""
        loop = asyncio.get_running_loop()
        reply_to = f"{self.inbox}.{next(self._numbers)}"
        answer: asyncio.Future[Msg] = loop.create_future()
        timer = loop.call_later(max(timeout, 0.0), _fail, subject, answer, Silence.TOO_LATE)
        self._waiting[reply_to] = _Request(subject, answer, timer)
        return reply_to, answer

    def end(self, reply_to: str) -> None:
        self._waiting.pop(reply_to).timer.cancel()

    def heard(self, reply_to: str) -> None:
        """A subscription of this process has got the request."""
        self._waiting[reply_to].heard = True

    async def take(self, msg: Msg) -> None:
        self.answer(msg)

    def answer(self, msg: Msg) -> None:
        request = self._waiting.get(msg.subject)
        if request is None or request.answer.done():
            return  # late or duplicate
        if not msg.data and msg.headers and msg.headers.get(STATUS_HEADER) == NO_SUBSCRIBER:
            if not request.heard:
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
