"""What the pods on a node request, bound or assumed, is within what it has."""

import re

import msgspec
import pytest
from msgspec.structs import replace

from shared.cluster.devices import DeviceDecision, SpecialClaim
from shared.devices.extended import RequestMapping
from shared.messages.watch import Kind
from shared.model.devices import AllocationResult
from shared.model.objects import encode_json
from testing.auditor.core import Listed, WatchLost
from testing.auditor.usage import decode_audited_pod, demand_of
from testing.auditor.violations import Invariant
from testing.builders import PodBuilder, node, pod
from tests.auditor.support import LAG, PATIENCE, Audit, entry, invariants, small, web

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("resource", "request_", "has"),
    [
        ("cpu", "1001m", "2"),
        ("memory", "513Mi", "1Gi"),
        ("ephemeral-storage", "6G", "10G"),
        (GPU, "1", "1"),
        ("hugepages-2Mi", "4Mi", "6Mi"),
    ],
)
def test_two_pods_that_together_exceed_a_resource_are_reported(resource: str, request_: str, has: str) -> None:
    audit = Audit(node("a").capacity({resource: has}))
    audit.bind(pod("p").request({resource: request_}), "a")
    assert audit.settle() == []
    audit.bind(pod("q").request({resource: request_}), "a")
    assert audit.broken == [], "the watch may soon show that the node has grown"
    (violation,) = audit.settle()
    assert (violation.invariant, violation.pod, violation.node) == (Invariant.CAPACITY, "default/q", "a")
    numbers = rf"{resource} requested (\S+), {resource} allocatable (\S+)"
    found = re.fullmatch(f"the pods on the node request more than it has: {numbers}", violation.what)
    assert found is not None
    assert float(found[1]) > float(found[2])


def test_more_pods_than_allocatable_are_reported() -> None:
    audit = Audit(node("a").capacity(pods=1))
    audit.bind(pod("p"), "a")
    audit.bind(pod("q"), "a")
    (violation,) = audit.settle()
    assert violation.what.endswith(": pods requested 2, pods allocatable 1")


def test_a_request_for_a_resource_the_node_lacks_is_reported() -> None:
    audit = Audit(small("a"))
    audit.bind(pod("p").request({GPU: 1}), "a")
    assert invariants(audit.settle()) == [Invariant.CAPACITY]


def test_a_violation_still_pending_at_the_end_is_reported() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p", cpu="5"), "a")
    assert invariants(audit.finish()) == [Invariant.CAPACITY]


def test_an_exactly_full_node_is_correct() -> None:
    audit = Audit(small("a"))
    for name in "pqrs":
        audit.bind(web(name), "a")
    assert audit.settle() == []


def test_a_pod_may_join_a_node_that_exceeds_only_resources_it_does_not_request() -> None:
    audit = Audit(node("a").capacity(cpu="1", memory="1Gi"), pods=[pod("big").request(cpu="3").on("a")])
    audit.bind(pod("p").request(memory="1Gi", cpu=0), "a")
    assert audit.settle() == []


# Who counts


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_frees_its_resources(phase: str) -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("p").on("a").phase(phase))
    audit.bind(web("q"), "a")
    assert audit.settle() == []


def test_a_deleted_pod_frees_its_resources() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.lose(web("p"))
    audit.bind(web("q"), "a")
    assert audit.settle() == []


def test_a_terminating_pod_keeps_its_resources() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("p").on("a").terminating())
    audit.bind(web("q"), "a")
    assert invariants(audit.settle()) == [Invariant.CAPACITY]


def test_earlier_pods_and_pods_created_with_a_node_are_not_checked() -> None:
    audit = Audit(small("a", cpu="1"), pods=[web("p").on("a"), web("q").on("a")])
    audit.see(web("r").on("a"))
    assert audit.settle() == []


def test_unchecked_pods_count_towards_usage() -> None:
    audit = Audit(small("a", cpu="2"), pods=[web("p").on("a")])
    audit.see(web("q").on("a"))
    audit.wait(LAG + 1)
    audit.bind(web("r"), "a")
    assert invariants(audit.settle()) == [Invariant.CAPACITY]


