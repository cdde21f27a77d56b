"""What the snapshot verifies itself, whatever an evaluation said: room, ports, volumes, and who may make way for whom.

It owns places and loads, so it need not believe anybody. What a node lacks although nothing was added to it since it
was judged is a fault of the worker that judged it: a defect, or a lie.
"""

from collections.abc import Iterable, Iterator, Mapping

from services.snapshot.checks import EVERYTHING, Checks
from services.snapshot.state.nodes import Nodes
from services.snapshot.state.object_overlay import Objects
from services.snapshot.state.pending_pods import Pending
from services.snapshot.state.placements import Places
from shared.messages.state import Conflict, Decision, FaultKind, Nominate
from shared.model.load import PodLoad
from shared.model.resources import PODS, HostPort
from shared.plugins.hostports import conflict
from shared.plugins.volumes.clashes import clash


class Beside:
    """The members of a gang that are judged together with a pod: they are to have places as well."""

    def __init__(self) -> None:
        self._on_node: dict[str, list[PodLoad]] = {}
        self._claims: set[str] = set()

    def add(self, node: str, load: PodLoad) -> None:
        self._on_node.setdefault(node, []).append(load)
        self._claims.update(f"{load.namespace}/{name}" for name in load.claims)

    def on(self, node: str) -> Iterable[PodLoad]:
        return self._on_node.get(node, ())

    def uses(self, claim: str) -> bool:
        return claim in self._claims


class Owner:
    def __init__(
        self, nodes: Nodes, places: Places, objects: Objects, checks: Mapping[str, Checks], pending: Pending | None
    ) -> None:
        """`pending`: where it is None, a commit is believed what it says must be free for a pod."""
        self._pending = pending
        self._nodes = nodes
        self._places = places
        self._objects = objects
        self._checks = checks

    def decision(self, wanted: Decision, load: PodLoad, beside: Beside | None) -> Conflict | None:
        """Of a pod that may be judged by what is known now."""
        node, checks = wanted.node, self._checks.get(wanted.profile, EVERYTHING)
        others = () if beside is None else beside.on(node)
        if checks.resources:
            lacking = self._lacking(wanted, load, checks, (), others)
            if lacking:
                return at_fault(wanted, "capacity", f"node {node} has no room for it: {lacking}")
        if load.ports and checks.ports:
            taken = (*self._places.ports_at(node), *(port for other in others for port in other.ports))
            if _clash(load.ports, taken):
                return at_fault(wanted, "ports", f"a host port that it wants is taken on node {node}")
        if checks.volumes and (load.claims or load.disks):
            return self._volumes(wanted, load, beside)
        return None

    def nomination(self, wanted: Nominate, load: PodLoad) -> Conflict | None:
        """Of a pod whose victims are on that node."""
        if wanted.never and wanted.victims:
            return at_fault(wanted, "victims", "its preemptionPolicy is Never")
        victims = {victim.uid: self._places[victim.uid].load for victim in wanted.victims}
        for victim in wanted.victims:
            if victims[victim.uid].priority >= load.priority:
                return at_fault(wanted, "victims", f"pod {self._places[victim.uid].key} is not of lower priority")
        if not victims or wanted.narrowed:
            return None
        lacking = self._lacking_without(wanted, load, victims)
        if lacking:
            reason = f"node {wanted.node} has no room for it even without these pods: {lacking}"
            return at_fault(wanted, "victims", reason)
        return None

    # Inside

    def _lacking_without(self, wanted: Nominate, load: PodLoad, victims: Mapping[str, PodLoad]) -> str:
        checks = self._checks.get(wanted.profile, EVERYTHING)
        if checks.resources:
            lacking = self._lacking(wanted, load, checks, victims.values(), ())
            if lacking:
                return lacking
        if not (load.ports and checks.ports):
            return ""
        # kube-scheduler takes a port for free once one of its users is gone, even if another one stays.
        freed = {port for victim in victims.values() for port in victim.ports}
        taken = [port for port in self._places.ports_at(wanted.node) if port not in freed]
        return "a host port that it wants is taken" if _clash(load.ports, taken) else ""

    def _lacking(
        self,
        wanted: Decision | Nominate,
        load: PodLoad,
        checks: Checks,
        gone: Iterable[PodLoad],
        more: Iterable[PodLoad],
    ) -> str:
        """Why NodeResourcesFit would keep it off its node, without the pods of `gone` and with those of `more`."""
        node = wanted.node
        capacity, used, pods = self._nodes.allocatable(node), self._places.used_at(node), self._places.count_at(node)
        if gone or more:
            used, change = _changed(used, gone, more)
            pods += change
        if pods >= capacity.get(PODS, 0):
            return "Too many pods"
        for resource, amount in self._asks(wanted, load).items():
            if amount > capacity.get(resource, 0) - used.get(resource, 0) and amount > 0 and checks.counts(resource):
                return f"Insufficient {resource}"
        return ""

    def _asks(self, wanted: Decision | Nominate, load: PodLoad) -> Mapping[str, int]:
        """What must be free for the pod: what the watch shows of it counts, not the commit."""
        known = None if self._pending is None else self._pending.asks(wanted.uid)
        if known is not None:
            return known
        return load.requests if wanted.asks is None else wanted.asks

    def _volumes(self, wanted: Decision, load: PodLoad, beside: Beside | None) -> Conflict | None:
        for claim in self._exclusive(wanted, load):
            if self._is_used(claim) or (beside is not None and beside.uses(claim)):
                return Conflict(wanted.uid, f"claim {claim} is for one pod only, and in use")
        if not load.disks:
            return None
        there = [self._places[uid].load for uid in self._places.on_node(wanted.node)]
        there += () if beside is None else beside.on(wanted.node)
        if any(clash(mine, disk) for other in there for disk in other.disks for mine in load.disks):
            return at_fault(wanted, "volumes", f"a disk that it wants is in use on node {wanted.node}")
        return None

    def _exclusive(self, wanted: Decision, load: PodLoad) -> Iterator[str]:
        """The claims for one pod only that it names; those that were made for it are its own in any case."""
        for name in load.claims:
            key = f"{load.namespace}/{name}"
            if self._objects.is_for_one_pod(key) and not self._objects.is_made_for(key, wanted.uid):
                yield key

    def _is_used(self, claim: str) -> bool:
        return any(self._places[uid].node in self._nodes for uid in self._places.users_of(claim))


def at_fault(wanted: Decision | Nominate, kind: FaultKind, reason: str) -> Conflict:
    return Conflict(wanted.uid, reason, fault=kind)


def _clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    there = list(taken)
    return any(conflict(port, other) for port in wanted for other in there)


def _changed(
    used: Mapping[str, int], gone: Iterable[PodLoad], more: Iterable[PodLoad]
) -> tuple[Mapping[str, int], int]:
    """What is in use, and by how many pods it is more, once some are gone and others there."""
    changed, pods = dict(used), 0
    for sign, loads in ((-1, gone), (1, more)):
        for load in loads:
            pods += sign
            for resource, amount in load.requests.items():
                changed[resource] = changed.get(resource, 0) + sign * amount
    return changed, pods
