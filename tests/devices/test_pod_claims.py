"""Checks around the search that golden cases touch only in passing: readiness, time-out, extended resources."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shared.devices.extended import ClassesByResource, RequestMapping, claim_for_node, node_resources, special_claim
from shared.devices.pod_claims import PodClaims, content_key, is_ready, own_claims, post_filter, unavailable_claims
from shared.devices.pools import DeviceNode
from shared.devices.results import score
from shared.model.codec import convert, pod_from
from shared.model.devices import DeviceClass, ResourceClaim
from shared.model.pod import Pod
from tests.devices.builders import allocation, claim, first_of

READY, FAILED = "ready", "failed"


def prepared(*devices: dict[str, str]) -> ResourceClaim:
    """An allocated claim; of each device its conditions, {} if the driver has not reported any."""
    results = [
        {"request": "r", "driver": "d", "pool": "p", "device": str(place), "bindingConditions": [READY]}
        | {"bindingFailureConditions": [FAILED]}
        for place in range(len(devices))
    ]
    reported = [
        {"driver": "d", "pool": "p", "device": str(place)}
        | {"conditions": [{"type": type_, "status": status} for type_, status in conditions.items()]}
        for place, conditions in enumerate(devices)
        if conditions
    ]
    status = {"allocation": {"devices": {"results": results}}, "devices": reported}
    return convert(ResourceClaim, {"metadata": {"name": "c"}, "spec": {}, "status": status})


@pytest.mark.parametrize(
    ("devices", "ready"),
    [
        ([{READY: "True"}], True),
        ([{READY: "False"}], None),
        ([{}], None),
        ([{READY: "True", FAILED: "True"}], False),
        ([{READY: "True"}, {FAILED: "True"}], False),
        ([{}, {FAILED: "True"}], None),
        ([{READY: "False"}, {FAILED: "True"}], None),
    ],
)
def test_devices_are_looked_at_up_to_the_first_one_that_is_not_ready(
    devices: list[dict[str, str]], ready: bool | None
) -> None:
    assert is_ready(prepared(*devices)) is ready


def test_an_allocation_without_binding_conditions_is_ready() -> None:
    status = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "g"}]}}}
    assert is_ready(convert(ResourceClaim, {"metadata": {"name": "c"}, "spec": {}, "status": status})) is True


def pod(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None, **spec: Any) -> Pod:
    return pod_from(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": containers, "initContainers": init or [], **spec},
        }
    )


def container(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    requests = {"cpu": "1", "example.com/gpu": str(gpus), "memory": "1Gi"} if gpus else {"cpu": "1"}
    return {"name": name, "resources": {"requests": requests}, **fields}


def device_class(name: str, **metadata: Any) -> DeviceClass:
    spec = {"extendedResourceName": "example.com/gpu"}
    return convert(DeviceClass, {"metadata": {"name": name, **metadata}, "spec": spec})


def requests_of(made: Pod) -> tuple[list[tuple[str, int]], list[tuple[str, str]]]:
    """The device requests with their counts, and which container maps to which."""
    found = claim_for_node(special_claim(made, []), made, ["example.com/gpu"], ClassesByResource([device_class("gpu")]))
    requests = found.claim.spec.devices.requests
    counts = [(each.name, each.exactly.count) for each in requests if each.exactly is not None]
    return counts, [(each.container, each.request) for each in found.mappings]


def test_init_containers_reuse_devices_and_share_one_request_for_the_rest() -> None:
    made = pod(
        [container("a", 1), container("b", 2)],
        [container("i", 2), container("s", 1, restartPolicy="Always"), container("j", 4), container("k", 5)],
    )
    assert requests_of(made) == (
        [
            ("container-1-request-1", 1),
            ("container-3-request-1", 2),
            ("container-4-request-1", 1),
            ("container-5-request-1", 2),
        ],
        [
            ("s", "container-1-request-1"),
            ("a", "container-4-request-1"),
            ("b", "container-5-request-1"),
            ("i", "container-1-request-1"),
            ("i", "container-4-request-1"),
            ("j", "container-4-request-1"),
            ("j", "container-5-request-1"),
            ("j", "container-3-request-1"),
            ("k", "container-4-request-1"),
            ("k", "container-5-request-1"),
            ("k", "container-3-request-1"),
        ],
    )


def test_requests_are_sorted_as_texts() -> None:
    made = pod([container(f"c{place}", 1) for place in range(11)])
    assert [name for name, _ in requests_of(made)[0]][:3] == [
        "container-0-request-1",
        "container-1-request-1",
        "container-10-request-1",
    ]


def test_of_two_classes_of_one_resource_the_newer_one_counts_then_the_first_name() -> None:
    old, new = (
        device_class(name, creationTimestamp=f"202{year}-01-01T00:00:00Z") for name, year in (("a", 5), ("b", 6))
    )
    assert ClassesByResource([old, new]).get("example.com/gpu") is new
    first, second = device_class("a"), device_class("b")
    assert ClassesByResource([second, first]).get("example.com/gpu") is first
    assert ClassesByResource([second, first]).get("deviceclass.resource.kubernetes.io/a") is first
    assert ClassesByResource([second, first]).get("deviceclass.resource.kubernetes.io/b") is None, "as upstream"
    assert ClassesByResource([first]).get("cpu") is None


@pytest.mark.parametrize(
    ("allocatable", "found"),
    [
        ({}, ["example.com/gpu"]),
        ({"example.com/gpu": 0}, ["example.com/gpu"]),
        ({"example.com/gpu": 4}, []),
    ],
)
def test_a_node_with_a_device_plugin_needs_no_device(allocatable: dict[str, int], found: list[str]) -> None:
    classes = ClassesByResource([device_class("gpu")])
    assert node_resources({"cpu": 100, "example.com/gpu": 1}, allocatable, classes) == found


def test_a_resource_that_no_class_and_no_node_provides_fits_nowhere() -> None:
    assert node_resources({"example.com/fpga": 1}, {}, ClassesByResource([])) is None


def test_a_status_without_claim_name_needs_no_claim() -> None:
    use = {"name": "x", "resourceClaimTemplateName": "t"}
    without = pod([container("a", 0)], resourceClaims=[use])
    assert own_claims(without, {}) == 'pod "default/p": ResourceClaim not created yet'
    status = convert(Pod, {"status": {"resourceClaimStatuses": [{"name": "x"}]}}).status
    none_needed = Pod(metadata=without.metadata, spec=without.spec, status=status)
    assert own_claims(none_needed, {}) == []


def test_a_claim_that_another_pod_uses_is_not_given_back() -> None:
    made = pod([container("a", 0)])
    reserved: list[list[dict[str, str]]] = [[], [{"uid": "u"}], [{"uid": "v"}], [{"uid": "u"}, {"uid": "v"}]]
    claims = [
        convert(ResourceClaim, {"metadata": {"name": f"c{place}"}, "spec": {}, "status": {"reservedFor": uids}})
        for place, uids in enumerate(reserved)
    ]
    found = PodClaims(made, claims, None, {})
    given = post_filter(found, range(4))
    assert [each.name for each in given.deallocate] == ["c0", "c1"]
    assert post_filter(found, [2, 3]).message == "still not schedulable"


def test_claims_that_are_reserved_for_the_pods_group_are_named_without_a_word() -> None:
    """Whether other pods of the group use them is found out later."""
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
    mine = {"resource": "pods", "name": "p", "uid": "mine"}
    consumers: list[list[dict[str, str]]] = [
        [group],
        [mine, group],
        [{**group, "name": "h"}],
        [group, {**mine, "uid": "other"}],
        [{**group, "apiGroup": ""}],
    ]
    claims = [
        convert(ResourceClaim, {"metadata": {"name": f"c{place}"}, "spec": {}, "status": {"reservedFor": users}})
        for place, users in enumerate(consumers)
    ]
    metadata = {"name": "p", "namespace": "default", "uid": "mine"}
    member = pod_from({"metadata": metadata, "spec": {"schedulingGroup": {"podGroupName": "g"}}})
    given = post_filter(PodClaims(member, claims, None, {}), range(5))
    assert ([each.name for each in given.deallocate], given.message) == (["c0", "c1"], "still not schedulable")
    alone = pod_from({"metadata": metadata, "spec": {}})
    assert post_filter(PodClaims(alone, claims, None, {}), range(5)).deallocate == ()


def test_the_score_sums_how_early_the_chosen_alternatives_are() -> None:
    chosen = claim(first_of("r", {}, {}, {}))
    made = allocation("g")
    second = convert(type(made), {"devices": {"results": [{"request": "r/s1"}]}})
    assert score([chosen, chosen], [made, second]) == 7


def test_a_mapping_names_container_resource_and_request() -> None:
    made = pod([container("a", 1)])
    found = claim_for_node(special_claim(made, []), made, ["example.com/gpu"], ClassesByResource([device_class("gpu")]))
    assert found.mappings == [RequestMapping("a", "example.com/gpu", "container-0-request-1")]


def test_pods_of_one_template_have_one_content_key() -> None:
    made = pod([container("a", 0)])

    def key(*claims: ResourceClaim) -> bytes:
        return content_key(PodClaims(made, list(claims), None, {}))

    one, two = (claim(first_of("r", {}), name=name) for name in ("p-1", "p-2"))
    assert key(one) == key(two)
    assert key(one, two) == key(two, one)
    assert key(one, two) != key(one, one)
    assert key(one) != key(claim(first_of("r", {"count": 2}), name="p-1"))
    assert key(prepared({READY: "True"})) == key(prepared({READY: "True"}))
    assert key(prepared({READY: "True"})) != key(prepared({READY: "False"}))
    assert key(prepared({READY: "True"})) != key(one)


def test_an_allocated_claim_waits_for_its_devices_only_so_long() -> None:
    made = prepared({READY: "False"})
    status = made.status
    assert status.allocation is not None
    since = msgspec.structs.replace(status.allocation, allocation_timestamp="2026-01-01T00:00:00Z")
    waiting = msgspec.structs.replace(made, status=msgspec.structs.replace(status, allocation=since))
    found = PodClaims(pod([container("a", 0)]), [waiting], None, {})
    begin = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    node = DeviceNode("n", {})
    assert [unavailable_claims(found, node, 600.0, begin + after) for after in (0, 600, 601)] == [(), (), (0,)]
    never = PodClaims(found.pod, [made], None, {})
    assert unavailable_claims(never, node, 600.0, begin + 9999) == ()


@pytest.mark.parametrize(
    ("owner", "group", "found"),
    [
        ({"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1alpha2", "name": "g"}, "g", True),
        ({"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1", "name": "g"}, "g", True),
        ({"kind": "PodGroup", "apiVersion": "scheduling.x-k8s.io/v1alpha1", "name": "g"}, "g", False),
        ({"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1alpha2", "name": "h"}, "g", False),
        ({"kind": "Pod", "apiVersion": "v1", "name": "g"}, "g", False),
    ],
)
def test_a_claim_from_a_template_may_be_of_the_pods_group(owner: dict[str, Any], group: str, found: bool) -> None:
    metadata = {"name": "made", "namespace": "default", "ownerReferences": [{**owner, "uid": "u", "controller": True}]}
    claims = {"default/made": convert(ResourceClaim, {"metadata": metadata, "spec": {}})}
    use = {"name": "c", "resourceClaimTemplateName": "t"}
    spec = {"schedulingGroup": {"podGroupName": group}, "resourceClaims": [use]}
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "made"}]}
    said = own_claims(pod_from({"metadata": {"name": "p"}, "spec": spec, "status": status}), claims)
    refused = "ResourceClaim default/made was not created for Pod default/p (neither Pod nor PodGroup g is the owner)"
    assert said == ([claims["default/made"]] if found else refused)
