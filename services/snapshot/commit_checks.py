"""Validates what a commit asks for, independently of what workers and cycle found.

First, the pod must be what the watch shows. Second, nothing may have happened to its node, or to what the decision
rests on, since the evaluation: that is a conflict, not a fault. Third, what did not change since is verified
against the snapshot's own state: room, ports, volumes, victims. A violation there is a fault of the worker that
evaluated the node: a defect, or a lie.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.pending_pods import PendingPods
from shared.cluster.volumes import VolumeDecision
from shared.config.args import NodeResourcesFitArgs
from shared.config.points import ExtensionPoint
from shared.config.structs import KubeSchedulerConfig, ProfileConfig
from shared.messages.state import EPOCH_SHIFT, Conflict, Decision, FaultKind, Nominate
from shared.model.load import PodLoad
from shared.model.resources import PODS, HostPort, is_extended_resource
from shared.plugins.single_node import conflict as ports_conflict
from shared.plugins.volumes.podvolumes import clash as disks_clash


class ProfileFilters(msgspec.Struct, frozen=True):
    """Which filters a profile runs; the snapshot enforces no other.

    `resources`: NodeResourcesFit, without the extended resources that it ignores; `ports`: NodePorts; `volumes`:
    VolumeRestrictions; `binding`: VolumeBinding.
    """

    resources: bool = True
    ports: bool = True
    volumes: bool = True
    binding: bool = True
    ignored: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()

    @staticmethod
    def of(config: KubeSchedulerConfig) -> "Mapping[str, ProfileFilters]":
        """By scheduler name."""
        return {profile.scheduler_name: _of_profile(profile) for profile in config.profiles}

    def counts(self, resource: str) -> bool:
        if not (self.ignored or self.ignored_groups) or not is_extended_resource(resource):
            return True
        return resource not in self.ignored and resource.partition("/")[0] not in self.ignored_groups


ALL_FILTERS = ProfileFilters()


def _of_profile(profile: ProfileConfig) -> ProfileFilters:
    filters = {plugin.name for plugin in profile.plugins.get(ExtensionPoint.FILTER, ())}
    args = profile.args.get("NodeResourcesFit")
    fit = args if isinstance(args, NodeResourcesFitArgs) else NodeResourcesFitArgs()
    return ProfileFilters(
        resources="NodeResourcesFit" in filters,
        ports="NodePorts" in filters,
        volumes="VolumeRestrictions" in filters,
        binding="VolumeBinding" in filters,
        ignored=frozenset(fit.ignored_resources),
        ignored_groups=frozenset(fit.ignored_resource_groups),
    )


class GangLoads:
    """The loads of a gang's members that passed the checks before the next member."""

    def __init__(self) -> None:
        self._on_node: dict[str, list[PodLoad]] = {}
        self._claims: set[str] = set()

    def add(self, node: str, load: PodLoad) -> None:
        self._on_node.setdefault(node, []).append(load)
        self._claims.update(f"{load.namespace}/{name}" for name in load.claims)

    def on_node(self, node: str) -> Sequence[PodLoad]:
        return self._on_node.get(node, ())

    def uses(self, claim: str) -> bool:
        return claim in self._claims


