"""Terms rise by one each time, whoever takes them."""

import asyncio

import pytest

from shared.errors import ClusterError
from shared.kube.errors import Refused
from shared.kube.terms import take_term
from tests.kube.support import api_server, client_of

pytestmark = pytest.mark.asyncio


async def test_the_first_term_is_one_and_they_rise() -> None:
    async with api_server() as server, client_of(server) as client:
        assert [await take_term(client, "flotilla-x", f"me-{i}") for i in range(3)] == [1, 2, 3]
        spec = server.stored("leases", "flotilla-x", "kube-system", group="coordination.k8s.io")["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("me-2", 3)
        assert await take_term(client, "flotilla-y", "me") == 1


async def test_no_two_get_the_same_term() -> None:
    async with api_server() as server, client_of(server) as client:
        terms = await asyncio.gather(*[take_term(client, "flotilla-x", f"me-{i}") for i in range(8)])
        assert sorted(terms) == list(range(1, 9))


async def test_a_lease_of_somebody_else_is_kept_whole() -> None:
    lease = {
        "metadata": {"name": "flotilla-x", "namespace": "kube-system", "labels": {"a": "b"}},
        "spec": {"leaseTransitions": 41, "holderIdentity": "them", "leaseDurationSeconds": 60},
    }
    async with api_server() as server, client_of(server) as client:
        server.store_raw("leases", lease, group="coordination.k8s.io")
        assert await take_term(client, "flotilla-x", "me") == 42
        stored = server.stored("leases", "flotilla-x", "kube-system", group="coordination.k8s.io")
        assert stored["metadata"]["labels"] == {"a": "b"}


async def test_what_is_no_term_is_refused() -> None:
    lease = {"metadata": {"name": "x", "namespace": "kube-system"}, "spec": {"leaseTransitions": "many"}}
    async with api_server() as server, client_of(server) as client:
        server.store_raw("leases", lease, group="coordination.k8s.io")
        with pytest.raises(ClusterError, match=r"Lease x: spec\.leaseTransitions: 'many' is no term"):
            await take_term(client, "x", "me")


async def test_a_server_that_refuses_is_named() -> None:
    async with api_server() as server, client_of(server) as client:
        server.faults.fail("POST", "leases", 422, reason="Invalid")
        with pytest.raises(Refused, match="422 a fault was asked for"):
            await take_term(client, "x", "me")
