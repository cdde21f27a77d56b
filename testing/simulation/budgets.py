"""Judges preemption by disruption budgets: no victim violates one if another node needs no such victim.

kube-scheduler violates budgets only as a last resort: it prefers the node whose victims violate fewest. So each
requested nomination is compared with the victims on every other node, computed independently: remove all pods of lower
priority, then put them back by importance, those beyond their budgets first. Victims of earlier nominations in the
commit count against budgets. Nodes and budgets that have changed since the workers evaluated them are skipped.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from services.snapshot.core import SnapshotCore
from services.snapshot.state.placements import Placement
from shared.cluster.eviction_units import priority_of
from shared.messages.state import (
    EPOCH_SHIFT,
    Commit,
    Delta,
    NodeRemoved,
    NodeUpserted,
    Nominate,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodPlaced,
)
from shared.model.load import PodLoad
from shared.model.objects import ObjectKind, PodDisruptionBudget, kind_of
from shared.model.resources import PODS
from shared.model.selectors import label_selector_matches

Victims = list[tuple[str, dict[str, int]]]
"""By uid; each with what is left of its budgets."""


class Budgets:
    def __init__(self) -> None:
        self._epoch = self._told = self._all_changed = self._budgets_changed = 0
        self._changed: dict[str, int] = {}
        """By node: the sequence number of its last change."""
        self._at: dict[str, str] = {}

    def on_delta(self, delta: Delta) -> None:
        if delta.epoch != self._epoch:
            self._epoch, self._all_changed, self._budgets_changed = delta.epoch, delta.seq, delta.seq
            self._changed.clear()
            self._at.clear()
        self._told = delta.seq
        for change in delta.changes:
            match change:
                case NodeUpserted():
                    self._changed[change.node.name] = delta.seq
                case NodeRemoved():
                    self._changed[change.name] = delta.seq
                case PodPlaced() | PodNominated():
                    for node in {change.node, self._at.get(change.uid, change.node)}:
                        self._changed[node] = delta.seq
                    self._at[change.uid] = change.node
                case PodGone() | NominationGone() if change.uid in self._at:
                    self._changed[self._at[change.uid]] = delta.seq
                case PodGone() | NominationGone():
                    self._all_changed = delta.seq
                case ObjectUpserted() if kind_of(change.object) is ObjectKind.POD_DISRUPTION_BUDGET:
                    self._budgets_changed = delta.seq
                case ObjectRemoved() if change.kind is ObjectKind.POD_DISRUPTION_BUDGET:
                    self._budgets_changed = delta.seq

    def judge(self, commit: Commit, core: SnapshotCore) -> dict[str, str]:
        """Nominations that violate budgets needlessly, by uid."""
        if core.epoch != self._epoch or core.seq != self._told or core.cluster.building is not None:
            return {}
        if any(not 0 <= wanted.load < len(commit.loads) for wanted in commit.nominations):
            return {}  # the snapshot refuses such a commit
        wrong, spent = dict[str, str](), Counter[str]()
        taken = {decision.node for decision in commit.decisions}
        for wanted in commit.nominations:
            load = commit.loads[wanted.load]
            here = self._candidate(wanted, load, core, wanted.node)
            if here is None or {uid for uid, _ in here} != {victim.uid for victim in wanted.victims}:
                return wrong  # based on another state, as is what it takes from the budgets
            if _violations(here, spent):
                better = [node for node in self._others(wanted, load, core, spent) if node not in taken]
                if better:
                    wrong[wanted.uid] = f"on {wanted.node} against a budget, and {better[0]} could do without that"
            taken.add(wanted.node)
            for uid, left in here:
                if not core.cluster.pods[uid].load.terminating:
                    spent.update(left.keys())
        return wrong

    def _others(self, wanted: Nominate, load: PodLoad, core: SnapshotCore, spent: Counter[str]) -> Iterator[str]:
        """Not the node that the pod is nominated to already: a cycle that does not know of it counts it there."""
        nomination = core.cluster.nominator.get(wanted.uid)
        own = "" if nomination is None else nomination.node
        for node in core.cluster.nodes:
            closed = node.spec.unschedulable or node.name == own
            victims = None if closed else self._candidate(wanted, load, core, node.name)
            if victims and not _violations(victims, spent):
                yield node.name

    def _candidate(self, wanted: Nominate, load: PodLoad, core: SnapshotCore, node: str) -> Victims | None:
        """The victims on this node; None if it has changed or the pod does not fit."""
        changed = max(self._changed.get(node, 0), self._all_changed, self._budgets_changed)
        if changed > wanted.seen or wanted.seen >> EPOCH_SHIFT != core.epoch or node not in core.cluster.nodes:
            return None
        if node in core.cluster.nodes.closed:
            return None
        pods = [(uid, core.cluster.pods[uid]) for uid in core.cluster.pods.on_node(node)]
        groups = core.cluster.objects.pod_groups
        priority = {uid: priority_of(place.load, groups) for uid, place in pods}
        below = (each for each in pods if priority[each[0]] < load.priority)
        lesser = sorted(below, key=lambda each: _importance(priority[each[0]], *each))
        left = _left_after([place for _, place in lesser], _budgets(core))
        beyond = [each for each, of_pod in zip(lesser, left, strict=True) if min(of_pod.values(), default=0) < 0]
        nominated = [each for uid, each in core.cluster.nominator if each.node == node and uid != wanted.uid]
        there = [*(place.load for _, place in pods), *(nomination.load for nomination in nominated)]
        stay = [each for each in there if priority_of(each, groups) >= load.priority]
        room = core.cluster.nodes.allocatable(node)
        if not _fits(load, stay, room):
            return None
        gone = set[str]()
        for uid, place in [*beyond, *(each for each in lesser if each not in beyond)]:
            if _fits(load, [*stay, place.load], room):
                stay.append(place.load)
            else:
                gone.add(uid)
        return [(uid, of_pod) for (uid, _), of_pod in zip(lesser, left, strict=True) if uid in gone]


def _budgets(core: SnapshotCore) -> list[PodDisruptionBudget]:
    return [each for each in core.cluster.objects.all() if isinstance(each, PodDisruptionBudget)]


def _importance(priority: int, uid: str, place: Placement) -> tuple[int, float, str]:
    return -priority, inf if place.started is None else place.started, uid


def _left_after(pods: Sequence[Placement], budgets: Sequence[PodDisruptionBudget]) -> list[dict[str, int]]:
    """What is left of each pod's budgets after evicting it and all pods before it."""
    left = {budget.key: budget.status.disruptions_allowed for budget in budgets}
    found = []
    for place in pods:
        about = [each.key for each in budgets if _is_about(each, place.load)]
        for key in about:
            left[key] -= 1
        found.append({key: left[key] for key in about})
    return found


def _is_about(budget: PodDisruptionBudget, load: PodLoad) -> bool:
    selector = budget.spec.selector
    return selector is not None and bool(selector.match_labels) and label_selector_matches(selector, load.labels)


def _violations(victims: Victims, spent: Counter[str]) -> int:
    return sum(any(left < spent[key] for key, left in of_pod.items()) for _, of_pod in victims)


def _fits(load: PodLoad, pods: Sequence[PodLoad], room: Mapping[str, int]) -> bool:
    used = Counter[str](load.requests)
    for each in pods:
        used.update(each.requests)
    used[PODS] = len(pods) + 1
    return all(amount <= room.get(name, 0) for name, amount in used.items())
