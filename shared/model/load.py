"""The load of a placed pod: what it occupies of its node, and what other pods' decisions depend on."""

from typing import Literal

import msgspec

from shared.model.base import Count, Integer
from shared.model.objects import LabelSelector, Pod, PodAffinity, PodAffinityTerm, Volume
from shared.model.resources import HostPort, host_ports, placed_requests

TermKind = Literal["affinity", "anti"]


class PodTerm(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An affinity or anti-affinity term, as seen from other pods. `weight` 0: required.

    `namespaces`: those listed, or the pod's own if there are none and no namespace selector.
    """

    kind: TermKind
    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None
    weight: Integer = 0


class PodLoad(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Amounts are in scheduler units: cpu in thousandths, everything else in whole units.

    `claims` are the names of the persistent volume claims that the pod uses, those made for it included; `disks` are
    the volumes without a claim that matter to other pods. `preempted`: terminating, as a victim of another pod.
    `group`: its PodGroup of scheduling.k8s.io, in its namespace, with which it may have to be evicted.
    """

    namespace: str
    labels: dict[str, str] = {}
    requests: dict[str, Count] = {}
    non_zero_cpu: Count = 0
    non_zero_memory: Count = 0
    ports: tuple[HostPort, ...] = ()
    terminating: bool = False
    priority: Integer = 0
    terms: tuple[PodTerm, ...] = ()
    claims: tuple[str, ...] = ()
    disks: tuple[Volume, ...] = ()
    preempted: bool = False
    group: str = ""


def load_of(pod: Pod) -> PodLoad:
    placed = placed_requests(pod)
    volumes = pod.spec.volumes
    return PodLoad(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        requests=placed.requests,
        non_zero_cpu=placed.non_zero_cpu,
        non_zero_memory=placed.non_zero_memory,
        ports=host_ports(pod),
        terminating=pod.metadata.deletion_timestamp is not None,
        priority=pod.priority,
        terms=pod_terms(pod) if pod.spec.affinity is not None else (),
        claims=claim_names(pod) if volumes else (),
        disks=tuple(volume for volume in volumes if _matters_to_others(volume)),
        preempted=_makes_way(pod),
        group=group.pod_group_name or "" if (group := pod.spec.scheduling_group) is not None else "",
    )


def pod_terms(pod: Pod) -> tuple[PodTerm, ...]:
    """The terms of its affinity to other pods, required ones first of each kind."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    return (*_terms(pod, "affinity", affinity.pod_affinity), *_terms(pod, "anti", affinity.pod_anti_affinity))


def claim_names(pod: Pod) -> tuple[str, ...]:
    """The names of the claims that a pod uses, in the order of its volumes, ephemeral ones included."""
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.name}-{volume.name}")
    return tuple(names)


def is_read_by_others(volume: Volume) -> bool:
    """Whether the volume is part of a load, as a claim or as a disk."""
    has_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return has_claim or _matters_to_others(volume)


def _terms(pod: Pod, kind: TermKind, affinity: PodAffinity | None) -> list[PodTerm]:
    if affinity is None:
        return []
    required = [_term(pod, kind, term, 0) for term in affinity.required]
    return required + [_term(pod, kind, each.pod_affinity_term, each.weight) for each in affinity.preferred]


def _term(pod: Pod, kind: TermKind, term: PodAffinityTerm, weight: int) -> PodTerm:
    namespaces = tuple(sorted(set(term.namespaces)))
    if not namespaces and term.namespace_selector is None:
        namespaces = (pod.namespace,)
    return PodTerm(kind, term.topology_key, term.label_selector, namespaces, term.namespace_selector, weight)


def _makes_way(pod: Pod) -> bool:
    """Only the first condition of that type counts."""
    if pod.metadata.deletion_timestamp is None:
        return False
    target = next((each for each in pod.status.conditions if each.type == "DisruptionTarget"), None)
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"


def _matters_to_others(volume: Volume) -> bool:
    """Volumes that exclude each other on a node, or count for a limit of in-tree disks or of a CSI driver."""
    return any(
        source is not None
        for source in (
            volume.gce_persistent_disk,
            volume.aws_elastic_block_store,
            volume.azure_disk,
            volume.cinder,
            volume.portworx_volume,
            volume.rbd,
            volume.iscsi,
        )
    )
