"""Snapshot: orders without a word, pods that finished unseen, look-ups that pile up, early effects."""

import asyncio
import logging
from typing import cast

import msgspec
import pytest

from services.binder.events import Call, Unknown, Where
from services.binder.events import LookUp as BinderLookUp
from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch.order_dispatcher import OrderDispatcher
from services.snapshot.dispatch.pod_lookups import PodLookUps, outcome
from services.snapshot.events import Fence, LookedUp, NodeGone, NodeSeen, Tick
from services.snapshot.state.ledger import BINDING_WINDOW, FENCE_GRACE
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import ObservedPod
from shared.kube.outcome import CallResult
from shared.messages.binding import BinderBeat, BindingOrders
from shared.messages.queue import ForgottenPod
from shared.messages.state import Assignment, BindingOrder, Commit, Decision
from shared.model.load import load_of
from shared.telemetry.fault import Fault
from shared.telemetry.metrics import Metrics
from tests.binder.support import PROFILE, only
from tests.binder.support import Script as Binder
from tests.rounds.support import reassigned, small_node, small_pod


def test_orders_whose_deadline_has_passed_do_not_take_a_binders_room_for_ever() -> None:
    """The API server is away for longer than the window: the binder leaves such orders and says nothing of them."""
    core, binder = SnapshotCore(1), Binder()
    dispatcher = OrderDispatcher(core.order)
    start = binder.now
    dispatcher.on_beat(BinderBeat("b", "i", 2), start)
    for name in ("p", "q"):
        committed(core, name, start)
    attempts = [(entry.uid, entry.attempt) for entry in core.ledger.values()]
    for _, given in dispatcher.dispatch(attempts, start):
        for call in only(Call, binder.handle(BindingOrders(1, [_known(order) for order in given]))):
            (look_up,) = only(BinderLookUp, binder.answer(call, Unknown("no answer")))
            binder.found(look_up, Where.UNKNOWN)
    now = start
    while now < start + 100.0:
        now += 0.25
        binder.pass_time(now - binder.now)
        for message in binder.reports():
            for told in message.outcomes:
                dispatcher.on_outcome(("b", "i"), told, now)
        sends = dispatcher.on_beat(BinderBeat("b", "i", 2), now) + dispatcher.tick(now)
        for _, given in sends:
            binder.handle(BindingOrders(1, [_known(order) for order in given]))
        core.handle(Tick(), now)
    assert binder.core.held == 0
    committed(core, "r", now)
    new = core.ledger[small_pod("r").uid]
    assert dispatcher.dispatch([(new.uid, new.attempt)], now), f"{dispatcher.held} are held by a binder that has none"


def _known(order: BindingOrder) -> BindingOrder:
    """For the profile that the binder has."""
    return reassigned(order, profile=PROFILE, version="7")


def committed(core: SnapshotCore, name: str = "p", now: float = 0.0) -> None:
    pod = small_pod(name)
    core.handle(NodeSeen(small_node("a")), now)
    decision = Decision(Assignment(pod.uid, "default", name, "default-scheduler", "a"), 0, core.seq)
    number = 1 if core.answer is None else core.answer.number + 1
    core.handle(Commit(1, number, [load_of(pod)], [decision]), now)


def test_a_pod_that_finished_while_no_snapshot_ran_gives_its_place_back() -> None:
    """A listing leaves finished pods out, so only the look-up can tell; it says on which node the pod is, as before."""
    before = SnapshotCore(1)
    committed(before)
    core = SnapshotCore(2, before.ledger.values(), before.answer)
    core.handle(NodeSeen(small_node("a")), 0.0)
    core.begin(0.0)
    # The API server still has the pod, phase Succeeded, spec.nodeName "a":
    finished = ObservedPod(small_pod("p").uid, "a", False, 1, [], "9", phase="Succeeded")
    for effect in core.handle(Tick(), BINDING_WINDOW + FENCE_GRACE):
        assert isinstance(effect, Fence)
        core.handle(outcome(effect, finished), 1.0)
    assert core.cluster.counts()["pods"] == 0


class SlowServer:
    """Answers on demand that there is no such pod."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def observe_pod(self, namespace: str, name: str) -> ObservedPod | None:
        self.asked.append(name)
        await self.answers.wait()
        return None

    async def patch_pod_condition(self, *_: object, **__: object) -> CallResult:
        raise AssertionError("there is nothing to patch")


@pytest.mark.asyncio
async def test_one_look_up_a_pod_is_under_way_at_a_time() -> None:
    """The API server is away for ten minutes; each look-up stays with the shell until it is answered."""
    core = SnapshotCore(1)
    committed(core)
    server = SlowServer()
    told: list[LookedUp] = []
    log = logging.getLogger("test")
    look_ups = PodLookUps(cast(KubeClient, server), told.append, log, Fault(Metrics(), log))
    for times in range(1, 21):
        for effect in core.handle(Tick(), times * (BINDING_WINDOW + FENCE_GRACE)):
            assert isinstance(effect, Fence)
            look_ups.begin(effect)
        await asyncio.sleep(0)
    server.answers.set()
    while not told:
        await asyncio.sleep(0)
    look_ups.close()
    assert server.asked == ["p"]
    assert [found.gone for found in told] == [True]


def test_a_repeated_event_of_a_node_changes_nothing() -> None:
    """A kubelet reports now and then; only resourceVersion and annotations differ."""
    core = SnapshotCore(1)
    node = small_node("a")
    core.handle(NodeSeen(node), 0.0)
    later = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, resource_version="77"))
    assert core.handle(NodeSeen(later), 1.0) == []


def test_a_new_term_forgets_no_pod_whose_binding_may_be_under_way() -> None:
    """Its node is gone at that moment, and comes back by the same name a moment later; the binding lands meanwhile."""
    core = SnapshotCore(1)
    committed(core)
    core.handle(NodeGone("a"), 1.0)
    core.restate(2)
    effects = core.begin(1.0)
    assert not [effect for effect in effects if isinstance(effect, ForgottenPod)]
