"""Pods as the watch shows them after a nomination or a preemption."""

import msgspec

from shared.model.objects import Pod, PodCondition


def nominated(pod: Pod, node: str) -> Pod:
    """The pod with this nominated node; an empty name clears it."""
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def terminating(pod: Pod, now: str) -> Pod:
    """The pod while it terminates as a victim of preemption."""
    preempted = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    status = msgspec.structs.replace(pod.status, conditions=[*pod.status.conditions, preempted])
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
    return msgspec.structs.replace(pod, metadata=metadata, status=status)
