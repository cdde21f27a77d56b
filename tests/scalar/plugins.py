"""kube-scheduler's plugins, slowly: one node at a time, everything computed again for each question.

A plugin that keeps a state between extension points has `unprepared`: what it answers at Filter if its PreFilter did
not run, or at Score if its PreScore did not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flotilla.results import Status, error, unresolvable, unschedulable
from shared.config.args import (
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
)
from shared.model.affinity import is_tolerated
from shared.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Pod,
    TopologySpreadConstraint,
)
from shared.model.objects import (
    NodeAffinity as NodeAffinitySpec,
)
from shared.model.resources import balance_score_request, host_ports
from shared.model.selectors import label_selector_matches
from tests.plugins import scalar
from tests.plugins.interpodaffinity import scalar as affinity
from tests.plugins.podtopologyspread import reference as spreading
from tests.scalar.cluster import Cluster, NodeInfo

MISMATCH = "node(s) didn't match pod topology spread constraints"


class Skip(Exception):
    """The plugin's Filter or Score does not run for this pod."""


class Rejected(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


@dataclass
class Cycle:
    """One pod's attempt. `prepared`, `scorable`: the plugins whose PreFilter or PreScore left a state."""

    cluster: Cluster
    pod: Pod
    prepared: set[str] = field(default_factory=set)
    scorable: set[str] = field(default_factory=set)
    state: dict[str, Any] = field(default_factory=dict)


class Plugin:
    name = ""
    unprepared: str | None = None
    unscorable: str | None = None

    def __init__(self, args: Any) -> None:
        pass

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        """The only nodes to consider, if it restricts them."""
        return None

    def filter(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        """Why the pod does not fit."""
        return self.lacks_state(cycle) or self.judge(cycle, info)

    def lacks_state(self, cycle: Cycle) -> Status | None:
        if self.unprepared is None or self.name in cycle.prepared:
            return None
        return error(self.unprepared)

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        return None

    def pre_score(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> None:
        pass

    def scores(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> list[int]:
        """Normalized."""
        return [self.score(cycle, info) for info in feasible]

    def score(self, cycle: Cycle, info: NodeInfo) -> int:
        return 0


def to_highest(raw: Sequence[int], *, reverse: bool = False) -> list[int]:
    highest = max(raw)
    if highest == 0:
        return [100 if reverse else 0 for _ in raw]
    scaled = [100 * each // highest for each in raw]
    return [100 - each for each in scaled] if reverse else scaled


class NodeName(Plugin):
    name = "NodeName"

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        return scalar.name_status(cycle.pod, info.host)


class NodeUnschedulable(Plugin):
    name = "NodeUnschedulable"

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        return scalar.unschedulable_status(cycle.pod, info.host)


class TaintToleration(Plugin):
    name = "TaintToleration"
    unscorable = 'failed to read "PreScoreTaintToleration" from cycleState: not found'

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        return scalar.taint_status(cycle.pod, info.host)

    def scores(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> list[int]:
        return to_highest([_disliked(cycle.pod, info) for info in feasible], reverse=True)


def _disliked(pod: Pod, info: NodeInfo) -> int:
    """Only tolerations for PreferNoSchedule, or for all effects, count."""
    soft = [each for each in pod.spec.tolerations if each.effect in ("", "PreferNoSchedule")]
    return sum(taint.effect == "PreferNoSchedule" and not is_tolerated(taint, soft) for taint in info.node.spec.taints)


class NodeAffinity(Plugin):
    name = "NodeAffinity"

    def __init__(self, args: NodeAffinityArgs) -> None:
        self._added = args.added_affinity

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        own = _node_affinity(cycle.pod)
        required = None if own is None else own.required
        if required is None and not cycle.pod.spec.node_selector:
            if self._added is None or self._added.required is None:
                raise Skip
            return None
        if required is None or not required.node_selector_terms:
            return None
        named: set[str] = set()
        for term in required.node_selector_terms:
            of_term: set[str] | None = None
            for each in term.match_fields:
                if each.key == "metadata.name" and each.operator == "In":
                    of_term = set(each.values) if of_term is None else of_term & set(each.values)
            if of_term is None:
                return None
            named |= of_term
        if not named:
            raise Rejected(unresolvable("pod affinity terms conflict"))
        return named

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        return scalar.affinity_status(cycle.pod, info.host, self._added)

    def pre_score(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> None:
        own = _node_affinity(cycle.pod)
        if not (own is not None and own.preferred) and not (self._added is not None and self._added.preferred):
            raise Skip

    def scores(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> list[int]:
        return to_highest([scalar.affinity_score(cycle.pod, info.host, self._added) for info in feasible])


def _node_affinity(pod: Pod) -> NodeAffinitySpec | None:
    return None if pod.spec.affinity is None else pod.spec.affinity.node_affinity


class NodePorts(Plugin):
    name = "NodePorts"
    unprepared = 'reading "PreFilterNodePorts" from cycleState: not found'

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        if not list(host_ports(cycle.pod)):
            raise Skip
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        for wanted in host_ports(cycle.pod):
            for taken in info.ports:
                same = (wanted.port, wanted.protocol) == (taken.port, taken.protocol)
                if same and (wanted.ip == taken.ip or "0.0.0.0" in (wanted.ip, taken.ip)):
                    return unschedulable("node(s) didn't have free ports for the requested pod ports")
        return None


class NodeResourcesFit(Plugin):
    name = "NodeResourcesFit"
    unprepared = 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._args = args

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        return scalar.fit_status(cycle.pod, info.host, self._args)

    def score(self, cycle: Cycle, info: NodeInfo) -> int:
        return scalar.fit_score(cycle.pod, info.host, self._args)


class NodeResourcesBalancedAllocation(Plugin):
    name = "NodeResourcesBalancedAllocation"

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = [resource.name for resource in args.resources]

    def pre_score(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> None:
        if not self._asks(cycle.pod):
            raise Skip

    def score(self, cycle: Cycle, info: NodeInfo) -> int:
        return scalar.balanced_score(cycle.pod, info.host, self._resources) if self._asks(cycle.pod) else 0

    def _asks(self, pod: Pod) -> bool:
        return any(balance_score_request(pod, name) for name in self._resources)


class ImageLocality(Plugin):
    name = "ImageLocality"

    def score(self, cycle: Cycle, info: NodeInfo) -> int:
        """An image has the size that the first node told."""
        sizes: dict[str, int] = {}
        for other in cycle.cluster.infos():
            for image in other.node.status.images:
                for name in image.names:
                    sizes.setdefault(name, image.size_bytes)
        hosts = [_with_sizes(other.host, sizes) for other in cycle.cluster.infos()]
        return scalar.image_score(cycle.pod, _with_sizes(info.host, sizes), hosts)


def _with_sizes(host: scalar.Host, sizes: Mapping[str, int]) -> scalar.Host:
    """With each name of an image as an image of its own."""
    images = [
        msgspec.structs.replace(image, names=[name], size_bytes=sizes[name])
        for image in host.node.status.images
        for name in image.names
    ]
    status = msgspec.structs.replace(host.node.status, images=images)
    return scalar.Host(msgspec.structs.replace(host.node, status=status), host.pods)


class NodeDeclaredFeatures(Plugin):
    name = "NodeDeclaredFeatures"
    unprepared = 'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found'

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        if not _features(cycle.pod):
            raise Skip
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        if _features(cycle.pod) <= set(info.node.status.declared_features):
            return None
        return unresolvable("node(s) didn't match Pod's required features")


def _features(pod: Pod) -> set[str]:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    found: set[str] = set()
    if any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules):
        found.add("RestartAllContainersOnContainerExits")
    if pod.spec.host_network and pod.spec.host_users is False:
        found.add("UserNamespacesHostNetworkSupport")
    return found


class InterPodAffinity(Plugin):
    name = "InterPodAffinity"
    unprepared = 'error reading "PreFilterInterPodAffinity" from cycleState: not found'
    unscorable = 'failed to read "PreScoreInterPodAffinity" from cycleState: not found'

    def __init__(self, args: InterPodAffinityArgs) -> None:
        self._weight = args.hard_pod_affinity_weight
        self._ignores = args.ignore_preferred_terms_of_existing_pods

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        if affinity.skips_filter(cycle.cluster.affinity_view(), cycle.pod):
            raise Skip
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        view = cycle.cluster.affinity_view(info)
        reason = affinity.reason(view, cycle.pod, cycle.cluster.index(info.node.name))
        if reason is None:
            return None
        return unresolvable(reason) if reason == affinity.NOT_AFFINE else unschedulable(reason)

    def pre_score(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> None:
        if not affinity.contributions(cycle.cluster.affinity_view(), cycle.pod, self._weight, self._ignores):
            raise Skip

    def scores(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> list[int]:
        view, index = cycle.cluster.affinity_view(), cycle.cluster.index
        raw = [affinity.score(view, cycle.pod, index(info.node.name), self._weight, self._ignores) for info in feasible]
        low, high = min(raw), max(raw)
        return [int(100.0 * ((each - low) / (high - low))) if high > low else 0 for each in raw]


SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"
    ),
)


class PodTopologySpread(Plugin):
    name = "PodTopologySpread"
    unprepared = 'reading "PreFilterPodTopologySpread" from cycleState: not found'
    unscorable = 'error reading "PreScorePodTopologySpread" from cycleState: not found'

    def __init__(self, args: PodTopologySpreadArgs) -> None:
        self._system = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system else args.default_constraints

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        if not self._constraints(cycle, "DoNotSchedule"):
            raise Skip
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        hosts = cycle.cluster.spreading_view(info)
        host = next(each for each in hosts if each.node.name == info.node.name)
        verdict = spreading.verdict(cycle.pod, self._constraints(cycle, "DoNotSchedule"), hosts, host)
        if verdict == spreading.FITS:
            return None
        if verdict == spreading.NO_LABEL:
            return unresolvable(f"{MISMATCH} (missing required label)")
        return unschedulable(MISMATCH)

    def pre_score(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> None:
        if not self._constraints(cycle, "ScheduleAnyway"):
            raise Skip

    def scores(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> list[int]:
        hosts = {host.node.name: host for host in cycle.cluster.spreading_view()}
        every_key = bool(cycle.pod.spec.topology_spread_constraints) or not self._system
        found = spreading.scores(
            cycle.pod,
            self._constraints(cycle, "ScheduleAnyway"),
            list(hosts.values()),
            [hosts[info.node.name] for info in feasible],
            every_key=every_key,
        )
        return [found[info.node.name] for info in feasible]

    def _constraints(self, cycle: Cycle, action: str) -> list[TopologySpreadConstraint]:
        own = cycle.pod.spec.topology_spread_constraints
        if own:
            return [each for each in own if each.when_unsatisfiable == action]
        selector = default_selector(cycle)
        if selector is None:
            return []
        return [_with_selector(each, selector) for each in self._defaults if each.when_unsatisfiable == action]


def _with_selector(constraint: TopologySpreadConstraint, selector: LabelSelector) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        min_domains=constraint.min_domains,
        node_affinity_policy=constraint.node_affinity_policy,
        node_taints_policy=constraint.node_taints_policy,
        label_selector=selector,
    )


def default_selector(cycle: Cycle) -> LabelSelector | None:
    """What services and the controller of a pod select, together; None if nothing."""
    pod, objects = cycle.pod, cycle.cluster.objects
    labels: dict[str, str] = {}
    for service in objects.services.values():
        chosen: Mapping[str, str] = service.spec.selector
        if service.namespace == pod.namespace and chosen and chosen.items() <= pod.metadata.labels.items():
            labels |= chosen
    expressions: list[LabelSelectorRequirement] = []
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is not None:
        key = f"{pod.namespace}/{owner.name}"
        if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
            controller = objects.replication_controllers.get(key)
            labels |= {} if controller is None else controller.spec.selector
        elif owner.api_version == "apps/v1" and owner.kind in ("ReplicaSet", "StatefulSet"):
            kinds: dict[str, Mapping[str, Any]] = {
                "ReplicaSet": objects.replica_sets,
                "StatefulSet": objects.stateful_sets,
            }
            found = kinds[owner.kind].get(key)
            if found is not None and found.spec.selector is not None:
                more = found.spec.selector
                expressions += [
                    LabelSelectorRequirement(key=each, operator="In", values=[value])
                    for each, value in more.match_labels.items()
                ]
                expressions += more.match_expressions
    if not labels and not expressions:
        return None
    return LabelSelector(match_labels=labels, match_expressions=expressions)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """As for disruption budgets: an empty selector selects nothing."""
    if selector is None or not (selector.match_labels or selector.match_expressions) or not labels:
        return False
    return label_selector_matches(selector, labels)