class CommitChecks:
    """`min_seen`: the state that an evaluation must have seen, on any node, not to be that of an earlier cycle."""

    def __init__(
        self, cluster: ClusterState, filters: Mapping[str, ProfileFilters], pending: PendingPods | None
    ) -> None:
        """`filters`: by profile. `pending`: without it, a commit's description of a pod is not checked."""
        self.min_seen = 0
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._pods = cluster.pods
        self._objects = cluster.objects
        self._filters = filters
        self._pending = pending
        self._misstated: list[str] = []

    def take_misstated(self) -> list[str]:
        """Wrong descriptions of pods since the last call."""
        misstated, self._misstated = self._misstated, []
        return misstated

    def decisions(self, unit: Sequence[Decision], loads: Sequence[PodLoad]) -> dict[str, Conflict]:
        """The conflicts by uid: of no member of a gang, or of all."""
        conflicts: dict[str, Conflict] = {}
        gang = GangLoads() if len(unit) > 1 else None
        for each in unit:
            load = loads[each.load]
            conflict = self._decision(each, load, gang)
            if conflict is not None:
                conflicts[each.uid] = conflict
            elif gang is not None:
                gang.add(each.node, load)
        if not conflicts and gang is not None and (conflict := _contradiction(unit)) is not None:
            conflicts[conflict.uid] = conflict
        if conflicts:
            first = next(iter(conflicts.values()))
            for each in unit:
                conflicts.setdefault(each.uid, Conflict(each.uid, f"gang {each.gang}: pod {first.uid}: {first.reason}"))
        return conflicts

    def nomination(self, wanted: Nominate, load: PodLoad, written: Collection[str]) -> Conflict | None:
        """`written`: the nodes of earlier decisions and nominations of the commit."""
        conflict = self._freshness(wanted) or self._identity(wanted, load)
        if conflict is not None:
            return conflict
        if wanted.node in written:
            return Conflict(wanted.uid, f"node {wanted.node} was given to another pod since the evaluation")
        for victim in wanted.victims:
            placement = self._pods.get(victim.uid)
            if placement is None or placement.node != wanted.node:
                return Conflict(wanted.uid, f"pod {victim.key} has left node {wanted.node} since the evaluation")
        return self._victims(wanted, load)

    def _decision(self, wanted: Decision, load: PodLoad, gang: GangLoads | None) -> Conflict | None:
        volumes = wanted.assignment.volumes
        conflict = self._freshness(wanted) or self._identity(wanted, load)
        if conflict is None and volumes is not None:
            conflict = self._volume_decision(wanted, load, volumes)
        return self._room(wanted, load, gang) if conflict is None else conflict

    # What has changed since the evaluation

    def _freshness(self, wanted: Decision | Nominate) -> Conflict | None:
        of, seen, nodes = wanted.assignment, wanted.seen, self._nodes
        uid, node = of.uid, of.node
        placement = self._pods.get(uid)
        if placement is not None:
            return Conflict(uid, f"the pod is on node {placement.node} already", placed=True)
        if seen > self._cluster.seq:
            return self._from_the_future(wanted)
        if node not in nodes:
            if seen >= nodes.last_removal:
                return at_fault(wanted, "node", f"there was no node {node} at the evaluation")
            return Conflict(uid, f"node {node} is gone")
        if nodes.written(node) > seen:
            return Conflict(uid, f"node {node} has changed since the evaluation")
        if node in nodes.closed:
            return Conflict(uid, f"node {node} is closed: {nodes.closed.why(node)}")
        if seen < self.min_seen:  # a cycle counts with its own decisions, on any node
            return Conflict(uid, "evaluated before the last decisions of an earlier cycle")
        return None

    def _from_the_future(self, wanted: Decision | Nominate) -> Conflict:
        """If the state is of a later term, this snapshot is deposed and does not know it yet."""
        newest = self._cluster.seq
        reason = f"evaluated on state {wanted.seen}, and the newest is {newest}"
        later_term = newest >> EPOCH_SHIFT < wanted.seen >> EPOCH_SHIFT
        return Conflict(wanted.uid, reason) if later_term else at_fault(wanted, "sequence", reason)

    def _identity(self, wanted: Decision | Nominate, load: PodLoad) -> Conflict | None:
        """The pod must be what the commit says. It may have just changed, or not be shown yet."""
        if self._pending is None:
            return None
        if not self._pending.knows(wanted.uid):
            return Conflict(wanted.uid, "the watch has not shown this pod as pending")
        wrong = self._pending.difference(wanted, load)
        return self._misdescribed(wanted, wrong) if wrong else None

    def _misdescribed(self, wanted: Decision | Nominate, wrong: str, fault: FaultKind = "") -> Conflict:
        self._misstated.append(f"pod {wanted.key}: {wrong}")
        return Conflict(wanted.uid, f"the pod is not what was decided: {wrong}", fault=fault)

    def _volume_decision(self, wanted: Decision, load: PodLoad, volumes: VolumeDecision) -> Conflict | None:
        """The claims must be the pod's own, each decided once, and fit their volumes and the node.

        A worker proposed the volumes, and the cycle committed them: both know whose claims they are.
        """
        own = {f"{load.namespace}/{name}" for name in load.claims}
        decided = (*(claim for claim, _ in volumes.bindings), *volumes.provisions)
        foreign = next((claim for claim in decided if claim not in own), None)
        if foreign is not None:
            return self._misdescribed(wanted, f"it does not use claim {foreign}", "volumes")
        contradiction = _contradiction([wanted])
        if contradiction is not None:
            return at_fault(wanted, "volumes", contradiction.reason)
        changed = self._objects.changed_since(volumes, wanted.seen)
        if changed is not None:
            return Conflict(wanted.uid, changed)
        reason = self._objects.impossible(wanted.node, volumes)
        node = self._nodes.reported(wanted.node)
        if reason is None and node is not None and self._filters_of(wanted).binding:
            reason = self._objects.misfit(volumes, node.metadata.labels)
        return None if reason is None else at_fault(wanted, "volumes", reason)

    # What the state shows

    def _filters_of(self, wanted: Decision | Nominate) -> ProfileFilters:
        return self._filters.get(wanted.profile, ALL_FILTERS)

    def _room(self, wanted: Decision, load: PodLoad, gang: GangLoads | None) -> Conflict | None:
        of = wanted.assignment
        node, filters = of.node, self._filters.get(of.profile, ALL_FILTERS)
        members = () if gang is None else gang.on_node(node)
        if filters.resources and (lacking := self._lacking(wanted, load, filters, added=members)):
            return at_fault(wanted, "capacity", f"node {node} has no room for it: {lacking}")
        if load.ports and filters.ports:
            taken = (*self._pods.ports_on(node), *(port for member in members for port in member.ports))
            if _conflicts(load.ports, taken):
                return at_fault(wanted, "ports", f"a host port that it wants is taken on node {node}")
        if filters.volumes and (load.claims or load.disks):
            return self._volume_restrictions(wanted, load, gang)
        return None

    def _victims(self, wanted: Nominate, load: PodLoad) -> Conflict | None:
        """The victims must be of lower priority, and leave enough room."""
        if wanted.never and wanted.victims:
            return at_fault(wanted, "victims", "its preemptionPolicy is Never")
        victims = [self._pods[uid] for uid in dict.fromkeys(victim.uid for victim in wanted.victims)]
        for victim in victims:
            if victim.load.priority >= load.priority:
                return at_fault(wanted, "victims", f"pod {victim.key} is not of lower priority")
        if not victims or wanted.narrowed:
            return None
        lacking = self._lacking_without(wanted, load, [victim.load for victim in victims])
        if lacking:
            reason = f"node {wanted.node} has no room for it even without these pods: {lacking}"
            return at_fault(wanted, "victims", reason)
        return None

    def _lacking_without(self, wanted: Nominate, load: PodLoad, victims: Sequence[PodLoad]) -> str:
        filters = self._filters_of(wanted)
        if filters.resources and (lacking := self._lacking(wanted, load, filters, removed=victims)):
            return lacking
        if not (load.ports and filters.ports):
            return ""
        # kube-scheduler takes a port for free once one of its users is gone, even if another one stays.
        freed = {port for victim in victims for port in victim.ports}
        taken = [port for port in self._pods.ports_on(wanted.node) if port not in freed]
        return "a host port that it wants is taken" if _conflicts(load.ports, taken) else ""

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
        capacity, used, pods = self._nodes.allocatable(node), self._pods.requests_on(node), self._pods.count_on(node)
        if removed or added:
            used, pods = _changed(used, removed, added), pods - len(removed) + len(added)
        if pods >= capacity.get(PODS, 0):
            return "Too many pods"
        for resource, amount in self._requests(wanted, load).items():
            if amount > capacity.get(resource, 0) - used.get(resource, 0) and amount > 0 and filters.counts(resource):
                return f"Insufficient {resource}"
        return ""

    def _requests(self, wanted: Decision | Nominate, load: PodLoad) -> Mapping[str, int]:
        """What must be free for the pod: what the watch shows counts, not the commit."""
        known = None if self._pending is None else self._pending.requests(wanted.uid)
        if known is not None:
            return known
        return load.requests if wanted.asks is None else wanted.asks

    def _volume_restrictions(self, wanted: Decision, load: PodLoad, gang: GangLoads | None) -> Conflict | None:
        for claim in self._exclusive_claims(wanted, load):
            if self._is_used(claim) or (gang is not None and gang.uses(claim)):
                return Conflict(wanted.uid, f"claim {claim} is ReadWriteOncePod, and in use")
        if not load.disks:
            return None
        there = [self._pods[uid].load for uid in self._pods.on_node(wanted.node)]
        there += () if gang is None else gang.on_node(wanted.node)
        if any(disks_clash(mine, disk) for other in there for disk in other.disks for mine in load.disks):
            return at_fault(wanted, "volumes", f"a disk that it wants is in use on node {wanted.node}")
        return None

    def _exclusive_claims(self, wanted: Decision, load: PodLoad) -> Iterator[str]:
        """Its ReadWriteOncePod claims, but for those that were made for the pod itself."""
        for name in load.claims:
            key = f"{load.namespace}/{name}"
            if self._objects.is_for_one_pod(key) and not self._objects.is_made_for(key, wanted.uid):
                yield key

    def _is_used(self, claim: str) -> bool:
        return any(self._pods[uid].node in self._nodes for uid in self._pods.users_of(claim))


