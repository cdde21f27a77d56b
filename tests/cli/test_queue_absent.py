"""flotilla queue: pods that are not pending here, what plugins without events wait for, and groups over NATS."""

import json
from copy import copy

import pytest

from flotilla.events import ANY_EVENT as WITHOUT_EVENTS
from services.queue.core import QueueCore
from services.queue.events import PodBound, PodPending
from services.queue.introspection import ANY_EVENT, Introspection, awaited_events, describe
from services.queue.scheduling.queued_pod_info import PodState
from services.snapshot.introspection import find_pod, measure_nodes
from shared.bus import Envelope
from shared.bus.subjects import SNAPSHOT_LIST
from shared.framework.clusterevents import completed
from shared.messages.inspection import FindPod, ListQueue, MeasureNodes
from testing.builders import pod
from tests.bus.support import a_bus
from tests.cli.held import Held
from tests.cli.operating import Operator
from tests.cli.test_queue import FRAMEWORK, NOW, Waiting, a_queue, an_info
from tests.servers import nats_server
from tools.cli.queue_listing import row


@pytest.mark.asyncio
async def test_a_pod_that_is_not_pending_is_looked_for(operator: Operator) -> None:
    held = Held("node-1")
    held.put("placed", "node-1")
    held.assume("decided", "node-1")

    def find(asked: FindPod, envelope: Envelope) -> None:
        envelope.respond(find_pod(asked, held.cluster))

    waiting = Waiting(foreign={"shop/other": "their-scheduler"})
    async with nats_server() as server, a_queue(server, waiting), a_bus(server) as bus:
        await bus.subscribe(SNAPSHOT_LIST, FindPod, find)
        operator.reaches(server)
        told = {name: await operator.types("queue", f"shop/{name}") for name in ("placed", "decided", "other", "gone")}
        assert {(said.code, said.out) for said in told.values()} == {(1, "")}
        assert "it is on node node-1" in told["placed"].err
        assert "it is being bound to node node-1" in told["decided"].err
        assert "its schedulerName is their-scheduler, and the profiles are default-scheduler" in told["other"].err
        assert "on no node: it does not exist, has finished, or cannot be read" in told["gone"].err


@pytest.mark.asyncio
async def test_reasons_are_grouped_over_nats(operator: Operator) -> None:
    held = Held("node-1")

    def measure(asked: MeasureNodes, envelope: Envelope) -> None:
        envelope.respond(measure_nodes(held.cluster))

    big = an_info(pod("big").request(cpu=8), PodState.UNSCHEDULABLE)
    big.last_failure, big.failed_at = "0/1 nodes are available: 1 Insufficient cpu.", 990.0
    async with nats_server() as server, a_queue(server, Waiting(big)), a_bus(server) as bus:
        await bus.subscribe(SNAPSHOT_LIST, MeasureNodes, measure)
        operator.reaches(server)
        assert (await operator.types("queue", "--group-by", "reason")).lines == [
            "1 pod: Insufficient cpu; it asks for 8 cpu, the largest node has 4, no node has more than 4 free"
        ]
        (found,) = json.loads((await operator.types("queue", "--group-by", "reason", "-o", "json")).out)
        assert (found["pods"], found["asks"]["cpu"]) == (1, 8000)


def test_a_core_remembers_pending_pods_of_other_schedulers() -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    theirs = pod("a", "shop").scheduler("theirs").build()
    core.handle(PodPending(theirs, NOW), NOW)
    answer = Introspection(core).answer(ListQueue(namespace="shop", name="a"), NOW)
    assert (answer.pods, answer.foreign, answer.schedulers) == ([], "theirs", [FRAMEWORK.name])
    core.handle(PodBound(theirs.uid), NOW)
    assert Introspection(core).answer(ListQueue(namespace="shop", name="a"), NOW).foreign == ""


def test_a_plugin_that_registers_nothing_waits_for_any_event() -> None:
    info = an_info(pod("a"), PodState.UNSCHEDULABLE)
    info.framework = copy(FRAMEWORK)
    info.framework.registrations = {"Silent": completed(WITHOUT_EVENTS)}
    info.unschedulable_plugins = ("Silent",)
    assert awaited_events(info) == (ANY_EVENT,)


def test_a_held_member_of_a_gang_waits_for_the_others() -> None:
    info = an_info(pod("m"), PodState.GATED)
    info.gating_plugin = "GangScheduling"
    assert awaited_events(info) == ()
    assert row(describe(info, ""), NOW)[5] == "other pods of its group"
