"""What a pod that holds a place contributes to its node: the part of a pod that other pods' decisions can see."""

import msgspec

from shared.model.objects import Pod
from shared.model.resources import HostPort, host_ports, placed_requests


class PodLoad(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Amounts are in scheduler units: cpu in thousandths, everything else in whole units."""

    namespace: str
    labels: dict[str, str] = {}
    requests: dict[str, int] = {}
    non_zero_cpu: int = 0
    non_zero_memory: int = 0
    ports: tuple[HostPort, ...] = ()
    terminating: bool = False


def load_of(pod: Pod) -> PodLoad:
    placed = placed_requests(pod)
    return PodLoad(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        requests=placed.requests,
        non_zero_cpu=placed.non_zero_cpu,
        non_zero_memory=placed.non_zero_memory,
        ports=host_ports(pod),
        terminating=pod.metadata.deletion_timestamp is not None,
    )
