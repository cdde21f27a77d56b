"""A pod made of its load, for those who read no more of a placed pod than what it occupies and means to others."""

from services.snapshot.state.placements import Placement
from shared.model.load import PodLoad, PodTerm
from shared.model.objects import (
    Affinity,
    Container,
    ContainerPort,
    GroupApi,
    GroupRef,
    ObjectMeta,
    PersistentVolumeClaimSource,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSchedulingGroup,
    PodSpec,
    ResourceRequirements,
    Volume,
    WeightedPodAffinityTerm,
)
from shared.model.quantity import parse_quantity


def pod_of_load(uid: str, placement: Placement, group: GroupRef | None = None) -> Pod:
    """`group`: the pod group that it is a member of."""
    load = placement.load
    requests = {name: parse_quantity(f"{n}m" if name == "cpu" else n) for name, n in load.requests.items()}
    ports = [ContainerPort(host_ip=port.ip, protocol=port.protocol, host_port=port.port) for port in load.ports]
    claims = [
        Volume(name=f"claim-{i}", persistent_volume_claim=PersistentVolumeClaimSource(claim_name=name))
        for i, name in enumerate(load.claims)
    ]
    name = placement.key.partition("/")[2]
    return Pod(
        metadata=ObjectMeta(name=name, namespace=load.namespace, uid=uid, labels=load.labels),
        spec=PodSpec(
            node_name=placement.node,
            priority=load.priority,
            containers=[Container(resources=ResourceRequirements(requests=requests), ports=ports)],
            volumes=[*claims, *load.disks],
            affinity=_affinity(load) if load.terms else None,
            scheduling_group=_scheduling_group(group),
        ),
    )


def _scheduling_group(group: GroupRef | None) -> PodSchedulingGroup | None:
    """None for a group that pods name by a label, which their loads have."""
    if group is None or group.api is not GroupApi.SCHEDULING:
        return None
    return PodSchedulingGroup(pod_group_name=group.name)


def _affinity(load: PodLoad) -> Affinity:
    return Affinity(pod_affinity=_terms(load, "affinity"), pod_anti_affinity=_terms(load, "anti"))


def _terms(load: PodLoad, kind: str) -> PodAffinity:
    terms = [term for term in load.terms if term.kind == kind]
    return PodAffinity(
        required=[_term(term) for term in terms if not term.weight],
        preferred=[
            WeightedPodAffinityTerm(weight=term.weight, pod_affinity_term=_term(term)) for term in terms if term.weight
        ],
    )


def _term(term: PodTerm) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=term.topology_key,
        label_selector=term.selector,
        namespaces=list(term.namespaces),
        namespace_selector=term.namespace_selector,
    )
