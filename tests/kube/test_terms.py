"""A Lease object: terms are written into it, by one of several who try at a time."""

import asyncio

import pytest

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.election import Record
from shared.kube.errors import Refused
from shared.kube.lease import NETWORK, SETTLED, Lease
from testing.simulator.service import Simulator
from tests.kube.support import api_server, client_of

pytestmark = pytest.mark.asyncio

NAMESPACE = "kube-system"
PATIENCE = 5.0


def a_lease(client: KubeClient, holder: str = "me") -> Lease:
    return Lease(client, NAMESPACE, "flotilla-x", holder, 14.2)


def spec_of(server: Simulator) -> dict[str, object]:
    spec = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")["spec"]
    assert isinstance(spec, dict)
    return spec


async def take(lease: Lease, term: int) -> bool:
    await lease.look(PATIENCE)
    return await lease.write(term, acquired=True, patience=PATIENCE)


async def test_a_missing_lease_is_created_and_then_renewed() -> None:
    async with api_server() as server, client_of(server) as client:
        lease = a_lease(client)
        assert await lease.look(PATIENCE) is None
        assert await lease.write(7, acquired=True, patience=PATIENCE)
        made = spec_of(server)
        assert (made["holderIdentity"], made["leaseTransitions"], made["leaseDurationSeconds"]) == ("me", 7, 15)
        assert await lease.write(7, acquired=False, patience=PATIENCE)
        renewed = spec_of(server)
        assert renewed["acquireTime"] == made["acquireTime"]
        assert renewed["renewTime"] != made["renewTime"]
        seen = await a_lease(client, "you").look(PATIENCE)
        assert seen == Record("me", 7, str(renewed["renewTime"]), 15.0, acquired=str(made["acquireTime"]))


async def test_the_lease_records_served_schedulers() -> None:
    async with api_server() as server, client_of(server) as client:
        for term, (holder, schedulers) in enumerate([("me", ["a", "b"]), ("you", ["b", "c"])], start=7):
            lease = Lease(client, NAMESPACE, "flotilla-x", holder, 14.2, schedulers)
            assert await take(lease, term)
            assert await lease.release(term, PATIENCE)
        later = Lease(client, NAMESPACE, "flotilla-x", "them", 14.2, ["d"])
        await later.look(PATIENCE)
        assert later.served == ("a", "b", "c", "d")


async def test_the_leaders_nats_is_recorded_for_its_term() -> None:
    async with api_server() as server, client_of(server) as client:
        lease, other = a_lease(client), a_lease(client, "you")
        await lease.look(PATIENCE)
        assert await lease.write(7, acquired=True, patience=PATIENCE, network="one nats")
        seen = await other.look(PATIENCE)
        assert seen is not None and seen.network == "one nats"
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        assert stored["metadata"]["annotations"] == {NETWORK: "7 one nats"}
        stored["spec"]["leaseTransitions"] = 8  # as a service of the last release would, which knows no annotation
        server.store_raw("leases", stored, group="coordination.k8s.io")
        seen = await other.look(PATIENCE)
        assert seen is not None and seen.network == ""
        assert await other.write(9, acquired=True, patience=PATIENCE)
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        assert not stored["metadata"].get("annotations"), "while it is cut off from NATS it names none"


async def test_of_concurrent_writers_one_succeeds() -> None:
    async with api_server() as server, client_of(server) as client:
        leases = [a_lease(client, f"me-{i}") for i in range(8)]
        for _ in range(2):  # where there is none, and where there is one
            await asyncio.gather(*[lease.look(PATIENCE) for lease in leases])
            wrote = [lease.write(1, acquired=True, patience=PATIENCE) for lease in leases]
            assert sum(await asyncio.gather(*wrote)) == 1


async def test_a_refused_writer_reads_and_writes_again() -> None:
    async with api_server() as server, client_of(server) as client:
        mine, other = a_lease(client), a_lease(client, "you")
        await take(mine, 1)
        await take(other, 2)
        assert not await mine.write(1, acquired=False, patience=PATIENCE)
        assert await take(mine, 3)


