"""Pods and nodes for tests, in one readable line each. Every method returns a new builder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from msgspec.structs import replace

from flotilla.plugin import ClassState
from shared.cluster.objects import ClusterObjects
from shared.model.objects import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeAffinity,
    NodeCondition,
    NodeOperator,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    PersistentVolumeClaimSource,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodCondition,
    PodResourceClaim,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceList,
    ResourceRequirements,
    SchedulingGate,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
)
from shared.model.quantity import parse_quantity

Amount = str | int | float
Amounts = Mapping[str, Amount] | None
Labels = Mapping[str, str] | None


def resource_list(amounts: Amounts = None, **more: Amount) -> ResourceList:
    """Quantities by resource name; in keywords an underscore stands for a dash, as in `ephemeral_storage`."""
    quantities = {name: parse_quantity(amount) for name, amount in (amounts or {}).items()}
    return quantities | {name.replace("_", "-"): parse_quantity(amount) for name, amount in more.items()}


def expr(key: str, operator: NodeOperator, *values: str) -> NodeSelectorRequirement:
    """A condition on a node's labels."""
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


def term(*requirements: NodeSelectorRequirement, name: str | None = None) -> NodeSelectorTerm:
    """A node selector term; `name` adds the condition that the node has this name."""
    fields = [] if name is None else [expr("metadata.name", "In", name)]
    return NodeSelectorTerm(match_expressions=list(requirements), match_fields=fields)


def selector(labels: Labels = None, *requirements: LabelSelectorRequirement, **more: str) -> LabelSelector:
    """A label selector."""
    return LabelSelector(match_labels={**(labels or {}), **more}, match_expressions=list(requirements))


def class_state(pod: Pod, objects: ClusterObjects | None = None) -> ClassState:
    """The state that plugins are given for the class of this pod."""
    return ClassState(pod, ClusterObjects() if objects is None else objects)


