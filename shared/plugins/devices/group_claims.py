"""Claims of a pod's PodGroup: reserved for the group once, instead of for each of its pods.

A pod's claim is its group's if the group has one of the same name and from the same source, the same claim or the same
template.
"""

from collections.abc import Generator
from typing import Any

import msgspec

from flotilla.objects import Pod
from flotilla.results import ApiAnswer, ApiCall, Pause
from shared.devices.pod_claims import claim_names
from shared.errors import ClusterError
from shared.model.base import ObjectMeta
from shared.model.devices import SCHEDULING_GROUP
from shared.model.pod import PodSpec, PodStatus
from shared.model.workloads import GROUP_VERSIONS

NOT_FOUND = 404

Object = dict[str, Any]


class _Claim(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    resource_claims: list[_Claim] | None = None


class Group(msgspec.Struct, frozen=True):
    """What reservations need of a PodGroup."""

    metadata: _Metadata
    spec: _Spec = _Spec()


def may_have_claims_of_group(pod: Pod) -> bool:
    """Whether the pod's own claims may be those of its PodGroup; then the binder needs the pod."""
    named = pod.spec.scheduling_group
    return named is not None and bool(named.pod_group_name and pod.spec.resource_claims)


def outline_of(pod: Pod) -> Pod:
    """The pod with nothing but what its claims and those of its group are found by."""
    of, spec = pod.metadata, pod.spec
    return Pod(
        metadata=ObjectMeta(name=of.name, namespace=of.namespace, uid=of.uid, resource_version=of.resource_version),
        spec=PodSpec(
            scheduler_name=spec.scheduler_name,
            scheduling_group=spec.scheduling_group,
            resource_claims=spec.resource_claims,
        ),
        status=PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses),
    )


def read_group(pod: Pod) -> Generator[ApiCall | Pause, ApiAnswer, Group | None]:
    """The pod's group as the API server has it; None if the pod is in none, has no claims, or the group is gone.

    Raises ClusterError if it cannot be read.
    """
    named = pod.spec.scheduling_group
    if named is None or not may_have_claims_of_group(pod):
        return None
    what = f"get pod group {pod.namespace}/{named.pod_group_name}"
    for version in GROUP_VERSIONS:
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/{pod.namespace}/podgroups/{named.pod_group_name}"
        answer = yield ApiCall("GET", path, {})
        if answer.ok:
            try:
                return msgspec.json.decode(answer.body, type=Group)
            except msgspec.DecodeError as cause:
                raise ClusterError(f"{what}: {cause}") from cause
        if answer.status != NOT_FOUND:
            raise ClusterError(f"{what}: {answer.message}")
    return None


def consumers_of(pod: Pod, group: Group | None) -> dict[str, Object]:
    """Whom each claim of the pod is reserved for, by `namespace/name`, if that is the group."""
    if group is None:
        return {}
    of_group = {
        (each.name, each.resource_claim_name, each.resource_claim_template_name)
        for each in group.spec.resource_claims or ()
    }
    of = group.metadata
    consumer = {"apiGroup": SCHEDULING_GROUP, "resource": "podgroups", "name": of.name, "uid": of.uid}
    found: dict[str, Object] = {}
    for use in pod.spec.resource_claims:
        if (use.name, use.resource_claim_name, use.resource_claim_template_name) in of_group:
            names = claim_names(pod.namespace, [use], pod.status.resource_claim_statuses)
            found |= {each.key: consumer for each in names}
    return found


def is_group(consumer: Object, name: str) -> bool:
    """Whether a claim is reserved by this for the PodGroup of this name; not if the name is empty."""
    found = (consumer.get("apiGroup"), consumer.get("resource"), consumer.get("name"))
    return bool(name) and found == (SCHEDULING_GROUP, "podgroups", name)
