"""Fencing: ensures that no Binding that names a given version of a pod can bind it any more.

The API server binds a pod only at the version that the Binding names. So the pod is given another version, by a status
condition, unless it has one already; no call that names the old one succeeds after that, however late or often.
"""

from dataclasses import dataclass

from shared.kube.client import KubeClient
from shared.kube.errors import Refused, Unreachable
from shared.kube.events_and_conditions import BindingFenced, ObservedPod, PodRef
from shared.kube.outcome import CallOutcome, CallResult

MAX_READS = 4
"""Reads of the pod in one try; so often it may change between a read and a patch."""
NOT_THERE = (CallOutcome.NOT_FOUND, CallOutcome.CONFLICT)
"""The patch did not find the pod of this uid; the next read shows why."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The pod as the API server has it once the fence holds; `observed` None: it is gone."""

    observed: ObservedPod | None


async def fence(client: KubeClient, pod: PodRef, version: str, by: str) -> Fenced:
    """Read, patch if necessary, and read again. ClusterError if the server does not answer, and the fence may not hold.

    Empty `version`: the calls name none, so a patch that they may not notice is all that can be done.
    """
    for _ in range(MAX_READS):
        observed = await client.observe_pod(pod.namespace, pod.name)
        if observed is None or observed.uid != pod.uid:
            return Fenced(None)
        version = version or observed.version
        if observed.node or observed.version != version:
            return Fenced(observed)
        await touch(client, pod, version, by)
    raise Unreachable("the API server", f"PATCH {pod.name}", "the pod kept its version", maybe_done=True)


async def touch(client: KubeClient, pod: PodRef, version: str, by: str) -> CallResult:
    """Give the pod another version. NOT_FOUND or CONFLICT if it is gone; Refused if that is forbidden."""
    result = await client.patch_pod_condition(pod, BindingFenced(version, by))
    if result.ok or result.outcome in NOT_THERE:
        return result
    if result.outcome is CallOutcome.FAILED:
        raise Refused("the API server", f"PATCH {pod.namespace}/{pod.name} status", result.status, result.message)
    return result
