"""Snapshot: orders without a word, pods that finished unseen, look-ups that pile up, what is told before it is safe."""

import asyncio
import logging

import msgspec
import pytest

from services.binder.events import Call, Orders, Unknown, Where
from services.binder.events import LookUp as BinderLookUp
from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch import Dispatcher
from services.snapshot.events import Forgot, LookedUp, LookUp, NodeGone, NodeSeen, Tick
from services.snapshot.ledger import BINDING_DEADLINE
from services.snapshot.lookups import LookUps, outcome
from shared.cluster.load import load_of
from shared.messages.binding import BinderBeat, BindingOrders
from shared.messages.state import Commit, Decision
from shared.model.objects import Pod
from tests.binder.support import Script as Binder
from tests.binder.support import only
from tests.bus.support import a_telemetry
from tests.rounds.support import small_node, small_pod


def test_orders_whose_deadline_has_passed_do_not_take_a_binders_room_for_ever() -> None:
    """The API server is away for longer than the deadline: the binder leaves such orders and says nothing of them."""
    dispatcher, binder = Dispatcher(), Binder()
    start = binder.now
    dispatcher.beat(BinderBeat("b", "i", 2), start)
    orders = [binder.an_order(f"p{n}", n) for n in (1, 2)]
    for _, given in dispatcher.give(orders, start):
        for call in only(Call, binder.handle(Orders(BindingOrders(1, given)))):
            (look_up,) = only(BinderLookUp, binder.answer(call, Unknown("no answer")))
            binder.found(look_up, Where.UNKNOWN)
    now = start
    while now < start + 600.0:
        now += 0.25
        binder.pass_time(now - binder.now)
        for message in binder.reports():
            for told in message.outcomes:
                dispatcher.word("b", told, now)
        sends = dispatcher.beat(BinderBeat("b", "i", 2), now) + dispatcher.tick(now)
        for _, given in sends:
            binder.handle(Orders(BindingOrders(1, given)))
    assert binder.core.held == 0
    new = msgspec.structs.replace(binder.an_order("q", 9), deadline=now + 30.0)
    assert dispatcher.give([new], now), f"{dispatcher.held} orders are held by a binder that has none"


def committed(core: SnapshotCore, name: str = "p") -> None:
    pod = small_pod(name)
    core.handle(NodeSeen(small_node("a")), 0.0)
    decision = Decision(pod.uid, "default", name, "default-scheduler", "a", 0, core.seq)
    core.handle(Commit(1, 1, [load_of(pod)], [decision]), 0.0)


def test_a_pod_that_finished_while_no_snapshot_ran_gives_its_place_back() -> None:
    """A listing leaves finished pods out, so only the look-up can tell; it says on which node the pod is, as before."""
    before = SnapshotCore(1)
    committed(before)
    core = SnapshotCore(2, before.ledger.values(), before.answer)
    core.handle(NodeSeen(small_node("a")), 0.0)
    core.begin(0.0)
    # The API server still has the pod, phase Succeeded, spec.nodeName "a":
    finished = msgspec.structs.replace(
        small_pod("p"),
        spec=msgspec.structs.replace(small_pod("p").spec, node_name="a"),
        status=msgspec.structs.replace(small_pod("p").status, phase="Succeeded"),
    )
    for attempt in range(1, 20):
        for effect in core.handle(Tick(), attempt * BINDING_DEADLINE):
            assert isinstance(effect, LookUp)
            core.handle(outcome(effect, finished), 1.0)
    assert core.counts()["pods"] == 0


@pytest.mark.asyncio
async def test_one_look_up_a_pod_is_under_way_at_a_time() -> None:
    """The API server is away for ten minutes; each look-up stays with the shell until it is answered."""
    core = SnapshotCore(1)
    committed(core)
    asked: list[str] = []
    answered: asyncio.Future[Pod | None] = asyncio.get_running_loop().create_future()
    told: list[LookedUp] = []

    async def get_pod(namespace: str, name: str) -> Pod | None:
        asked.append(name)
        return await answered

    look_ups = LookUps(get_pod, told.append, logging.getLogger("test"), a_telemetry().fault)
    for times in range(1, 21):
        for effect in core.handle(Tick(), times * BINDING_DEADLINE):
            assert isinstance(effect, LookUp)
            look_ups.begin(effect)
    answered.set_result(None)
    while not told:
        await asyncio.sleep(0)
    look_ups.close()
    assert asked == ["p"]
    assert [found.gone for found in told] == [True]


def test_what_the_watch_says_again_of_a_node_changes_nothing() -> None:
    """A kubelet reports now and then; only resourceVersion and annotations differ."""
    core = SnapshotCore(1)
    node = small_node("a")
    core.handle(NodeSeen(node), 0.0)
    later = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, resource_version="77"))
    assert core.handle(NodeSeen(later), 1.0) == []


def test_an_order_that_is_given_twice_is_held_once() -> None:
    """A commit that comes while a term begins is dispatched by itself, and again with all that stands in the ledger."""
    dispatcher, binder = Dispatcher(), Binder()
    order = binder.an_order()
    for name in ("one", "two"):
        dispatcher.beat(BinderBeat(name, "i", 10), 0.0)
    dispatcher.give([order], 0.0)
    dispatcher.give([order], 0.0)
    assert dispatcher.held == 1
    dispatcher.tick(100.0)  # both are lost: KeyError, and the snapshot's process ends


def test_a_new_term_forgets_no_pod_whose_binding_may_be_under_way() -> None:
    """Its node is gone at that moment, and comes back by the same name a moment later; the binding lands meanwhile."""
    core = SnapshotCore(1)
    committed(core)
    core.handle(NodeGone("a"), 1.0)
    core.restate(2)
    effects = core.begin(1.0)
    assert not [effect for effect in effects if isinstance(effect, Forgot)]
