"""Pods as the API server has them, and how they change when others are to have their room."""

import msgspec

from shared.model.objects import Pod, PodCondition


def nominated(pod: Pod, node: str) -> Pod:
    """As the watch shows it once its status names the node; none, if that is empty."""
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def going(pod: Pod, now: str) -> Pod:
    """As the watch shows it while it goes, to make way."""
    preempted = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    status = msgspec.structs.replace(pod.status, conditions=[*pod.status.conditions, preempted])
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
    return msgspec.structs.replace(pod, metadata=metadata, status=status)
