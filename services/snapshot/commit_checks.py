"""Validates what a commit asks for, independently of what workers and cycle found.

First, the pod must be what the watch shows. Second, nothing may have happened to its node, or to what the decision
rests on, since the evaluation: that is a conflict, not a fault. Third, what did not change since is verified
against the snapshot's own state: room, ports, volumes, victims. A violation there is a fault of the worker that
evaluated the node: a defect, or a lie.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from services.snapshot.device_checks import DeviceChecks
from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.pending_pods import PendingPods
from shared.cluster.eviction_units import family_of, unit_of
from shared.cluster.volumes import VolumeDecision
from shared.config.args import NodeResourcesFitArgs
from shared.config.feature_gates import Feature
from shared.config.points import ExtensionPoint
from shared.config.structs import KubeSchedulerConfig
from shared.devices.pools import DeviceNode
from shared.messages.queue import POD_GONE
from shared.messages.state import EPOCH_SHIFT, Conflict, Decision, FaultKind, Nominate
from shared.model.devices import AllocationResult
from shared.model.load import PodLoad
from shared.model.resources import PODS, HostPort, is_extended_resource
from shared.plugins.single_node import conflict as ports_conflict
from shared.plugins.volumes.podvolumes import clash as disks_clash


class ProfileFilters(msgspec.Struct, frozen=True):
    """Which filters a profile runs; the snapshot enforces no other.

    `resources`: NodeResourcesFit, without the extended resources that it ignores; `ports`: NodePorts; `volumes`:
    VolumeRestrictions; `binding`: VolumeBinding; `devices`: DynamicResources. `serves_resources`: devices may serve as
    extended resources.
    """

    resources: bool = True
    ports: bool = True
    volumes: bool = True
    binding: bool = True
    devices: bool = True
    serves_resources: bool = True
    ignored: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()

    @staticmethod
    def of(config: KubeSchedulerConfig) -> "Mapping[str, ProfileFilters]":
        """By scheduler name."""
        by_profile: dict[str, ProfileFilters] = {}
        for profile in config.profiles:
            filters = {plugin.name for plugin in profile.plugins.get(ExtensionPoint.FILTER, ())}
            args = profile.args.get("NodeResourcesFit")
            fit = args if isinstance(args, NodeResourcesFitArgs) else NodeResourcesFitArgs()
            by_profile[profile.scheduler_name] = ProfileFilters(
                resources="NodeResourcesFit" in filters,
                ports="NodePorts" in filters,
                volumes="VolumeRestrictions" in filters,
                binding="VolumeBinding" in filters,
                devices="DynamicResources" in filters,
                serves_resources=config.feature_gates.enabled(Feature.RESOURCES_BY_DEVICES),
                ignored=frozenset(fit.ignored_resources),
                ignored_groups=frozenset(fit.ignored_resource_groups),
            )
        return by_profile

    def counts(self, resource: str) -> bool:
        if not (self.ignored or self.ignored_groups) or not is_extended_resource(resource):
            return True
        return resource not in self.ignored and resource.partition("/")[0] not in self.ignored_groups


ALL_FILTERS = ProfileFilters()

Wanted = TypeVar("Wanted", Decision, Nominate)

GangLoads = Mapping[str, Sequence[PodLoad]]
"""By node: the loads of a gang's members that passed the checks before the next member."""


class Rejected(Exception):
    """Why a decision or nomination is rejected; the fields are those of Conflict."""

    def __init__(self, reason: str, fault: FaultKind = "", *, placed_on: str = "", gone: bool = False) -> None:
        super().__init__(reason)
        self.fault: FaultKind = fault
        self.placed_on = placed_on
        self.gone = gone

    def conflict(self, uid: str) -> Conflict:
        return Conflict(uid, str(self), bool(self.placed_on), self.fault, self.placed_on, self.gone)