def test_a_decision_may_miss_a_pod_that_someone_else_just_placed() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.see(web("p"))
    audit.see(web("foreign").on("a"))
    audit.see(web("p").on("a"))
    assert audit.settle() == []


def test_a_decision_may_miss_a_pod_that_just_grew() -> None:
    audit = Audit(small("a", cpu="2"))
    audit.bind(web("p"), "a")
    audit.wait(60)
    audit.see(web("p", cpu="2").on("a"))
    audit.bind(web("q"), "a")
    assert audit.settle() == []
    audit.bind(web("r"), "a")
    assert invariants(audit.settle()) == [Invariant.CAPACITY]


def test_a_resize_that_is_not_granted_is_ignored() -> None:
    audit = Audit(small("a", cpu="2"))
    audit.bind(web("p"), "a")
    audit.see(web("p", cpu="4").on("a").condition("PodResizePending", reason="Infeasible"))
    audit.wait(60)
    audit.bind(web("q"), "a")
    assert audit.settle() == []


def test_pods_of_other_schedulers_are_not_checked() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p").scheduler("another"), "a")
    audit.bind(web("q").scheduler("another"), "a")
    assert audit.settle() == []
    assert audit.core.counts().created == 0


# What a pod requests


def parts(name: str) -> PodBuilder:
    return pod(name).container("main").request(cpu="1")


@pytest.mark.parametrize(
    ("made", "cpu"),
    [
        (parts("p").container("second").request(cpu="500m"), "1500m"),
        (parts("p").init_container(cpu="3"), "3"),
        (parts("p").init_container(cpu="500m"), "1"),
        (parts("p").init_container(cpu="2", sidecar=True), "3"),
        (parts("p").init_container(cpu="2", sidecar=True).init_container(cpu="2"), "4"),
        (parts("p").init_container(cpu="2").init_container(cpu="2", sidecar=True), "3"),
        (parts("p").overhead(cpu="250m"), "1250m"),
        (parts("p").init_container(cpu="3").overhead(cpu="250m"), "3250m"),
        (parts("p").pod_request(cpu="2"), "2"),
        (parts("p").pod_request(cpu="2").overhead(cpu="100m"), "2100m"),
        (pod("p").request(cpu="100.5m"), "101m"),
    ],
)
def test_a_pod_fits_exactly_its_requests(made: PodBuilder, cpu: str) -> None:
    millis = int(float(cpu.rstrip("m")) * (1 if cpu.endswith("m") else 1000))
    audit = Audit(node("enough").capacity(cpu=f"{millis}m"), node("short").capacity(cpu=f"{millis - 1}m"))
    audit.bind(made.uid("1"), "enough")
    assert audit.settle() == []
    audit.bind(made.uid("2"), "short")
    (violation,) = audit.settle()
    assert violation.what.endswith(f": cpu requested {millis}, cpu allocatable {millis - 1}")


# Races with the node


def test_a_growing_node_may_be_seen_after_the_binding() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p", cpu="2"), "a")
    audit.wait(LAG - 1)
    audit.see(small("a", cpu="2"))
    assert audit.settle() == []


def test_a_decision_may_miss_a_node_that_just_shrank() -> None:
    audit = Audit(small("a", cpu="2"))
    audit.see(small("a", cpu="1"))
    audit.wait(LAG - 1)
    audit.bind(web("p", cpu="2"), "a")
    assert audit.settle() == []


def test_a_decision_must_respect_a_node_that_shrank_long_ago() -> None:
    audit = Audit(small("a", cpu="2"))
    audit.see(small("a", cpu="1"))
    audit.wait(LAG + 1)
    audit.bind(web("p", cpu="2"), "a")
    assert invariants(audit.settle()) == [Invariant.CAPACITY]


def test_a_node_that_shrinks_below_its_pods_is_no_violation() -> None:
    audit = Audit(small("a", cpu="2"))
    audit.bind(web("p", cpu="2"), "a")
    audit.wait(60)
    audit.see(small("a", cpu="1"))
    assert audit.settle() == []


