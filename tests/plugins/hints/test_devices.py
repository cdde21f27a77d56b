"""What DynamicResources waits for."""

from typing import Any

import pytest

from flotilla.events import Action, Resource
from shared.cluster.objects import ClusterObjects
from shared.model.objects import ObjectKind, Pod, ResourceClaim, object_from, pod_from
from shared.plugins.dynamicresources import DynamicResources, usable_claims
from testing.builders import node, pod
from tests.plugins.hints.asking import helps

PLUGIN = DynamicResources()
CAME = (Resource.RESOURCE_CLAIM, Action.ADD)
CHANGED = (Resource.RESOURCE_CLAIM, Action.UPDATE)
GENERATED = (Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)

NAMING = pod("p").resource_claim("r", "c")
ALLOCATED: dict[str, Any] = {"allocation": {"devices": {}}}
RESERVED: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": "q", "uid": "u"}]}


def claim(name: str = "c", status: dict[str, Any] | None = None, **metadata: object) -> ResourceClaim:
    made = object_from(
        ObjectKind.RESOURCE_CLAIM, {"metadata": {"name": name, **metadata}, "spec": {}, "status": status or {}}
    )
    assert isinstance(made, ResourceClaim)
    return made


def owned_by(*uids: str, controller: bool = True) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "controller": controller} for uid in uids]


def knowing(*claims: ResourceClaim) -> ClusterObjects:
    objects = ClusterObjects()
    for each in claims:
        objects.upsert(each)
    return objects


def templated(*statuses: dict[str, Any]) -> Pod:
    """With a claim that is made for it."""
    return pod_from(
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [], "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": list(statuses)},
        }
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, claim(), True),
        (claim(), claim(status=ALLOCATED), True),
        (claim(status=ALLOCATED), claim(status=ALLOCATED | RESERVED), True),
        (claim(status=ALLOCATED), claim(), True),
        (claim(), claim(labels={"x": "y"}), False),
        (claim(), claim(status={"reservedFor": []}), False),
        (None, claim("other"), False),
        (claim("other"), claim("other", ALLOCATED), False),
        # A device of any pod is free now.
        (claim("other", ALLOCATED), claim("other"), True),
    ],
)
def test_claims_of_ones_own_help_and_devices_that_are_given_back(
    before: ResourceClaim | None, now: ResourceClaim, expected: bool
) -> None:
    known = knowing(claim(), now)
    assert helps(PLUGIN, CAME if before is None else CHANGED, NAMING, before, now, known) is expected


@pytest.mark.parametrize(
    "known",
    [knowing(), knowing(claim(namespace="elsewhere")), knowing(claim(deletionTimestamp="2026-01-01T00:00:00Z"))],
)
def test_nothing_helps_while_a_claim_is_missing(known: ClusterObjects) -> None:
    assert not helps(PLUGIN, CHANGED, NAMING, claim("other", ALLOCATED), claim("other"), known)


def test_a_claim_of_the_name_that_is_another_one_does_not_help() -> None:
    assert not helps(PLUGIN, CAME, NAMING, None, claim(uid="2"), knowing(claim(uid="1")))


MADE = {"name": "r", "resourceClaimName": "p-r"}


@pytest.mark.parametrize(
    ("waiting", "known", "usable"),
    [
        (templated(), knowing(), None),
        (templated(MADE), knowing(), None),
        (templated(MADE), knowing(claim("p-r", ownerReferences=owned_by("default/p"))), ["p-r"]),
        (templated(MADE), knowing(claim("p-r", ownerReferences=owned_by("default/q"))), None),
        (templated(MADE), knowing(claim("p-r", ownerReferences=owned_by("default/p", controller=False))), None),
        (templated(MADE), knowing(claim("p-r")), None),
        # It was found that none is needed.
        (templated({"name": "r"}), knowing(), []),
        (templated({"name": "other", "resourceClaimName": "p-r"}), knowing(), None),
        (NAMING.build(), knowing(claim(ownerReferences=owned_by("default/q"))), ["c"]),
        (pod("p").build(), knowing(), []),
    ],
)
def test_a_claim_that_was_made_must_be_the_pods_own(
    waiting: Pod, known: ClusterObjects, usable: list[str] | None
) -> None:
    found = usable_claims(waiting, known)
    assert (None if found is None else [each.name for each in found]) == usable


def test_a_pod_helps_itself_when_all_its_claims_are_there() -> None:
    known = knowing(claim("p-r", ownerReferences=owned_by("default/p")))
    (asked,) = [each for each in PLUGIN.events() if each.actions is Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM]
    assert asked.hint is not None
    assert asked.hint(templated(), templated(), templated(MADE), known)
    assert not asked.hint(templated(), templated(), templated(MADE), knowing())
    assert not asked.hint(pod("q").build(), templated(), templated(MADE), known)


@pytest.mark.parametrize(
    "event",
    [
        (Resource.NODE, Action.ADD),
        (Resource.NODE, Action.UPDATE_NODE_LABEL),
        (Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE),
        (Resource.DEVICE_CLASS, Action.UPDATE),
        (Resource.RESOURCE_SLICE, Action.ADD),
    ],
)
def test_any_node_class_or_slice_helps(event: tuple[Resource, Action]) -> None:
    assert helps(PLUGIN, event, NAMING, None, node("n"))
