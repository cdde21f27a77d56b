"""Asks the snapshot whether nominations stand: one message at a time, with all that was asked since the last one.

So each question is put after the call that needs its answer, and many calls at once cost few messages.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from shared.bus import Bus
from shared.bus.subjects import SNAPSHOT_NOMINATED
from shared.errors import FlotillaError
from shared.messages.binding import Evict, IsNominated, Nominated, NominationOf

ANSWER_TIMEOUT = 1.0
"""Seconds for the snapshot to answer; then the calls that have asked have failed, and are retried."""
MAX_QUESTIONS = 64
"""Questions in one message."""
MAX_VICTIMS = 1 << 12
"""Victims that the questions of one message name; a question with more goes alone."""


class Answer(NamedTuple):
    """Whether the nomination stands, says the snapshot of this epoch."""

    epoch: int
    stands: bool


class _Question(NamedTuple):
    asked: NominationOf
    answer: asyncio.Future[Answer]


class NominationChecks:
    """A caller asks one question at a time, so no more wait than there are callers."""

    def __init__(self, bus: Bus, failed: Callable[[BaseException], None]) -> None:
        self._bus = bus
        self._failed = failed
        self._waiting: list[_Question] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, evict: Evict) -> Answer:
        """Whether the nomination stands, with these victims; FlotillaError if the snapshot does not say."""
        victims = [victim.uid for victim in evict.victims]
        question = _Question(
            NominationOf(evict.uid, evict.attempt, evict.node, victims), asyncio.get_running_loop().create_future()
        )
        self._waiting.append(question)
        if self._asking is None:
            self._asking = asyncio.create_task(self._work())
            self._asking.add_done_callback(self._ended)
        return await question.answer

    async def close(self) -> None:
        """Callers are cancelled before."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _work(self) -> None:
        """Clears `_asking` itself: a question that comes before the done callback runs must start a new task."""
        try:
            while together := self._take():
                await self._put(together)
        finally:
            self._asking = None

    def _take(self) -> list[_Question]:
        """The next questions, without those whose caller has given up."""
        waiting = [question for question in self._waiting if not question.answer.done()]
        count = victims = 0
        for question in waiting[:MAX_QUESTIONS]:
            victims += len(question.asked.victims)
            if count and victims > MAX_VICTIMS:
                break
            count += 1
        self._waiting = waiting[count:]
        return waiting[:count]

    async def _put(self, together: list[_Question]) -> None:
        """What the snapshot does not answer, as one of the last release answers the first only, is asked again."""
        first, *more = (question.asked for question in together)
        asked = IsNominated(first.uid, first.attempt, first.node, first.victims, more)
        try:
            nominated = await self._bus.request(SNAPSHOT_NOMINATED, asked, Nominated, timeout=ANSWER_TIMEOUT)
        except FlotillaError as cause:
            for question in together:
                if not question.answer.done():
                    question.answer.set_exception(cause)
            return
        answers = [nominated.stands, *nominated.more][: len(together)]
        self._waiting[:0] = together[len(answers) :]
        for question, stands in zip(together, answers, strict=False):
            if not question.answer.done():
                question.answer.set_result(Answer(nominated.epoch, stands))

    def _ended(self, asking: asyncio.Task[None]) -> None:
        cause = None if asking.cancelled() else asking.exception()
        if cause is not None:
            self._failed(cause)
