"""Cycle's side of the queue: pulls pods while there is room for them, and tells what became of them.

Both are repeated under the same number until they are answered; the queue does the same thing once.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from shared.bus import Bus, NoAnswer, subjects
from shared.errors import ProtocolError
from shared.messages.queue import TAKE_PATIENCE, Batch, Outcome, Outcomes, Received, Take

FEWEST_HELD = 32
"""So many pods are fetched ahead at least: asking for each one by itself would cost a round trip a pod."""
ANSWER_PATIENCE = 1.0
GATHERING = 0.01
"""Seconds between two reports of outcomes."""
PAUSE = 0.1
"""Seconds before the same is asked again, where nobody has answered."""
MOST_BYTES = 4 << 20
"""Of messages to owners in one report, half of what a message may hold."""
LONGEST_MESSAGE = 1 << 16
"""Characters that the owner of a pod is told; the rest nobody would read."""
CUT = " ..."
MOST_BYTES_A_CHARACTER = 4
SMALL_OUTCOME = 1 << 11
"""Bytes; names are not longer."""

M = TypeVar("M", Batch, Received)


class Feed:
    def __init__(
        self,
        bus: Bus,
        epoch: int,
        round_size: int,
        held: Callable[[], int],
        take: Callable[[Batch], None],
        refuse: Callable[[ProtocolError], None],
    ) -> None:
        """`held`: how many pods wait for an outcome. While one round runs, the next one is fetched.

        `refuse` is told of what an older queue says.
        """
        self._bus = bus
        self._epoch = epoch
        self._most = max(2 * round_size, FEWEST_HELD)
        self._held = held
        self._take = take
        self._refuse = refuse
        self._queue_epoch = 0
        self._outcomes: list[Outcome] = []
        self._told = asyncio.Event()
        self._room = asyncio.Event()
        self._all_told = asyncio.Event()
        self._all_told.set()

    def tell(self, outcome: Outcome) -> None:
        if len(outcome.message) > LONGEST_MESSAGE:
            outcome = replace(outcome, message=outcome.message[: LONGEST_MESSAGE - len(CUT)] + CUT)
        self._outcomes.append(outcome)
        self._all_told.clear()
        self._told.set()
        self._room.set()

    async def pull(self) -> None:
        number = 0
        while True:
            while (room := self._most - self._held()) < self._most // 2:
                self._room.clear()
                await self._room.wait()
            number += 1
            take = Take(self._epoch, number, room)
            batch = await self._ask(subjects.QUEUE_TAKE, take, Batch, TAKE_PATIENCE + ANSWER_PATIENCE, self._all_told)
            if (batch.epoch, batch.number) == (self._epoch, number) and batch.pods:
                self._take(batch)

    async def report(self) -> None:
        number = 0
        while True:
            await self._told.wait()
            self._told.clear()
            number += 1
            outcomes = self._next_outcomes()
            await self._ask(subjects.QUEUE_OUTCOMES, Outcomes(self._epoch, number, outcomes), Received, ANSWER_PATIENCE)
            if self._outcomes:
                self._told.set()
            else:
                self._all_told.set()
            await asyncio.sleep(GATHERING)

    def _next_outcomes(self) -> list[Outcome]:
        """As many as fit into a message."""
        size, count = 0, 0
        for outcome in self._outcomes:
            size += SMALL_OUTCOME + MOST_BYTES_A_CHARACTER * len(outcome.message)
            if count and size > MOST_BYTES:
                break
            count += 1
        outcomes, self._outcomes = self._outcomes[:count], self._outcomes[count:]
        return outcomes

    async def all_told(self) -> None:
        """Returns when every outcome has arrived; `report` runs meanwhile."""
        await self._all_told.wait()

    async def _ask(
        self, subject: str, message: Take | Outcomes, reply: type[M], timeout: float, first: asyncio.Event | None = None
    ) -> M:
        """Until there is an answer of the newest queue. After a failure `first` is waited for.

        A queue that has been started anew is to hear of outcomes before it hands out the same pods again.
        """
        while True:
            try:
                answer = await self._bus.request(subject, message, reply, timeout=timeout)
                if self._is_of_newest(answer):
                    return answer
            except (NoAnswer, ProtocolError):  # counted by the bus
                pass
            await asyncio.sleep(PAUSE)
            if first is not None:
                await first.wait()

    def _is_of_newest(self, answer: Batch | Received) -> bool:
        epoch = answer.sender_epoch
        if 0 < epoch < self._queue_epoch:
            what = f"{type(answer).__name__} {answer.number} of the queue of epoch {epoch}, now {self._queue_epoch}"
            self._refuse(ProtocolError(what))
            return False
        self._queue_epoch = max(self._queue_epoch, epoch)
        return True
