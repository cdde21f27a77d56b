"""Whether what a commit asks for can stand.

First by what the pod is, which the watch has shown to the snapshot as to the queue. Then by what happened after the
evaluation that it rests on: that is a conflict, and nobody's fault. What nothing has happened to since is verified
against the state itself (`owner`), whatever the evaluation said.
"""

from collections.abc import Iterable, Mapping, Sequence

from services.snapshot.checks import EVERYTHING, Checks
from services.snapshot.owner import Beside, Owner, at_fault
from services.snapshot.state.nodes import Nodes
from services.snapshot.state.object_overlay import Objects
from services.snapshot.state.pending_pods import Pending
from services.snapshot.state.placements import Places
from shared.cluster.volumes import VolumeDecision
from shared.messages.state import EPOCH_SHIFT, Conflict, Decision, Nominate
from shared.model.load import PodLoad


class Judge:
    """`to_be_seen`: what an evaluation has to have seen, on whatever node, lest it be that of an earlier cycle.

    `newest`: the number of the state, beyond which nobody has seen anything.
    """

    def __init__(
        self, nodes: Nodes, places: Places, objects: Objects, checks: Mapping[str, Checks], pending: Pending | None
    ) -> None:
        """`pending`: where it is None, what a commit says of a pod is not looked into."""
        self._pending = pending
        self.misstated: list[str] = []
        """What commits have said of pods that is not so, until somebody takes it."""
        self._nodes = nodes
        self._places = places
        self._objects = objects
        self._checks = checks
        self._owner = Owner(nodes, places, objects, checks, pending)
        self.to_be_seen = 0
        self.newest = 0

    def decisions(self, unit: Sequence[Decision], loads: Sequence[PodLoad]) -> dict[str, Conflict]:
        """The conflicts of what stands or falls together, by uid: of none of it, or of all."""
        conflicts: dict[str, Conflict] = {}
        beside = Beside() if len(unit) > 1 else None
        for each in unit:
            load = loads[each.load]
            conflict = self._decision(each, load, beside)
            if conflict is not None:
                conflicts[each.uid] = conflict
            elif beside is not None:
                beside.add(each.node, load)
        clash = _clash(unit) if len(unit) > 1 else None
        if not conflicts and clash is not None:
            conflicts[clash.uid] = clash
        if not conflicts:
            return {}
        first = next(iter(conflicts.values()))
        for each in unit:
            conflicts.setdefault(each.uid, Conflict(each.uid, f"gang {each.gang}: pod {first.uid}: {first.reason}"))
        return conflicts

    def nomination(self, wanted: Nominate, load: PodLoad, taken: Iterable[str]) -> Conflict | None:
        """`taken`: the nodes of what the same commit asks for before it."""
        conflict = self._placement(wanted) or self._identity(wanted, load)
        if conflict is not None:
            return conflict
        if wanted.node in taken:
            return Conflict(wanted.uid, f"node {wanted.node} is promised to another pod since it was judged")
        for victim in wanted.victims:
            place = self._places.get(victim.uid)
            if place is None or place.node != wanted.node:
                return Conflict(
                    wanted.uid,
                    f"pod {victim.key} has left node {wanted.node} since it was judged",
                )
        return self._owner.nomination(wanted, load)

    def _decision(self, decision: Decision, load: PodLoad, beside: Beside | None) -> Conflict | None:
        conflict = self._placement(decision) or self._identity(decision, load)
        if conflict is None and decision.assignment.volumes is not None:
            conflict = self._volumes(decision, load, decision.assignment.volumes)
        return self._owner.decision(decision, load, beside) if conflict is None else conflict

    def _identity(self, wanted: Decision | Nominate, load: PodLoad) -> Conflict | None:
        """Whether the pod is what the commit says. It may have changed just now, or not be shown to us yet."""
        if self._pending is None:
            return None
        if not self._pending.knows(wanted.uid):
            return Conflict(wanted.uid, "the watch has not shown this pod as one that waits")
        wrong = self._pending.wrong(wanted, load)
        if not wrong:
            return None
        self.misstated.append(f"pod {wanted.key}: {wrong}")
        return Conflict(wanted.uid, f"the pod is not what was decided: {wrong}")

    def _volumes(self, decision: Decision, load: PodLoad, volumes: VolumeDecision) -> Conflict | None:
        """Only the pod's own claims are decided about, each in one way, and get volumes that fit them and the node.

        A worker proposed the volumes, and the cycle has committed them: of claims that are not the pod's, both know.
        """
        own = {f"{load.namespace}/{name}" for name in load.claims}
        decided = (*(claim for claim, _ in volumes.bindings), *volumes.provisions)
        anothers = next((claim for claim in decided if claim not in own), None)
        if anothers is not None:
            wrong = f"it does not use claim {anothers}"
            self.misstated.append(f"pod {decision.key}: {wrong}")
            return at_fault(decision, "volumes", f"the pod is not what was decided: {wrong}")
        clash = _clash([decision])
        if clash is not None:
            return at_fault(decision, "volumes", clash.reason)
        changed = self._objects.changed_since(volumes, decision.seen)
        if changed is not None:
            return Conflict(decision.uid, changed)
        reason = self._objects.cannot_stand(decision.node, volumes) or self._misfit(decision, volumes)
        return None if reason is None else at_fault(decision, "volumes", reason)

    def _misfit(self, decision: Decision, volumes: VolumeDecision) -> str | None:
        node = self._nodes.reported(decision.node)
        if node is None or not self._checks.get(decision.profile, EVERYTHING).binding:
            return None
        return self._objects.misfit(volumes, node.metadata.labels)

    def _placement(self, wanted: Decision | Nominate) -> Conflict | None:
        uid, node, seen, nodes = wanted.uid, wanted.node, wanted.seen, self._nodes
        place = self._places.get(uid)
        if place is not None:
            return Conflict(uid, f"the pod is on node {place.node} already", placed=True)
        if seen > self.newest:
            return self._from_the_future(wanted)
        if node not in nodes:
            if seen >= nodes.last_removal:
                return at_fault(wanted, "node", f"there was no node {node} when it was judged")
            return Conflict(uid, f"node {node} is gone")
        if nodes.written(node) > seen:
            return Conflict(uid, f"node {node} has changed since it was judged")
        if node in nodes.closed:
            return Conflict(uid, f"node {node} is closed: {nodes.closed.why(node)}")
        if seen < self.to_be_seen:  # what a cycle decides itself it reckons with, on whatever node
            return Conflict(uid, "it was judged before the last decisions of an earlier cycle")
        return None

    def _from_the_future(self, wanted: Decision | Nominate) -> Conflict:
        """Of a later term it may be indeed: then this snapshot is deposed, and does not know it yet."""
        reason = f"it was judged on state {wanted.seen}, and the newest is {self.newest}"
        later_term = self.newest >> EPOCH_SHIFT < wanted.seen >> EPOCH_SHIFT
        return Conflict(wanted.uid, reason) if later_term else at_fault(wanted, "sequence", reason)