def at_fault(wanted: Decision | Nominate, kind: FaultKind, reason: str) -> Conflict:
    return Conflict(wanted.uid, reason, fault=kind)


def units(decisions: Iterable[Decision]) -> Iterable[list[Decision]]:
    """Groups the members of each gang, which stand or fall together; in the order of each first member."""
    found: dict[tuple[str, int], list[Decision]] = {}
    for i, decision in enumerate(decisions):
        found.setdefault((decision.gang, 0) if decision.gang else ("", i), []).append(decision)
    return found.values()


def _contradiction(unit: Sequence[Decision]) -> Conflict | None:
    """A pod is decided twice, or a claim or volume in two ways."""
    uids: set[str] = set()
    targets: dict[tuple[str, str], str] = {}
    for decision in unit:
        if decision.uid in uids:
            return Conflict(decision.uid, "it is decided twice")
        uids.add(decision.uid)
        volumes = decision.assignment.volumes
        if volumes is None:
            continue
        wanted = [(("claim", claim), volume) for claim, volume in volumes.bindings]
        wanted += [(("volume", volume), claim) for claim, volume in volumes.bindings]
        wanted += [(("claim", claim), f"made at {decision.node}") for claim in volumes.provisions]
        for about, target in wanted:
            if targets.setdefault(about, target) != target:
                what = " ".join(about)
                return Conflict(decision.uid, f"{what} is assigned differently to another member of this gang")
    return None


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
