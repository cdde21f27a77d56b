"""Carries out what the core wants, in order: what is to be safe is safe before a binder hears of it.

Workers and cycle hear at once. Should what they were told be lost, a new term has begun: the workers begin anew with
it, and the queue is told which pods are assumed in it, so that it decides the others anew.

What waits is written together, so the busier it is the less a decision costs. Where the state in Redis is lost, or too
much waits for it, a new term begins with the whole state, and what waited to be written is part of it.
"""

import asyncio
from collections.abc import Callable, Iterable

from services.snapshot.core import SnapshotCore
from services.snapshot.events import (
    Dispatch,
    Effect,
    Misstated,
    Persist,
    Publish,
    RefuseCycle,
    Reply,
    Resume,
    WorkerFault,
)
from services.snapshot.store.terms import Terms
from shared.messages.state import Heartbeat

GATHERING = 0.005
"""Seconds between two writes: each costs a round trip, however little it writes."""
MOST_WAITING = 1 << 14
"""Effects that may wait while Redis is away; with more, the whole state is written once it is back."""
MOST_AT_ONCE = 1 << 9
"""Effects that are carried out together: Redis serves nobody else while it writes."""


class Carrier:
    def __init__(
        self,
        core: SnapshotCore,
        terms: Terms,
        shard_count: int,
        carry_out: Callable[[Effect], None],
        new_term: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`new_term` is called when orders of earlier terms are void."""
        self._core = core
        self._terms = terms
        self._shard_count = shard_count
        self._carry_out = carry_out
        self._new_term = new_term
        self._clock = clock
        self._waiting: list[Effect] = []
        self._wake = asyncio.Event()
        self._restate = False

    @property
    def waiting(self) -> int:
        """Effects that are not carried out yet."""
        return len(self._waiting)

    def add(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Publish | Reply | RefuseCycle | WorkerFault | Misstated):
                self._carry_out(effect)
            else:
                self._waiting.append(effect)
        if self._waiting:
            self._wake.set()
        if len(self._waiting) > MOST_WAITING:
            self._waiting = _told_in_any_term(self._waiting)
            self._restate = True

    async def begin(self) -> None:
        """The first term of this process: the whole state is written, and what is still assumed goes on."""
        if await self._terms.begin(self._core, self._shard_count):
            self._go_on()
        else:
            await self._begin_anew()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            if self._restate or not await self._write():
                await self._begin_anew()
            else:
                await asyncio.sleep(GATHERING)

    async def finish(self) -> None:
        """After `run` was cancelled: writes what waits, unless that takes a new term."""
        while self._waiting and not self._restate and await self._write():
            pass

    async def _write(self) -> bool:
        """The first of what waits is written and carried out; False if the state in Redis is lost.

        Until it is safe it is not forgotten: of what this is cancelled in, it is not known whether it is written.
        """
        effects, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        if not self._waiting:
            self._wake.clear()
        persists = [effect for effect in effects if isinstance(effect, Persist)]
        written = False
        try:
            written = not persists or await self._terms.write(persists)
        finally:
            if not written:
                self._waiting = effects + self._waiting
        if not written:
            return False
        for effect in effects:
            if not isinstance(effect, Persist):
                self._carry_out(effect)
        return True

    async def _begin_anew(self) -> None:
        while True:
            await self._terms.take()
            self._core.restate(self._terms.epoch)
            self._waiting = _told_in_any_term(self._waiting)
            self._restate = False
            # From here on until the state is copied nothing may be awaited: effects after it are of the new term.
            if await self._terms.begin(self._core, self._shard_count):
                break
        self._go_on()

    def _go_on(self) -> None:
        self._new_term()
        self._carry_out(Publish(Heartbeat(self._core.epoch, self._core.seq)))
        self.add(self._core.begin(self._clock()))
        if self._waiting:
            self._wake.set()


def _told_in_any_term(effects: Iterable[Effect]) -> list[Effect]:
    """Without what the whole state of a new term makes void."""
    return [effect for effect in effects if not isinstance(effect, Persist | Dispatch | Resume)]
