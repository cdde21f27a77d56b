"""Claims of a PodGroup are reserved for the group once, by its first pod that is bound."""

from typing import Any

import pytest
from msgspec.structs import replace

from flotilla.objects import Pod
from flotilla.results import SUCCESS, ApiAnswer, error
from shared.model.devices import FENCED
from testing.builders import PodBuilder
from tests.plugins.devices.support import CLAIMS, Server, allocation
from tests.simulator.support import Desk

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
LATER = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
MINE = {"name": "mine", "resourceClaimName": "c"}


class GroupServer(Server):
    """The pod names claim `c` as `mine`, and is in the group `g`, which has these claims."""

    def __init__(self, *of_group: dict[str, Any]) -> None:
        super().__init__("c")
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(of_group)}
        self.group = self.post(GROUPS, {"metadata": {"name": "g"}, "spec": spec})

    def built(self, of: PodBuilder) -> Pod:
        return of.in_group("g").resource_claim("mine", "c").build()

    def reserved(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.claim().get("status", {}).get("reservedFor", [])
        return found

    @property
    def of_group(self) -> dict[str, Any]:
        of = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}
        return {**of, "uid": self.group["metadata"]["uid"]}


def test_a_claim_of_the_group_is_reserved_for_it_once() -> None:
    server = GroupServer(MINE)
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    assert server.reserved() == [server.of_group]
    before = server.claim()["metadata"]["resourceVersion"]
    assert server.run(server.wanted()) == SUCCESS
    assert server.reserved() == [server.of_group]
    assert server.claim()["metadata"]["resourceVersion"] != before, "it is marked, so that nobody takes it back"


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other", "resourceClaimName": "c"},
        {"name": "mine", "resourceClaimName": "d"},
        {"name": "mine", "resourceClaimTemplateName": "c"},
    ],
)
def test_a_claim_that_the_group_does_not_name_alike_is_the_pods(other: dict[str, Any]) -> None:
    server = GroupServer(other)
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    assert server.reserved() == [{"resource": "pods", "name": "p", "uid": server.uid}]


@pytest.mark.parametrize("relied_on", [False, True])
def test_a_failed_attempt_takes_the_groups_reservation_back_unless_another_pod_relies_on_it(relied_on: bool) -> None:
    server = GroupServer(MINE)
    missing = replace(server.wanted(), key="default/none", uid="x")

    def another_run() -> None:
        """As a run for another pod of the group, which finds the reservation."""
        claim = server.claim()
        claim["metadata"]["annotations"] = {FENCED: claim["metadata"]["resourceVersion"]}
        server.put(f"{CLAIMS}/c", claim)

    if relied_on:
        server.before["GET /none"] = another_run
    assert server.run(server.wanted(allocation=allocation()), missing).code is error("").code
    assert server.reserved() == ([server.of_group] if relied_on else [])


def test_a_group_that_cannot_be_read_fails_the_attempt() -> None:
    server = GroupServer(MINE)
    server.fails[f"GET {LATER}/g"] = ApiAnswer(500, message="overloaded")
    assert server.run(server.wanted(allocation=allocation())) == error("get pod group default/g: overloaded")
    assert server.reserved() == []


def test_a_group_that_makes_no_sense_fails_the_attempt() -> None:
    server = GroupServer(MINE)
    server.fails[f"GET {LATER}/g"] = ApiAnswer(200, b'{"metadata": {}, "spec": {"resourceClaims": [7]}}')
    said = server.run(server.wanted(allocation=allocation()))
    assert said.message.startswith("get pod group default/g: Expected `object`, got `int`")


def test_a_group_that_is_gone_reserves_nothing() -> None:
    server = GroupServer(MINE)
    Desk.delete(server, f"{GROUPS}/g")
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    assert server.reserved() == [{"resource": "pods", "name": "p", "uid": server.uid}]
