"""Carries out the core's effects, in order: what must be durable is written before binders or the queue get anything.

Workers and cycle get messages at once, but for the answer that confirms a cycle's epoch. If what these say is lost, a
new term begins: the workers reload its state, and the queue learns which pods are assumed in it, so that the others
are decided again.

Writes that wait are made together: the busier the snapshot, the less a decision costs. If the state in Redis is lost,
or too much waits for it, a new term begins with the whole state, which includes what waited to be written.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.events import (
    AcknowledgeBinder,
    CommitFault,
    DispatchOrders,
    Effect,
    RecallAttempts,
    Reply,
    WorkerFault,
)
from services.snapshot.state.published import Published
from services.snapshot.store.terms import Terms
from shared.messages.queue import ForgottenPod
from shared.messages.state import Delta, Heartbeat, ObjectUpserted, OthersChanged, Outdated
from shared.store.schema import Persist, encode

GATHER_SECONDS = 0.005
"""Seconds between two writes: each costs a round trip, however little it writes."""
LATEST = 0.1
"""Seconds after which ends of attempts are written without anything else: nothing waits for them, so they go with the
next decisions."""
MAX_WAITING = 1 << 14
"""Effects that may wait while Redis is away; beyond that, the whole state is written once it is back."""
MAX_BATCH = 1 << 9
"""Effects that are carried out together: Redis serves no other client while it writes."""

MAX_BATCH_BYTES = 32 << 20
"""Of ledger entries and objects that are written together, unless one decision has more. Redis closes a connection that
sends it a gigabyte."""
UNMEASURED = 16
"""Effects that are written together without being measured, as usual."""


class EffectWriter:
    def __init__(
        self,
        core: SnapshotCore,
        terms: Terms,
        shard_count: int,
        carry_out: Callable[[Effect], None],
        new_term: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`new_term` is called when a new term has begun, in which orders of earlier terms are void."""
        self._core = core
        self._terms = terms
        self._shard_count = shard_count
        self._carry_out = carry_out
        self._new_term = new_term
        self._clock = clock
        self._waiting: list[Effect] = []
        self._wake = asyncio.Event()
        self._write_after = 0.0
        self._latest: asyncio.TimerHandle | None = None
        self._restate = False

    @property
    def waiting(self) -> int:
        """Effects that are not carried out."""
        return len(self._waiting)

    def add(self, effect: Effect) -> None:
        if _goes_out_at_once(effect):
            self._carry_out(effect)
            return
        self._waiting.append(effect)
        if not _can_wait(effect):
            self._wake.set()
        elif self._latest is None:
            self._latest = asyncio.get_running_loop().call_later(LATEST, self._wake.set)
        if len(self._waiting) > MAX_WAITING:
            self._waiting = _valid_in_any_term(self._waiting)
            self._restate = True

    async def begin(self, published: Published | None = None) -> None:
        """Begins the term, or a later one: writes the whole state.

        `published`: how it differs from that of the term before, which this one continues.
        """
        if published is None or not await self._go_on(published):
            while not await self._terms.begin(self._core, self._shard_count):
                await self._take_term()
        # The queue gets the pods that earlier terms have forgotten before those that are assumed in this term.
        waiting, self._waiting = self._waiting, []
        for effect in waiting:
            if isinstance(effect, ForgottenPod):
                self._carry_out(effect)
            else:
                self._waiting.append(effect)
        self._new_term()
        self._carry_out(self._core.heartbeat())
        for effect in self._core.begin(self._clock()):
            self.add(effect)

    async def _go_on(self, published: Published) -> bool:
        """Workers hear that this term goes on from theirs before they hear of any change in it."""
        epoch, seq = published.position
        self._carry_out(replace(self._core.heartbeat(), after_epoch=epoch, after_seq=seq))
        deltas = published.catch_up()
        for delta in deltas:
            self._carry_out(delta)
        return await self._terms.go_on(self._core, self._shard_count, deltas, published.nodes_before(deltas))

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            if (pause := self._write_after - self._clock()) > 0:
                await asyncio.sleep(pause)
            if self._restate or not await self._write():
                await self._take_term()
                await self.begin()
            else:
                self._write_after = self._clock() + GATHER_SECONDS

    async def finish(self) -> None:
        """After `run` was cancelled: writes what waits, unless that takes a new term."""
        while self._waiting and not self._restate and await self._write():
            pass

    async def _write(self) -> bool:
        """Writes and carries out the first batch that waits. Returns False if the state in Redis is lost.

        If this is cancelled, it is unknown whether the batch is written, so it goes on waiting.
        """
        number = _first_batch(self._waiting)
        effects, self._waiting = self._waiting[:number], self._waiting[number:]
        if not self._waiting:
            self._wake.clear()
        if self._latest is not None:
            self._latest.cancel()
            self._latest = None
        persists = [effect for effect in effects if isinstance(effect, Persist)]
        written = False
        try:
            written = not persists or await self._terms.write(persists)
        finally:
            if not written:
                self._waiting = effects + self._waiting
                self._wake.set()
        if not written:
            return False
        for effect in effects:
            if not isinstance(effect, Persist):
                self._carry_out(effect)
        return True

    async def _take_term(self) -> None:
        await self._terms.take()
        # Nothing may be awaited from here on until the state is copied: later effects are of the new term.
        self._core.restate(self._terms.epoch)
        self._waiting = _valid_in_any_term(self._waiting)
        self._restate = False


def _first_batch(effects: Sequence[Effect]) -> int:
    """How many of these are carried out together."""
    room = MAX_BATCH_BYTES
    for at, effect in enumerate(effects[:MAX_BATCH] if len(effects) > UNMEASURED else ()):
        room -= _size_of(effect) if isinstance(effect, Persist) else 0
        if room < 0 and at:
            return at
    return MAX_BATCH


def _size_of(persist: Persist) -> int:
    """The bytes of its ledger entries with volumes or devices, and of its objects; the rest is small."""
    size = sum(len(encode(each)) for each in persist.ledger if each.assignment.devices or each.assignment.volumes)
    changes = () if persist.delta is None else persist.delta.changes
    return size + sum(len(encode(each.object)) for each in changes if isinstance(each, ObjectUpserted))


def _goes_out_at_once(effect: Effect) -> bool:
    if isinstance(effect, Reply):
        return not effect.durable
    return isinstance(effect, Delta | Heartbeat | OthersChanged | Outdated | WorkerFault | CommitFault)


def _can_wait(effect: Effect) -> bool:
    """If it is lost, a new term learns of it from the watch."""
    match effect:
        case AcknowledgeBinder():
            return True
        case Persist(delta=None, ledger=(), answer=None):
            return bool(effect.settled)
    return False


def _valid_in_any_term(effects: Iterable[Effect]) -> list[Effect]:
    """Without those that a new term replaces. A cycle whose commit is not answered sends it again."""
    return [effect for effect in effects if not isinstance(effect, Persist | DispatchOrders | RecallAttempts | Reply)]
