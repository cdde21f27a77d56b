"""Whether what a commit asks for can stand, given what happened after the evaluation that it rests on."""

from collections.abc import Iterable, Sequence

from services.snapshot.nodes import Nodes
from services.snapshot.objects import Objects
from services.snapshot.places import Places
from shared.messages.state import Conflict, Decision, Nominate


class Judge:
    """`to_be_seen`: what an evaluation has to have seen, on whatever node, lest it be that of an earlier cycle."""

    def __init__(self, nodes: Nodes, places: Places, objects: Objects) -> None:
        self._nodes = nodes
        self._places = places
        self._objects = objects
        self.to_be_seen = 0

    def decisions(self, unit: Sequence[Decision]) -> dict[str, Conflict]:
        """The conflicts of what stands or falls together, by uid: of none of it, or of all."""
        conflicts = {each.uid: conflict for each in unit if (conflict := self._decision(each)) is not None}
        clash = _clash(unit) if len(unit) > 1 else None
        if not conflicts and clash is not None:
            conflicts[clash.uid] = clash
        if not conflicts:
            return {}
        first = next(iter(conflicts.values()))
        for each in unit:
            conflicts.setdefault(each.uid, Conflict(each.uid, f"gang {each.gang}: pod {first.uid}: {first.reason}"))
        return conflicts

    def nomination(self, wanted: Nominate, taken: Iterable[str]) -> Conflict | None:
        """`taken`: the nodes of what the same commit asks for before it."""
        conflict = self._placement(wanted)
        if conflict is not None:
            return conflict
        if wanted.node in taken:
            return Conflict(wanted.uid, f"node {wanted.node} is promised to another pod since it was judged")
        for victim in wanted.victims:
            place = self._places.get(victim.uid)
            if place is None or place.node != wanted.node:
                return Conflict(wanted.uid, f"pod {victim.key} has left node {wanted.node} since it was judged")
        return None

    def _decision(self, decision: Decision) -> Conflict | None:
        conflict = self._placement(decision)
        if conflict is not None or decision.volumes is None:
            return conflict
        reason = self._objects.conflict(decision.node, decision.volumes, decision.seen)
        return None if reason is None else Conflict(decision.uid, reason)

    def _placement(self, wanted: Decision | Nominate) -> Conflict | None:
        place = self._places.get(wanted.uid)
        if place is not None:
            return Conflict(wanted.uid, f"the pod is on node {place.node} already", placed=True)
        if wanted.node not in self._nodes:
            return Conflict(wanted.uid, f"node {wanted.node} is gone")
        if self._nodes.written(wanted.node) > wanted.seen:
            return Conflict(wanted.uid, f"node {wanted.node} has changed since it was judged")
        if wanted.seen < self.to_be_seen:  # what a cycle decides itself it reckons with, on whatever node
            return Conflict(wanted.uid, "it was judged before the last decisions of an earlier cycle")
        return None


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
        if decision.volumes is None:
            continue
        wanted = [(("claim", claim), volume) for claim, volume in decision.volumes.bindings]
        wanted += [(("volume", volume), claim) for claim, volume in decision.volumes.bindings]
        wanted += [(("claim", claim), f"made at {decision.node}") for claim in decision.volumes.provisions]
        for about, target in wanted:
            if targets.setdefault(about, target) != target:
                what = " ".join(about)
                return Conflict(decision.uid, f"{what} is to be had by another in another way")
    return None
