"""Requests under way: who waits for which answer. All answers come to one inbox of this process."""

import asyncio
import itertools
from typing import NamedTuple

from nats.aio.msg import Msg

from shared.bus.errors import NoAnswer, Silence

STATUS_HEADER = "Status"
NOBODY = "503"
"""What NATS itself answers where nobody has subscribed."""


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
        """Where the answer is to go, and the answer; or NoAnswer, once the time is over."""
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
            return  # too late, or doubled
        if not msg.data and msg.headers and msg.headers.get(STATUS_HEADER) == NOBODY:
            _fail(request.subject, request.answer, Silence.NOBODY_LISTENS)
        else:
            request.answer.set_result(msg)

    def fail(self) -> None:
        """The connection is lost; nothing that waits will be answered."""
        for request in self._waiting.values():
            _fail(request.subject, request.answer, Silence.NOT_CONNECTED)


def _fail(subject: str, answer: asyncio.Future[Msg], silence: Silence) -> None:
    if not answer.done():
        answer.set_exception(NoAnswer(subject, silence))