def test_a_slow_binding_is_checked_as_of_its_assumption() -> None:
    audit = Audit(small("a", cpu="2"))
    audit.see(web("p", cpu="2"))
    audit.ledger(entry(web("p"), "a"))
    audit.wait(1)
    audit.see(small("a", cpu="1"))
    for _ in range(10):
        audit.wait(LAG)
        audit.ledger(entry(web("p"), "a"))
        audit.see(small("a", cpu="1").label(time=str(audit.now)))
    audit.see(web("p", cpu="2").on("a"))
    assert audit.settle() == []


# Listings


def test_a_listing_is_atomic() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("q"), web("r"))
    audit.tell(WatchLost(Kind.POD))
    audit.wait(30)
    audit.tell(Listed(Kind.POD, [web("q").on("a").build(), web("r").build()]))
    assert audit.settle() == []


def test_an_overcommitted_node_in_a_listing_is_reported() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("q"))
    audit.tell(WatchLost(Kind.POD))
    audit.tell(Listed(Kind.POD, [web("q").on("a").build(), web("p").on("a").build()]))
    assert invariants(audit.settle()) == [Invariant.CAPACITY]


# Assumed


def test_bound_and_assumed_together_must_fit() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("q"))
    assert audit.ledger(entry(web("q"), "a")) == [], "the watch may lag behind the ledger"
    audit.wait(LAG)
    (violation,) = audit.ledger(entry(web("q"), "a"))
    assert (violation.invariant, violation.pod, violation.node) == (Invariant.CAPACITY, "default/q", "a")
    assert violation.what.endswith(": cpu requested 2000, cpu allocatable 1000")
    audit.wait(LAG)
    assert audit.ledger(entry(web("q"), "a")) == [], "once is enough"


def test_resources_seen_freed_within_the_lag_count_as_free() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("q"))
    audit.ledger(entry(web("q"), "a"))
    audit.wait(1)
    audit.lose(web("p"))
    audit.wait(LAG)
    assert audit.ledger(entry(web("q"), "a")) == []


def test_an_assumed_pod_that_is_seen_bound_counts_once() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.ledger(entry(web("p"), "a"))
    audit.wait(PATIENCE - 1)
    assert audit.ledger(entry(web("p"), "a")) == []


def test_the_ledger_is_not_compared_during_a_gap() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("q"))
    audit.tell(WatchLost(Kind.POD))
    for _ in range(5):
        assert audit.ledger(entry(web("q"), "a")) == []
        audit.wait(PATIENCE)
    audit.tell(Listed(Kind.POD, [web("q").on("a").build()]))
    audit.ledger()
    assert audit.settle() == []


def test_extended_resources_that_a_pod_gets_as_devices_need_no_room_on_the_node() -> None:
    plain = msgspec.json.decode(encode_json(pod("p").request({GPU: 1, "cpu": "1", "example.com/other": 2}).build()))
    mapping = {"containerName": "c", "resourceName": GPU, "requestName": "r"}
    plain["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "p-gpu", "requestMappings": [mapping]}}
    decoded = decode_audited_pod(msgspec.json.encode(plain))
    assert demand_of(decoded).amounts == {"cpu": 1000, "example.com/other": 2, "pods": 1}


def test_an_assumed_pod_needs_no_room_for_what_it_is_to_get_as_devices() -> None:
    audit = Audit(small("a"))
    audit.see(web("p").request({GPU: 1, "cpu": "1"}))
    special = SpecialClaim([], [RequestMapping("c", GPU, "r")], AllocationResult())
    plain = entry(web("p"), "a")
    served = replace(plain, assignment=replace(plain.assignment, devices=DeviceDecision([], special)))
    audit.ledger(served)
    audit.wait(LAG)
    assert audit.ledger(served) == []
    audit.ledger()
    audit.ledger(replace(plain, attempt=2))
    audit.wait(LAG)
    assert invariants(audit.ledger(replace(plain, attempt=2))) == [Invariant.CAPACITY]