async def test_a_released_lease_has_no_holder_and_keeps_its_term() -> None:
    async with api_server() as server, client_of(server) as client:
        mine, other = a_lease(client), a_lease(client, "you")
        await take(mine, 5)
        assert not await other.release(9, PATIENCE), "it is not theirs"
        assert not await mine.release(4, PATIENCE), "another process under the same name has it"
        assert await mine.release(5, PATIENCE)
        record = await other.look(PATIENCE)
        assert record is not None and (record.holder, record.term, record.duration) == ("", 5, 1.0)


async def test_the_settled_mark_counts_once() -> None:
    async with api_server() as server, client_of(server) as client:
        mine, other = a_lease(client), a_lease(client, "you")
        await take(mine, 5)
        assert await mine.release(5, PATIENCE, settled=5)
        record = await other.look(PATIENCE)
        assert record is not None and record.settled
        assert await other.write(6, acquired=True, patience=PATIENCE)
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        assert SETTLED not in stored["metadata"].get("annotations", {})
        assert await other.release(6, PATIENCE)
        record = await mine.look(PATIENCE)
        assert record is not None and not record.settled


async def test_a_settled_mark_of_another_term_does_not_count() -> None:
    """A mark of an earlier term: its holder was followed by one that does not know marks, or ours was overtaken."""
    async with api_server() as server, client_of(server) as client:
        mine, other = a_lease(client), a_lease(client, "you")
        await take(mine, 5)
        assert await mine.release(5, PATIENCE, settled=4)
        record = await other.look(PATIENCE)
        assert record is not None and not record.settled
        await take(mine, 6)
        assert await mine.release(6, PATIENCE, settled=6)
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        stored["spec"]["leaseTransitions"] = 7
        server.store_raw("leases", stored, group="coordination.k8s.io")
        record = await other.look(PATIENCE)
        assert record is not None and not record.settled


async def test_other_annotations_are_kept() -> None:
    async with api_server() as server, client_of(server) as client:
        mine = a_lease(client)
        await take(mine, 5)
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        stored["metadata"]["annotations"] = {"a": "b"}
        server.store_raw("leases", stored, group="coordination.k8s.io")
        await mine.look(PATIENCE)
        assert await mine.release(5, PATIENCE, settled=5)
        assert await take(mine, 6)
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        assert stored["metadata"]["annotations"] == {"a": "b"}


async def test_unknown_fields_of_a_lease_are_kept() -> None:
    lease = {
        "metadata": {"name": "flotilla-x", "namespace": NAMESPACE, "labels": {"a": "b"}},
        "spec": {"leaseTransitions": 41, "holderIdentity": "them", "leaseDurationSeconds": 60, "preferredHolder": "us"},
    }
    async with api_server() as server, client_of(server) as client:
        server.store_raw("leases", lease, group="coordination.k8s.io")
        assert await take(a_lease(client), 42)
        stored = server.stored("leases", "flotilla-x", NAMESPACE, group="coordination.k8s.io")
        assert stored["metadata"]["labels"] == {"a": "b"}
        assert stored["spec"]["preferredHolder"] == "us"


async def test_an_invalid_term_is_refused() -> None:
    lease = {"metadata": {"name": "flotilla-x", "namespace": NAMESPACE}, "spec": {"leaseTransitions": "many"}}
    async with api_server() as server, client_of(server) as client:
        server.store_raw("leases", lease, group="coordination.k8s.io")
        problem = r"Lease kube-system/flotilla-x: spec\.leaseTransitions: 'many' is no term"
        with pytest.raises(ClusterError, match=problem):
            await a_lease(client).look(PATIENCE)


async def test_a_refusal_names_the_server() -> None:
    async with api_server() as server, client_of(server) as client:
        server.faults.fail("POST", "leases", 422, reason="Invalid")
        with pytest.raises(Refused, match="POST Lease kube-system/flotilla-x: 422 injected fault"):
            await take(a_lease(client), 1)


async def test_a_missing_namespace_is_reported() -> None:
    async with api_server() as server, client_of(server) as client:
        nowhere = Lease(client, "nowhere", "flotilla-x", "me", 15.0)
        assert await nowhere.look(PATIENCE) is None
        with pytest.raises(Refused, match='POST Lease nowhere/flotilla-x: 404 namespaces "nowhere" not found'):
            await nowhere.write(1, acquired=True, patience=PATIENCE)
