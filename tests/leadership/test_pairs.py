"""Two processes of each service, one of which leads: when the leader fails, the other takes over."""

import asyncio
import signal
from pathlib import Path

import pytest

from shared.bus import Bus
from shared.messages.state import Commit
from shared.messages.workers import WorkerBeat
from testing.auditor.service import Auditor
from tests.bus.support import a_bus, a_telemetry
from tests.kube.support import raw_node, raw_pod
from tests.leadership.fleet import PATIENCE, PREFIX, a_fleet, a_pipeline
from tests.leadership.terms import is_next
from tools.supervisor.options import SINGLE

pytestmark = pytest.mark.asyncio

NODES, PODS = 4, 240
PAUSE = 0.025
"""Seconds between two pods: they come for six seconds, while the leaders go."""
QUEUED = 'scheduler_pending_pods{queue="active"} 4.0'
LONG = {"duration": "60s", "deadline": "50s"}
"""Longer than any test: who takes over within one has not waited for the Lease to run out."""


async def test_every_pod_is_bound_once_while_each_leader_is_killed(tmp_path: Path) -> None:
    async with a_pipeline(tmp_path) as fleet, a_bus(fleet.nats, prefix=PREFIX) as bus:
        for number in range(NODES):
            fleet.server.store_raw("nodes", raw_node(f"n-{number}"))
        watching = Auditor.watching(fleet.api, redis_url=fleet.redis.url, bus=bus, prefix=PREFIX)
        async with watching as auditor:
            terms = {kind: fleet.term(kind) for kind in SINGLE}
            kills = {PODS // 10 * (number + 1): kind for number, kind in enumerate(SINGLE)}
            for number in range(PODS):
                if number in kills:
                    fleet.signal(f"{kills[number]}-0", signal.SIGKILL)
                fleet.server.store_raw("pods", raw_pod(f"p-{number}", cpu="1m"))
                await asyncio.sleep(PAUSE)
            await fleet.until(
                lambda: all(fleet.node_of(f"p-{number}") for number in range(PODS)), "some pods are not bound"
            )
            assert await auditor.finish() == []
            for kind in SINGLE:
                assert await fleet.leads(f"{kind}-1")
                assert fleet.term(kind) > terms[kind]


@pytest.mark.parametrize("kind", SINGLE)
async def test_a_standby_takes_over_at_once_from_a_leader_that_ends(kind: str, tmp_path: Path) -> None:
    async with a_fleet(tmp_path, tuple(dict.fromkeys(("watcher", kind))), **LONG) as fleet:
        await fleet.ready(f"{kind}-1")
        answer = await fleet.ask(f"{kind}-1", "/readyz")
        assert answer is not None and answer.status == 200
        assert not fleet.said(f"{kind}-1 requests a listing")  # it fetches one, if it must
        before = fleet.term(kind)
        fleet.signal(f"{kind}-0", signal.SIGTERM)
        assert await fleet.ended(f"{kind}-0") == 0
        assert await fleet.leader(kind) == f"{kind}-1"
        assert is_next(fleet.term(kind), before)


async def test_a_watcher_resumes_where_the_one_before_has_ended(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, ("watcher", "queue"), **LONG) as fleet:
        await fleet.ready()
        for number in range(3):
            fleet.server.store_raw("pods", raw_pod(f"p-{number}"))
        fleet.signal("watcher-0", signal.SIGTERM)
        assert await fleet.ended("watcher-0") == 0
        listings = sum("requests a listing" in line for line in fleet.relay.lines)
        assert await fleet.leader("watcher") == "watcher-1"
        fleet.server.store_raw("pods", raw_pod("later"))
        async with asyncio.timeout(PATIENCE):
            while (answer := await fleet.ask("queue-0", "/metrics")) is None or QUEUED not in answer.body:
                await asyncio.sleep(0.02)
        assert fleet.said("resumes the stream after message")
        assert sum("requests a listing" in line for line in fleet.relay.lines) == listings


async def test_a_leader_that_wakes_up_deposed_does_no_harm_and_ends(tmp_path: Path) -> None:
    async with a_pipeline(tmp_path) as fleet:
        fleet.server.store_raw("nodes", raw_node("n-0"))
        for kind in SINGLE:
            fleet.signal(f"{kind}-0", signal.SIGSTOP)
        fleet.server.store_raw("pods", raw_pod("first", cpu="1m"))
        await fleet.until(lambda: bool(fleet.node_of("first")), "it is not bound")
        terms = {kind: fleet.term(kind) for kind in SINGLE}
        for kind in SINGLE:
            fleet.signal(f"{kind}-0", signal.SIGCONT)
        for number in range(20):
            fleet.server.store_raw("pods", raw_pod(f"p-{number}", cpu="1m"))
        for kind in SINGLE:
            assert await fleet.ended(f"{kind}-0") == 1
            # Who first tells the snapshot, or the queue, is its Lease or Redis.
            lost = (f"lost the Lease {PREFIX}-{kind}: ", f"{kind} ends: epoch ")
            await fleet.until(lambda lost=lost: any(map(fleet.said, lost)), f"no line with: {lost}")  # type: ignore[misc]
        await fleet.until(lambda: all(fleet.node_of(f"p-{number}") for number in range(20)), "some are not bound")
        assert {kind: fleet.term(kind) for kind in SINGLE} == terms


async def test_a_restarted_leader_takes_its_lease_at_once(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, ("watcher", "queue"), **LONG) as fleet:
        await fleet.ready("queue-1")
        before = fleet.term("queue")
        fleet.signal("queue-0", signal.SIGKILL)
        await fleet.ended("queue-0")
        await fleet.start("queue", "queue-0")
        assert await fleet.leader("queue") == "queue-0"
        assert is_next(fleet.term("queue"), before)


async def test_workers_and_binders_end_without_losing_pods(tmp_path: Path) -> None:
    async with a_pipeline(tmp_path) as fleet:
        fleet.server.store_raw("nodes", raw_node("n-0"))
        await fleet.start("binder", "binder-1")
        await fleet.ready("binder-1")
        for name in ("worker-0", "binder-0"):
            fleet.signal(name, signal.SIGTERM)
            fleet.server.store_raw("pods", raw_pod(f"after-{name}", cpu="1m"))
            await fleet.until(lambda name=name: bool(fleet.node_of(f"after-{name}")), "it is not bound")  # type: ignore[misc]
            assert await fleet.ended(name) == 0


async def test_a_heartbeat_that_names_a_later_cycle_ends_no_term(tmp_path: Path) -> None:
    """As a worker in wrong hands could send it again and again. The snapshot is asked, and knows better."""
    async with a_pipeline(tmp_path) as fleet:
        fleet.server.store_raw("nodes", raw_node("n-0"))
        before = fleet.term("cycle")
        bus = await Bus.connect(fleet.nats.url, PREFIX, "liar", a_telemetry())
        try:
            for name in ("liar", "w-0"):
                bus.post("worker.beats", WorkerBeat(name, "forged", before + 3, 1, [0], 8))
            said = f"its beat names assignment 1 of epoch {before + 3}"
            await fleet.until(lambda: fleet.said(said), "the heartbeats were not found to be wrong")
        finally:
            await bus.close()
        fleet.server.store_raw("pods", raw_pod("p", cpu="1m"))
        await fleet.until(lambda: bool(fleet.node_of("p")), "it is not bound")
        assert fleet.term("cycle") == before


async def test_a_cycle_with_a_reused_term_goes_on_in_a_later_one(tmp_path: Path) -> None:
    """As where its Lease was deleted and taken again within a minute."""
    async with a_pipeline(tmp_path) as fleet:
        fleet.server.store_raw("nodes", raw_node("n-0"))
        before = fleet.term("cycle")
        bus = await Bus.connect(fleet.nats.url, PREFIX, "another", a_telemetry())
        try:
            bus.post("snapshot.commits", Commit(before, 1, [], [], cycle="another"))
            await bus.publish("snapshot.commits", Commit(before + 3, 1, [], [], cycle="another"))
        finally:
            await bus.close()
        fleet.server.store_raw("pods", raw_pod("p", cpu="1m"))
        assert await fleet.ended("cycle-0") == 1
        assert fleet.said(f"another cycle has committed in term {before + 3}, and ours is {before}")
        await fleet.until(lambda: bool(fleet.node_of("p")), "it is not bound")
        assert fleet.term("cycle") > before + 3