def units(decisions: Iterable[Decision]) -> Iterable[list[Decision]]:
    """What stands or falls together: the members of a gang, and everybody else alone; in the order of the first."""
    found: dict[tuple[str, int], list[Decision]] = {}
    for i, decision in enumerate(decisions):
        found.setdefault((decision.gang, 0) if decision.gang else ("", i), []).append(decision)
    return found.values()


def _clash(unit: Sequence[Decision]) -> Conflict | None:
    """Somebody comes twice, or a claim or volume is to go two ways."""
    uids: set[str] = set()
    targets: dict[tuple[str, str], str] = {}
    for decision in unit:
        if decision.uid in uids:
            return Conflict(decision.uid, "it is decided twice")
        uids.add(decision.uid)
        if decision.assignment.volumes is None:
            continue
        wanted = [(("claim", claim), volume) for claim, volume in decision.assignment.volumes.bindings]
        wanted += [(("volume", volume), claim) for claim, volume in decision.assignment.volumes.bindings]
        wanted += [(("claim", claim), f"made at {decision.node}") for claim in decision.assignment.volumes.provisions]
        for about, target in wanted:
            if targets.setdefault(about, target) != target:
                what = " ".join(about)
                return Conflict(decision.uid, f"{what} is to be had by another in another way")
    return None
