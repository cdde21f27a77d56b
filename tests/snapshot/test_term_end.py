"""What a term leaves behind: nothing, if binders tell of their orders or all of them end."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch.order_dispatcher import OrderDispatcher
from services.snapshot.dispatch.term_end import TermEnd
from services.snapshot.events import Effect, Event, Fence, LookedUp, NodeSeen
from shared.messages.binding import BinderBeat
from shared.messages.queue import ForgottenPod
from shared.runtime.stopping import SNAPSHOT_FENCES, SNAPSHOT_WORDS
from testing.simulation.loop import VirtualLoop
from tests.rounds.support import failed, finished, reassigned
from tests.store.support import commit, small_node


class Term:
    """Pods `a`, `b` and `c` are assumed. What the core wants done is only noted; fences succeed if `fencing`."""

    def __init__(self, epoch: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.core = SnapshotCore(epoch)
        self.dispatcher = OrderDispatcher(self.core.order)
        self.settling = TermEnd(self.core, self.dispatcher, self.feed, self.loop.time)
        self.fencing = True
        self.fenced: list[str] = []
        self.forgotten: list[str] = []
        self.feed(NodeSeen(small_node("n")))
        wanted = commit(self.core, 1, [(uid, "n") for uid in "abc"])
        self.feed(replace(wanted, decisions=[reassigned(decision, version="7") for decision in wanted.decisions]))

    def feed(self, event: Event) -> None:
        self.carry_out(self.core.handle(event, self.loop.time()))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Fence(uid=uid, attempt=attempt, version=version):
                    self.fenced.append(uid)
                    if self.fencing:
                        self.loop.call_later(0.1, self.feed, LookedUp(uid, attempt, None, version=version))
                case ForgottenPod(uid=uid):
                    self.forgotten.append(uid)

    def beat(self, room: int, *, gone: bool = False) -> None:
        self.dispatcher.on_beat(BinderBeat("b1", "x", room, gone=gone), self.loop.time())

    def send(self) -> None:
        """All three go to a binder."""
        self.beat(100)
        sends = self.dispatcher.dispatch([(e.uid, e.attempt) for e in self.core.ledger.values()], self.loop.time())
        assert sum(len(orders) for _, orders in sends) == 3

    def attempt(self, uid: str) -> int:
        return self.core.ledger[uid].attempt

    async def settle(self) -> float:
        """How long it took."""
        began = self.loop.time()
        await self.settling.run()
        return self.loop.time() - began


def on_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(test)


def test_orders_that_were_never_sent_are_void_at_once() -> None:
    async def test() -> None:
        term = Term()
        assert not term.settling.settled
        assert await term.settle() == 0.0
        assert term.settling.settled
        assert term.forgotten == ["a", "b", "c"] and not term.fenced

    on_virtual_time(test())


def test_an_order_of_an_earlier_term_may_be_with_a_binder() -> None:
    async def test() -> None:
        before = Term()
        term = Term(2)
        term.core = SnapshotCore(2, before.core.ledger.values())
        term.core.begin(term.loop.time())
        term.settling = TermEnd(term.core, term.dispatcher, term.feed, term.loop.time)
        await term.settle()
        assert sorted(term.fenced) == ["a", "b", "c"] and term.settling.settled

    on_virtual_time(test())


def test_the_reports_of_binders_are_waited_for() -> None:
    async def test() -> None:
        term = Term()
        term.send()
        for uid in "ab":
            term.loop.call_later(0.2, term.feed, finished(uid, term.attempt(uid)))
        term.loop.call_later(0.3, term.feed, failed("c", term.attempt("c"), "no", version="7"))
        assert 0.3 <= await term.settle() < 0.4
        assert term.settling.settled and not term.fenced
        assert term.forgotten == ["c"]

    on_virtual_time(test())


@pytest.mark.parametrize("gone", [True, False])
def test_open_attempts_are_fenced_if_all_binders_end(gone: bool) -> None:
    async def test() -> None:
        term = Term()
        term.send()
        term.loop.call_later(0.1, term.feed, finished("a", term.attempt("a")))
        term.loop.call_later(0.2, lambda: term.beat(0, gone=gone))
        assert await term.settle() < SNAPSHOT_WORDS + 0.2
        assert term.fenced == ["b", "c"] and term.settling.settled

    on_virtual_time(test())


def test_attempts_of_binders_that_stay_are_left_to_the_next_term() -> None:
    """It would restart its waits for permits."""

    async def test() -> None:
        term = Term()
        term.send()
        assert await term.settle() < SNAPSHOT_WORDS + 0.1
        assert not term.fenced and not term.settling.settled

    on_virtual_time(test())


def test_an_api_server_that_is_away_is_not_waited_for_long() -> None:
    async def test() -> None:
        term = Term()
        term.send()
        term.beat(0, gone=True)
        term.fencing = False
        assert await term.settle() < SNAPSHOT_WORDS + SNAPSHOT_FENCES + 0.1
        assert not term.settling.settled

    on_virtual_time(test())
