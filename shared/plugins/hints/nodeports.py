"""When a pod whose host ports were taken everywhere is worth another attempt."""

from flotilla.objects import ClusterObjects
from shared.model.objects import Pod
from shared.model.resources import host_ports
from shared.plugins.hints.anypod import holds_place
from shared.plugins.hostports import conflict


def after_pod_gone(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The pod that is gone had one of the ports."""
    if not holds_place(before):
        return False
    freed = host_ports(before)
    return bool(freed) and any(conflict(wanted, port) for wanted in host_ports(pod) for port in freed)