class CommitChecks:
    """`min_seen`: the state that an evaluation must have seen, on any node, not to be that of an earlier cycle.

    `misstated`: wrong descriptions of pods, for the caller to take. Methods `_check_...` raise Rejected.
    """

    def __init__(
        self, cluster: ClusterState, filters: Mapping[str, ProfileFilters], pending: PendingPods | None
    ) -> None:
        """`filters`: by profile. `pending`: without it, a commit's description of a pod is not checked."""
        self.min_seen = 0
        self.misstated: list[str] = []
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._pods = cluster.pods
        self._objects = cluster.objects
        self._devices = DeviceChecks(cluster.objects)
        self._filters = filters
        self._pending = pending

    def decisions(self, unit: Sequence[Decision], loads: Sequence[PodLoad]) -> dict[str, Conflict]:
        """The conflicts by uid: of no member of a gang, or of all."""
        conflicts: dict[str, Conflict] = {}
        gang: dict[str, list[PodLoad]] = {}
        for each in unit:
            load = loads[each.load]
            try:
                self._check_decision(each, load, gang)
            except Rejected as cause:
                conflicts[each.uid] = cause.conflict(each.uid)
            else:
                gang.setdefault(each.node, []).append(load)
        self._devices.forget()
        if not conflicts and len(unit) > 1 and (conflict := _contradiction(unit)) is not None:
            conflicts[conflict.uid] = conflict
        if conflicts:
            first = next(iter(conflicts.values()))
            for each in unit:
                conflicts.setdefault(each.uid, Conflict(each.uid, f"gang {each.gang}: pod {first.uid}: {first.reason}"))
        return conflicts

    def nominations(
        self, unit: Sequence[Nominate], loads: Sequence[PodLoad], written: Collection[str]
    ) -> dict[str, Conflict]:
        """The conflicts by uid: of no member of a gang, or of all. `written`: the nodes of what the commit had before.

        Members of a gang may share a node: they were judged together.
        """
        conflicts: dict[str, Conflict] = {}
        gang: dict[str, list[PodLoad]] = {}
        gone = {victim.uid for each in unit for victim in each.victims}
        for each in unit:
            load = loads[each.load]
            try:
                self._check_freshness(each)
                self._check_identity(each, load)
                if each.node in written:
                    raise Rejected(f"node {each.node} was given to another pod since the evaluation")
                self._check_victims(each, load, gone)
                self._check_room_without(each, load, gone, gang.get(each.node, ()))
            except Rejected as cause:
                conflicts[each.uid] = cause.conflict(each.uid)
            else:
                gang.setdefault(each.node, []).append(load)
        if conflicts:
            first = next(iter(conflicts.values()))
            for each in unit:
                conflicts.setdefault(each.uid, Conflict(each.uid, f"gang {each.gang}: pod {first.uid}: {first.reason}"))
        return conflicts

    def _check_decision(self, wanted: Decision, load: PodLoad, gang: GangLoads) -> None:
        self._check_freshness(wanted)
        self._check_identity(wanted, load)
        if wanted.own_volumes:
            self._check_own_volumes(wanted, load)
        if wanted.assignment.volumes is not None:
            self._check_volumes(wanted, load, wanted.assignment.volumes)
        self._check_room(wanted, load, gang)
        self._check_devices(wanted, load)

    # What has changed since the evaluation

    def _check_freshness(self, wanted: Decision | Nominate) -> None:
        of, seen, nodes, newest = wanted.assignment, wanted.seen, self._nodes, self._cluster.seq
        uid, node = of.uid, of.node
        placement = self._pods.get(uid)
        if placement is not None:
            raise Rejected(f"the pod is on node {placement.node} already", placed_on=placement.node)
        if seen > newest:
            # If the state is of a later term, this snapshot is deposed and does not know it yet.
            later_term = newest >> EPOCH_SHIFT < seen >> EPOCH_SHIFT
            raise Rejected(f"evaluated on state {seen}, and the newest is {newest}", "" if later_term else "sequence")
        if node not in nodes:
            if seen >= nodes.last_removal:
                raise Rejected(f"there was no node {node} at the evaluation", "node")
            raise Rejected(f"node {node} is gone")
        if nodes.written(node) > seen:
            raise Rejected(f"node {node} has changed since the evaluation")
        if node in nodes.closed:
            raise Rejected(f"node {node} is closed: {nodes.closed.why(node)}")
        if seen < self.min_seen:  # a cycle counts with its own decisions, on any node
            raise Rejected("evaluated before the last decisions of an earlier cycle")

    def _check_identity(self, wanted: Decision | Nominate, load: PodLoad) -> None:
        """The pod must be what the commit says. It may have just changed, or not be shown yet."""
        if self._pending is None:
            return
        wrong = self._pending.difference(wanted, load)
        if wrong is None:
            gone = self._pending.is_gone(wanted.uid)
            raise Rejected(POD_GONE if gone else "the watch has not shown this pod as pending", gone=gone)
        if wrong:
            raise self._misdescribed(wanted, wrong)

    def _misdescribed(self, wanted: Decision | Nominate, wrong: str, fault: FaultKind = "") -> Rejected:
        self.misstated.append(f"pod {wanted.key}: {wrong}")
        return Rejected(f"the pod is not what was decided: {wrong}", fault)

    def _check_volumes(self, wanted: Decision, load: PodLoad, volumes: VolumeDecision) -> None:
        """The claims must be the pod's own, each decided once, and fit their volumes and the node.

        A worker proposed the volumes, and the cycle committed them: both know whose claims they are.
        """
        own = {f"{load.namespace}/{name}" for name in load.claims}
        decided = (*(claim for claim, _ in volumes.bindings), *volumes.provisions)
        foreign = next((claim for claim in decided if claim not in own), None)
        if foreign is not None:
            raise self._misdescribed(wanted, f"it does not use claim {foreign}", "volumes")
        contradiction = _contradiction([wanted])
        if contradiction is not None:
            raise Rejected(contradiction.reason, "volumes")
        changed = self._objects.changed_since(volumes, wanted.seen)
        if changed is not None:
            raise Rejected(changed)
        reason = self._objects.impossible(wanted.node, volumes)
        node = self._nodes.reported(wanted.node)
        if reason is None and node is not None and self._filters_of(wanted).binding:
            reason = self._objects.misfit(volumes, node.metadata.labels)
        if reason is not None:
            raise Rejected(reason, "volumes")

    def _check_own_volumes(self, wanted: Decision, load: PodLoad) -> None:
        """The pod was judged by the claims of another one: its own must be like these still, and nobody else's."""
        uid = wanted.uid
        if self._objects.content_of_claims(load.namespace, uid, load.claims) != wanted.own_volumes:
            raise Rejected("its volume claims have changed since the evaluation")
        if any(self._pods.users_of(f"{load.namespace}/{name}") for name in load.claims):
            raise Rejected("another pod uses one of its volume claims")

    def _check_devices(self, wanted: Decision, load: PodLoad) -> None:
        """The claims must be the pod's own, all of them, and their devices free."""
        devices = wanted.assignment.devices
        own = None if self._pending is None else self._pending.claims(wanted.uid)
        if devices is None:
            if own and self._filters_of(wanted).devices:
                raise self._misdescribed(wanted, "it has resource claims, and no devices were decided for it")
            return
        if own is not None and [each.key for each in devices.claims] != [each.key for each in own]:
            raise self._misdescribed(wanted, "it has other resource claims")
        labels = {} if (node := self._nodes.reported(wanted.node)) is None else node.metadata.labels
        templated = None if own is None else [each.is_made_for_pod for each in own]
        on = DeviceNode(wanted.node, labels)
        wrong = self._devices.check(wanted.uid, load.group, on, devices, wanted.seen, templated)
        if wrong is None and devices.special is not None:
            there = self._nodes.allocatable(wanted.node)
            lacking = {name: each for name, each in self._requests(wanted, load).items() if not there.get(name)}
            wrong = self._devices.check_special(devices.special, wanted.seen, lacking)
        if wrong is not None:
            raise Rejected(wrong.reason, "devices" if wrong.is_fault else "")

    # What the state shows

    def _filters_of(self, wanted: Decision | Nominate) -> ProfileFilters:
        return self._filters.get(wanted.profile, ALL_FILTERS)

    def _check_room(self, wanted: Decision, load: PodLoad, gang: GangLoads) -> None:
        of = wanted.assignment
        node, filters = of.node, self._filters.get(of.profile, ALL_FILTERS)
        members = gang.get(node, ())
        if filters.resources and (lacking := self._lacking(wanted, load, filters, added=members)):
            raise Rejected(f"node {node} has no room for it: {lacking}", "capacity")
        if load.ports and filters.ports:
            taken = (*self._pods.use_of(node).ports, *(port for member in members for port in member.ports))
            if _conflicts(load.ports, taken):
                raise Rejected(f"a host port that it wants is taken on node {node}", "ports")
        if filters.volumes and (load.claims or load.disks):
            self._check_volume_restrictions(wanted, load, gang)

    def _check_victims(self, wanted: Nominate, load: PodLoad, gone: Collection[str]) -> None:
        """The victims must be where they were, and of lower priority.

        Those of a gang may be on any node, never of its own groups, and a group that goes whole must be `gone` whole.
        """
        for victim in wanted.victims:
            placement = self._pods.get(victim.uid)
            if placement is None or (placement.node != wanted.node and not wanted.gang):
                raise Rejected(f"pod {victim.key} has left node {wanted.node} since the evaluation")
        if wanted.never and wanted.victims:
            raise Rejected("its preemptionPolicy is Never", "victims")
        priority = load.priority if wanted.priority is None else wanted.priority
        groups = self._objects.pod_groups
        family = family_of(load, groups) if wanted.gang else ""
        whole: set[str] = set()
        for victim in wanted.victims:
            of_victim = self._pods[victim.uid].load
            unit = unit_of(of_victim, groups)
            if unit.priority >= priority:
                raise Rejected(f"pod {victim.key} is not of lower priority", "victims")
            if family and family_of(of_victim, groups) == family:
                raise Rejected(f"pod {victim.key} is of the gang's own group", "victims")
            whole |= {unit.group} - {""} if wanted.gang else set()
        for group in sorted(whole):
            self._check_is_whole(group, gone)

    def _check_is_whole(self, group: str, gone: Collection[str]) -> None:
        """All pods of the group must go, but those on nodes that are not there, of which no worker knows."""
        groups = self._objects.pod_groups
        keys = (group,) if group in groups else (key for key, each in groups.items() if each.evicted_with == group)
        for uid in (uid for key in keys for uid in self._pods.of_group(key)):
            placement = self._pods[uid]
            if uid not in gone and placement.node in self._nodes:
                raise Rejected(f"pod {placement.key} of group {group}, which goes whole, has come since the evaluation")

    def _check_room_without(
        self, wanted: Nominate, load: PodLoad, gone: Collection[str], gang: Sequence[PodLoad]
    ) -> None:
        """Without the victims there must be room on the node, where these members of the gang are nominated, too."""
        victims = [self._pods[uid].load for uid in self._pods.on_node(wanted.node) if uid in gone]
        if wanted.narrowed or not (victims or wanted.gang):
            return
        filters, lacking = self._filters_of(wanted), ""
        if filters.resources:
            lacking = self._lacking(wanted, load, filters, removed=victims, added=gang)
        if not lacking and load.ports and filters.ports:
            # kube-scheduler takes a port for free once one of its users is gone, even if another one stays.
            freed = {port for victim in victims for port in victim.ports}
            taken = [port for port in self._pods.use_of(wanted.node).ports if port not in freed]
            if _conflicts(load.ports, (*taken, *(port for member in gang for port in member.ports))):
                lacking = "a host port that it wants is taken"
        if lacking:
            raise Rejected(f"node {wanted.node} has no room for it even without these pods: {lacking}", "victims")

    def _lacking(
        self,
        wanted: Decision | Nominate,
        load: PodLoad,
        filters: ProfileFilters,
        *,
        removed: Sequence[PodLoad] = (),
        added: Sequence[PodLoad] = (),
    ) -> str:
        """Why NodeResourcesFit would reject the node, with these pods removed and added."""
        node = wanted.assignment.node
        capacity, known = self._nodes.allocatable(node), self._pods.use_of(node).requests
        used = _changed(known, removed, added) if removed or added else known
        if len(self._pods.on_node(node)) - len(removed) + len(added) >= capacity.get(PODS, 0):
            return "Too many pods"
        for resource, amount in self._requests(wanted, load).items():
            there = capacity.get(resource, 0)
            if amount <= there - used.get(resource, 0) or amount <= 0 or not filters.counts(resource):
                continue
            if there or not (filters.serves_resources and self._is_given_by_devices(wanted, resource, filters)):
                return f"Insufficient {resource}"
        return ""

    def _is_given_by_devices(self, wanted: Decision | Nominate, resource: str, filters: ProfileFilters) -> bool:
        """Whether the pod has devices for a resource that nodes do not have."""
        known = self._objects.devices
        if known.allocator.by_resource.get(resource) is None:
            return False
        # A claim that an earlier attempt left counts for all of them, as in kube-scheduler.
        if not filters.devices or known.special_claims_of(wanted.uid):
            return True
        devices = wanted.assignment.devices
        special = None if devices is None else devices.special
        return special is not None and any(mapping.resource == resource for mapping in special.mappings)

    def _requests(self, wanted: Decision | Nominate, load: PodLoad) -> Mapping[str, int]:
        """What the watch shows counts, not the commit."""
        shown = None if self._pending is None else self._pending.requests(wanted.uid)
        if shown is not None:
            return shown
        return load.requests if wanted.asks is None else wanted.asks

    def _check_volume_restrictions(self, wanted: Decision, load: PodLoad, gang: GangLoads) -> None:
        for name in load.claims:
            claim = f"{load.namespace}/{name}"
            if not self._objects.is_for_one_pod(claim) or self._objects.is_made_for(claim, wanted.uid):
                continue
            users = [self._pods[uid].node for uid in self._pods.users_of(claim)]
            members = (member for each in gang.values() for member in each if member.namespace == load.namespace)
            if any(node in self._nodes for node in users) or any(name in member.claims for member in members):
                raise Rejected(f"claim {claim} is ReadWriteOncePod, and in use")
        if not load.disks:
            return
        there = [self._pods[uid].load for uid in self._pods.on_node(wanted.node)]
        there += gang.get(wanted.node, ())
        if any(disks_clash(mine, disk) for other in there for disk in other.disks for mine in load.disks):
            raise Rejected(f"a disk that it wants is in use on node {wanted.node}", "volumes")


