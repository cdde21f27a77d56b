"""Two pipelines on one API server, each with a NATS of its own: all leaders are of one of them."""

import asyncio

import pytest

from shared.errors import UserError
from shared.kube import election
from shared.runtime.lease_keeper import TERM
from tests.kube.support import until
from tests.leadership.test_leadership import FAST, Candidate, World, a_world
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio

SNAPSHOT, QUEUE = "flotilla-snapshot", "flotilla-queue"


def left_behind(world: World, lease: str, *, seconds: int) -> None:
    """As by a leader on another NATS that was killed."""
    spec = {"holderIdentity": "dead", "leaseTransitions": 41, "renewTime": "x", "leaseDurationSeconds": seconds}
    metadata = {"name": lease, "namespace": "leases", "annotations": {"flotilla.io/nats": "41 ANOTHER"}}
    world.server.store_raw("leases", {"metadata": metadata, "spec": spec}, group="coordination.k8s.io")


async def test_a_second_pipeline_takes_no_expired_lease_of_the_first_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the first one's queue is paused: its Lease has run out."""
    monkeypatch.setattr(election, "FOREIGN_TIMEOUT", 0.5)
    async with a_world() as world, nats_server() as another:
        first = await Candidate.stands(world, "snapshot-a", lease=SNAPSHOT)
        await first.leads()
        left_behind(world, QUEUE, seconds=1)
        second = await Candidate.stands(world, "queue-b", url=another.url, lease=QUEUE)
        snapshot = await Candidate.stands(world, "snapshot-b", url=another.url, lease=SNAPSHOT)
        for refused in (second, snapshot):
            await refused.ends()
            assert isinstance(refused.failure, UserError) and refused.lead is None
            assert str(refused.failure).startswith(f"Lease leases/{SNAPSHOT} is held by snapshot-a since ")
        standby = await Candidate.stands(world, "queue-a", lease=QUEUE)
        await standby.leads()  # the first one's own takes it
        await first.stop()
        await standby.stop()


async def test_a_second_pipeline_of_equal_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "FOREIGN_TIMEOUT", 0.5)
    async with a_world() as world, nats_server() as another:
        first = await Candidate.stands(world, "snapshot-1", lease=SNAPSHOT, identity="")
        epoch = (await first.leads()).epoch
        second = await Candidate.stands(world, "snapshot-1", url=another.url, lease=SNAPSHOT, identity="")
        await second.ends()
        assert isinstance(second.failure, UserError) and second.lead is None
        assert str(second.failure).startswith(f"Lease leases/{SNAPSHOT} is held by snapshot-1-")
        assert first.failure is None and (await first.leads()).epoch == epoch
        await first.stop()


async def test_a_pipeline_that_replaces_a_dead_one_takes_the_snapshots_lease_first() -> None:
    async with a_world() as world:
        left_behind(world, SNAPSHOT, seconds=3)
        left_behind(world, QUEUE, seconds=1)
        queue = await Candidate.stands(world, "queue-b", FAST, lease=QUEUE)
        await until(lambda: any("names another NATS than ours" in why for why in queue.context.health.reasons()))
        assert queue.lead is None
        snapshot = await Candidate.stands(world, "snapshot-b", FAST, lease=SNAPSHOT)
        await until(lambda: snapshot.lead is not None or queue.lead is not None)
        assert snapshot.lead is not None
        await queue.leads()
        assert not [why for why in queue.context.health.reasons() if why.startswith(TERM)]
        await queue.stop()
        await snapshot.stop()


async def test_leases_of_a_dead_pipeline_run_out_together() -> None:
    """A candidate watches its own Lease while another pipeline still has the snapshot's: it waits once, not twice."""
    seconds = 4
    async with a_world() as world:
        for lease in (SNAPSHOT, QUEUE):
            left_behind(world, lease, seconds=seconds)
        queue = await Candidate.stands(world, "queue-b", FAST, lease=QUEUE)
        snapshot = await Candidate.stands(world, "snapshot-b", FAST, lease=SNAPSHOT)
        await snapshot.leads()
        async with asyncio.timeout(seconds - 0.5):
            await queue.leads()
        await queue.stop()
        await snapshot.stop()


async def test_leaders_of_the_replaced_pipeline_end_and_release_their_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshot stood still for too long, and another pipeline has taken that Lease."""
    monkeypatch.setattr(election, "FOREIGN_TIMEOUT", 0.5)
    async with a_world() as world, nats_server() as another:
        before = await Candidate.stands(world, "queue-a", lease=QUEUE)
        await before.leads()
        snapshot = await Candidate.stands(world, "snapshot-b", url=another.url, lease=SNAPSHOT)
        await snapshot.leads()
        after = await Candidate.stands(world, "queue-b", url=another.url, lease=QUEUE)
        await before.ends()
        assert isinstance(before.failure, UserError)
        await after.leads()
        await after.stop()
        await snapshot.stop()