@dataclass(frozen=True, slots=True)
class PodBuilder:
    """A pod in the making. Requests and ports go to the container that was added last."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus

    def build(self) -> Pod:
        """The pod, with its uid filled as decoding does."""
        uid = self.metadata.uid or f"{self.metadata.namespace}/{self.metadata.name}"
        return Pod(metadata=replace(self.metadata, uid=uid), spec=self.spec, status=self.status)

    def namespace(self, namespace: str) -> Self:
        return self._meta(namespace=namespace)

    def uid(self, uid: str) -> Self:
        return self._meta(uid=uid)

    def label(self, labels: Labels = None, **more: str) -> Self:
        return self._meta(labels={**self.metadata.labels, **(labels or {}), **more})

    def owner(self, kind: str, name: str, uid: str = "", api_version: str = "apps/v1") -> Self:
        """Managed by a controller."""
        reference = OwnerReference(
            api_version=api_version, kind=kind, name=name, uid=uid or f"{kind}/{name}", controller=True
        )
        return self._meta(owner_references=[*self.metadata.owner_references, reference])

    def created(self, timestamp: str) -> Self:
        return self._meta(creation_timestamp=timestamp)

    def terminating(self, timestamp: str = "2024-01-01T00:00:00Z") -> Self:
        return self._meta(deletion_timestamp=timestamp)

    def on(self, node_name: str) -> Self:
        return self._spec(node_name=node_name)

    def priority(self, priority: int) -> Self:
        return self._spec(priority=priority)

    def never_preempting(self) -> Self:
        return self._spec(preemption_policy="Never")

    def in_group(self, name: str) -> Self:
        """Of scheduling.k8s.io."""
        return self._spec(scheduling_group=PodSchedulingGroup(pod_group_name=name))

    def scheduler(self, name: str) -> Self:
        return self._spec(scheduler_name=name)

    def gate(self, name: str) -> Self:
        return self._spec(scheduling_gates=[*self.spec.scheduling_gates, SchedulingGate(name=name)])

    def container(self, name: str = "", image: str = "") -> Self:
        """One more container; the first one named takes the place of the unnamed one that a pod starts with."""
        containers = self.spec.containers
        kept = [] if containers == [Container()] else containers
        added = Container(name=name or f"c{len(kept)}", image=image)
        return self._spec(containers=[*kept, added])

    def init_container(
        self, amounts: Amounts = None, *, name: str = "", image: str = "", sidecar: bool = False, **more: Amount
    ) -> Self:
        """One more init container with these requests."""
        added = Container(
            name=name or f"init{len(self.spec.init_containers)}",
            image=image,
            resources=ResourceRequirements(requests=resource_list(amounts, **more)),
            restart_policy="Always" if sidecar else None,
        )
        return self._spec(init_containers=[*self.spec.init_containers, added])

    def request(self, amounts: Amounts = None, **more: Amount) -> Self:
        resources = self.spec.containers[-1].resources
        requests = resources.requests | resource_list(amounts, **more)
        return self._last_container(resources=replace(resources, requests=requests))

    def limit(self, amounts: Amounts = None, **more: Amount) -> Self:
        resources = self.spec.containers[-1].resources
        return self._last_container(
            resources=replace(resources, limits=resources.limits | resource_list(amounts, **more))
        )

    def host_port(self, port: int, protocol: str = "TCP", ip: str = "") -> Self:
        added = ContainerPort(container_port=port, host_port=port, protocol=protocol, host_ip=ip)
        return self._last_container(ports=[*self.spec.containers[-1].ports, added])

    def overhead(self, amounts: Amounts = None, **more: Amount) -> Self:
        return self._spec(overhead=resource_list(amounts, **more))

    def pod_request(self, amounts: Amounts = None, **more: Amount) -> Self:
        """Requests of the pod as a whole."""
        return self._spec(resources=ResourceRequirements(requests=resource_list(amounts, **more)))

    def node_selector(self, labels: Labels = None, **more: str) -> Self:
        return self._spec(node_selector={**self.spec.node_selector, **(labels or {}), **more})

    def tolerate(self, key: str = "", value: str | None = None, effect: str = "") -> Self:
        """Tolerate a taint: of this value or, without one, of any; without a key, any taint."""
        if value is None:
            return self.toleration(Toleration(key=key, operator="Exists", effect=effect))
        return self.toleration(Toleration(key=key, value=value, effect=effect))

    def toleration(self, toleration: Toleration) -> Self:
        return self._spec(tolerations=[*self.spec.tolerations, toleration])

    def require_node(self, *terms: NodeSelectorTerm | NodeSelectorRequirement) -> Self:
        """One of these terms must match; a lone requirement is a term of its own."""
        affinity = self._node_affinity()
        before = affinity.required.node_selector_terms if affinity.required else []
        required = NodeSelector(node_selector_terms=[*before, *map(_as_term, terms)])
        return self._affinity(node_affinity=replace(affinity, required=required))

    def prefer_node(self, weight: int, preference: NodeSelectorTerm | NodeSelectorRequirement) -> Self:
        affinity = self._node_affinity()
        added = PreferredSchedulingTerm(weight=weight, preference=_as_term(preference))
        return self._affinity(node_affinity=replace(affinity, preferred=[*affinity.preferred, added]))

    def require_pods(self, topology_key: str, labels: LabelSelector | None, *namespaces: str) -> Self:
        """Only near pods that match."""
        return self._pod_affinity("pod_affinity", topology_key, labels, namespaces)

    def require_no_pods(self, topology_key: str, labels: LabelSelector | None, *namespaces: str) -> Self:
        """Only far from pods that match."""
        return self._pod_affinity("pod_anti_affinity", topology_key, labels, namespaces)

    def prefer_pods(self, weight: int, topology_key: str, labels: LabelSelector | None, *namespaces: str) -> Self:
        """Rather near pods that match."""
        return self._pod_affinity("pod_affinity", topology_key, labels, namespaces, weight)

    def prefer_no_pods(self, weight: int, topology_key: str, labels: LabelSelector | None, *namespaces: str) -> Self:
        """Rather far from pods that match."""
        return self._pod_affinity("pod_anti_affinity", topology_key, labels, namespaces, weight)

    def affinity(self, affinity: Affinity) -> Self:
        return self._spec(affinity=affinity)

    def spread(self, constraint: TopologySpreadConstraint) -> Self:
        return self._spec(topology_spread_constraints=[*self.spec.topology_spread_constraints, constraint])

    def spread_hard(self, topology_key: str, labels: LabelSelector | None, max_skew: int = 1) -> Self:
        return self._spread("DoNotSchedule", topology_key, labels, max_skew)

    def spread_soft(self, topology_key: str, labels: LabelSelector | None, max_skew: int = 1) -> Self:
        return self._spread("ScheduleAnyway", topology_key, labels, max_skew)

    def volume(self, volume: Volume) -> Self:
        return self._spec(volumes=[*self.spec.volumes, volume])

    def claim(self, claim_name: str) -> Self:
        """A volume from a persistent volume claim."""
        source = PersistentVolumeClaimSource(claim_name=claim_name)
        return self.volume(Volume(name=claim_name, persistent_volume_claim=source))

    def resource_claim(self, name: str, claim_name: str | None = None) -> Self:
        added = PodResourceClaim(name=name, resource_claim_name=claim_name or name)
        return self._spec(resource_claims=[*self.spec.resource_claims, added])

    def group(self, name: str) -> Self:
        return self._spec(scheduling_group=PodSchedulingGroup(pod_group_name=name))

    def nominated(self, node_name: str) -> Self:
        return self._status(nominated_node_name=node_name)

    def phase(self, phase: str) -> Self:
        return self._status(phase=phase)

    def started(self, timestamp: str) -> Self:
        return self._status(start_time=timestamp)

    def condition(self, type: str, status: str = "True", reason: str = "") -> Self:
        added = PodCondition(type=type, status=status, reason=reason)
        return self._status(conditions=[*self.status.conditions, added])

    def with_status(self, status: PodStatus) -> Self:
        return self._with(status=status)

    def _node_affinity(self) -> NodeAffinity:
        return self._affinities().node_affinity or NodeAffinity()

    def _affinities(self) -> Affinity:
        return self.spec.affinity or Affinity()

    def _affinity(self, **changes: object) -> Self:
        return self._spec(affinity=replace(self._affinities(), **changes))

    def _spread(self, when: str, topology_key: str, labels: LabelSelector | None, max_skew: int) -> Self:
        constraint = TopologySpreadConstraint(
            max_skew=max_skew, topology_key=topology_key, when_unsatisfiable=when, label_selector=labels
        )
        return self.spread(constraint)

    def _pod_affinity(
        self,
        field: Literal["pod_affinity", "pod_anti_affinity"],
        topology_key: str,
        labels: LabelSelector | None,
        namespaces: tuple[str, ...],
        weight: int | None = None,
    ) -> Self:
        """Add a term: preferred if it has a weight, else required."""
        before: PodAffinity = getattr(self._affinities(), field) or PodAffinity()
        added = PodAffinityTerm(topology_key=topology_key, label_selector=labels, namespaces=list(namespaces))
        if weight is None:
            after = replace(before, required=[*before.required, added])
        else:
            weighted = WeightedPodAffinityTerm(weight=weight, pod_affinity_term=added)
            after = replace(before, preferred=[*before.preferred, weighted])
        return self._affinity(**{field: after})

    def _last_container(self, **changes: object) -> Self:
        *others, last = self.spec.containers
        return self._spec(containers=[*others, replace(last, **changes)])

    def _meta(self, **changes: object) -> Self:
        return self._with(metadata=replace(self.metadata, **changes))

    def _spec(self, **changes: object) -> Self:
        return self._with(spec=replace(self.spec, **changes))

    def _status(self, **changes: object) -> Self:
        return self._with(status=replace(self.status, **changes))

    def _with(
        self, metadata: ObjectMeta | None = None, spec: PodSpec | None = None, status: PodStatus | None = None
    ) -> Self:
        return type(self)(metadata or self.metadata, spec or self.spec, status or self.status)


@dataclass(frozen=True, slots=True)
class NodeBuilder:
    """A node in the making."""

    metadata: ObjectMeta
    spec: NodeSpec
    status: NodeStatus

    def build(self) -> Node:
        return Node(metadata=self.metadata, spec=self.spec, status=self.status)

    def capacity(self, amounts: Amounts = None, **more: Amount) -> Self:
        """Add to, or change, what is allocatable."""
        return self._status(allocatable=self.status.allocatable | resource_list(amounts, **more))

    def label(self, labels: Labels = None, **more: str) -> Self:
        metadata = replace(self.metadata, labels={**self.metadata.labels, **(labels or {}), **more})
        return type(self)(metadata, self.spec, self.status)

    def annotate(self, key: str, value: str) -> Self:
        metadata = replace(self.metadata, annotations={**self.metadata.annotations, key: value})
        return type(self)(metadata, self.spec, self.status)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        return self._spec(taints=[*self.spec.taints, Taint(key=key, value=value, effect=effect)])

    def unschedulable(self) -> Self:
        return self._spec(unschedulable=True)

    def image(self, name: str, size_bytes: int = 0, *other_names: str) -> Self:
        added = ContainerImage(names=[name, *other_names], size_bytes=size_bytes)
        return self._status(images=[*self.status.images, added])

    def condition(self, type: str, status: str = "True") -> Self:
        return self._status(conditions=[*self.status.conditions, NodeCondition(type=type, status=status)])

    def _spec(self, **changes: object) -> Self:
        return type(self)(self.metadata, replace(self.spec, **changes), self.status)

    def _status(self, **changes: object) -> Self:
        return type(self)(self.metadata, self.spec, replace(self.status, **changes))


def pod(name: str, namespace: str = "default") -> PodBuilder:
    """A pending pod with one container that requests nothing."""
    return PodBuilder(ObjectMeta(name=name, namespace=namespace), PodSpec(containers=[Container()]), PodStatus())


def node(name: str) -> NodeBuilder:
    """A node that takes 110 pods and has no other resource."""
    return NodeBuilder(ObjectMeta(name=name), NodeSpec(), NodeStatus(allocatable=resource_list(pods=110)))


def _as_term(part: NodeSelectorTerm | NodeSelectorRequirement) -> NodeSelectorTerm:
    return part if isinstance(part, NodeSelectorTerm) else term(part)