def units(decisions: Iterable[Wanted]) -> Iterable[list[Wanted]]:
    """Groups the members of each gang, which stand or fall together; in the order of each first member."""
    found: dict[tuple[str, int], list[Wanted]] = {}
    for i, decision in enumerate(decisions):
        found.setdefault((decision.gang, 0) if decision.gang else ("", i), []).append(decision)
    return found.values()


def _contradiction(unit: Sequence[Decision]) -> Conflict | None:
    """A pod is decided twice, or a claim or volume in two ways."""
    uids: set[str] = set()
    targets: dict[tuple[str, str], str | AllocationResult] = {}
    for decision in unit:
        if decision.uid in uids:
            return Conflict(decision.uid, "it is decided twice")
        uids.add(decision.uid)
        for about, target in _targets(decision):
            if targets.setdefault(about, target) != target:
                what = " ".join(about)
                return Conflict(decision.uid, f"{what} is assigned differently to another member of this gang")
    return None


def _targets(decision: Decision) -> Iterator[tuple[tuple[str, str], str | AllocationResult]]:
    """What is decided about each object."""
    volumes, devices = decision.assignment.volumes, decision.assignment.devices
    if volumes is not None:
        for claim, volume in volumes.bindings:
            yield ("claim", claim), volume
            yield ("volume", volume), claim
        for claim in volumes.provisions:
            yield ("claim", claim), f"made at {decision.node}"
    if devices is not None:
        for each in devices.claims:
            if each.allocation is not None:
                yield ("resource claim", each.key), each.allocation


def _conflicts(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    there = list(taken)
    return any(ports_conflict(port, other) for port in wanted for other in there)


def _changed(used: Mapping[str, int], removed: Iterable[PodLoad], added: Iterable[PodLoad]) -> Mapping[str, int]:
    changed = dict(used)
    for sign, loads in ((-1, removed), (1, added)):
        for load in loads:
            for resource, amount in load.requests.items():
                changed[resource] = changed.get(resource, 0) + sign * amount
    return changed
