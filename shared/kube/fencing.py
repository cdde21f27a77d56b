"""Fencing: make sure that no Binding which names a version of a pod can bind it any more.

The API server binds a pod only while it is at the version that the Binding names. So the pod is given another version,
by a condition in its status, unless it has one already; no call that names the old one lands after that, however late
it is carried out, or how often.
"""

from dataclasses import dataclass

from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.events_and_conditions import BindingFenced, ObservedPod, PodRef
from shared.kube.outcome import CallOutcome, CallResult

LOOKS = 4
"""Times that a pod is looked at in one try; it changes between a look and a touch at most so often."""
NOT_THERE = (CallOutcome.NOT_FOUND, CallOutcome.CONFLICT)
"""The touch did not find the pod of this uid; the next look says so."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """What stands at the API server once the fence holds. `standing`: None if the pod is gone."""

    standing: ObservedPod | None


async def fence(client: KubeClient, pod: PodRef, version: str, by: str) -> Fenced:
    """Look, touch if need be, and look again. ClusterError where the server does not say, and the fence may not hold.

    An empty version: calls that name none are fenced as far as they can be, by a touch that they may not notice.
    """
    for _ in range(LOOKS):
        standing = await client.observe_pod(pod.namespace, pod.name)
        if standing is None or standing.uid != pod.uid:
            return Fenced(None)
        version = version or standing.version
        if standing.node or standing.version != version:
            return Fenced(standing)
        await touch(client, pod, version, by)
    raise Unreachable("the API server", f"PATCH {pod.name}", "the pod keeps its version", maybe_done=True)


async def touch(client: KubeClient, pod: PodRef, version: str, by: str) -> CallResult:
    """Give the pod another version. NOT_FOUND or CONFLICT where it is gone; Refused where that is not allowed."""
    result = await client.patch_pod_condition(pod, BindingFenced(version, by))
    if result.ok or result.outcome in NOT_THERE:
        return result
    if result.outcome is CallOutcome.FAILED:
        raise Refused("the API server", f"PATCH {pod.namespace}/{pod.name} status", result.status, result.message)
    return result
