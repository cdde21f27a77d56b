"""Follows what the decisions of a round mean for a class of pods with constraints.

Whether a node takes part in a constraint is known for sure if all nodes do, or if the class itself may go there and all
such nodes do. Where it is not known, a decision counts for the domain that it is in, but not for the lowest count: that
admits too few nodes, never too many. Private hostnames need no tracking: a ladder counts its own placements, and a node
that another pod was assigned to is no longer offered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flotilla.plugin import Tracker
from flotilla.results import MAX_NODE_SCORE, NodeDomains, Range
from shared.model.load import PodLoad
from shared.model.objects import Pod
from shared.plugins.podtopologyspread.constraints import Constraint, Rules
from shared.plugins.podtopologyspread.counts import UNLABELLED, Part, weights


@dataclass(slots=True)
class Followed:
    """One constraint: its domains as all shards saw them, and what the round has added.

    `pods` counts every decision that may count, `sure` only those that do. `reliable`: every node that the class may go
    to takes part.
    """

    constraint: Constraint
    part: Part
    own: int
    reliable: bool
    weight: float = 0.0
    pods: dict[str, int] = field(init=False)
    sure: dict[str, int] = field(init=False)
    added: dict[str, int] = field(default_factory=dict)
    lowest: int | None = None

    def __post_init__(self) -> None:
        self.pods = dict(self.part["domains"])
        self.sure = dict(self.part["domains"])

    def admits(self, value: str | None) -> bool:
        if value is None:
            return False
        if self.constraint.is_of_hosts and value not in self.pods:
            return True
        if self.lowest is None:
            there = [*self.sure.values(), *self.part["low"]]
            enough = len(self.part["domains"]) + self.part["private"] >= self.constraint.min_domains
            self.lowest = min(there) if there and enough else 0
        return self.pods.get(value, 0) + self.own - self.lowest <= self.constraint.max_skew

    def place(self, value: str, *, is_sure: bool) -> bool:
        """Returns whether that changes anything."""
        if value not in self.pods:
            return False
        self.pods[value] += 1
        self.added[value] = self.added.get(value, 0) + 1
        if is_sure:
            self.sure[value] += 1
            self.lowest = None
        return True

    def predicted(self) -> Part:
        return {**self.part, "domains": dict(self.pods)}


def follow(pod: Pod, rules: tuple[Rules, Rules], summary: Any, late: Any, scores: Range | None) -> Tracker | None:
    """For the hard and the soft constraints of a pod; None where nothing needs to be followed."""
    parts: tuple[list[Part], list[Part | None]] = summary["hard"], summary["soft"]
    reliable, weighted = [False] * len(parts[0]), [0.0] * len(parts[1])
    if late is not None and (len(late["reliable"]), len(late["domains"])) == (len(parts[0]), len(parts[1])):
        reliable, weighted = late["reliable"], weights(late)
    labels = pod.metadata.labels
    hard = [
        Followed(constraint, part, int(constraint.matches(labels)), is_reliable)
        for constraint, part, is_reliable in zip(rules[0].constraints, parts[0], reliable, strict=True)
    ]
    soft = [
        None if part is None else Followed(constraint, part, int(constraint.matches(labels)), False, weight)
        for constraint, part, weight in zip(rules[1].constraints, parts[1], weighted, strict=True)
    ]
    if not hard and not any(soft):
        return None
    return SpreadTracker(pod, summary, hard, soft, rules, scores)


class SpreadTracker(Tracker):
    def __init__(
        self,
        pod: Pod,
        summary: Any,
        hard: list[Followed],
        soft: list[Followed | None],
        rules: tuple[Rules, Rules],
        scores: Range | None,
    ) -> None:
        """`soft`: None for a constraint of hosts. `rules`: the hard and the soft ones."""
        self._namespace = pod.namespace
        self._summary = summary
        self._hard = hard
        self._soft = soft
        self._hard_keys, self._soft_keys = _keys(rules[0], hard), _keys(rules[1], soft)
        self._highest = 0 if scores is None else scores[1]
        self._offered: set[str] = set()
        self._counted: dict[str, tuple[list[bool], list[bool]]] = {}
        self._moved = False
        self._peak = 0.0

    def admits(self, place: NodeDomains) -> bool:
        self._offered.add(place.node)
        return all(each.admits(place.domains.get(each.constraint.key)) for each in self._hard)

    def concerns(self, load: PodLoad) -> bool:
        followed = [*self._hard, *(each for each in self._soft if each is not None)]
        return any(self._counts(each.constraint, load) for each in followed)

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        counted = self._counted.get(class_id)
        if counted is None:
            counted = self._counted[class_id] = (
                [self._counts(each.constraint, load) for each in self._hard],
                [each is not None and self._counts(each.constraint, load) for each in self._soft],
            )
        if self._hard and self._hard_keys <= place.domains.keys():
            for each, counts in zip(self._hard, counted[0], strict=True):
                if counts and self._add(each, place):
                    self.touched = True
        if self._soft and self._soft_keys <= place.domains.keys():
            for follower, counts in zip(self._soft, counted[1], strict=True):
                if counts and follower is not None and self._add(follower, place):
                    self._moved = True

    def shift(self, place: NodeDomains, own: int) -> int:
        self._offered.add(place.node)
        if not self._moved:
            return 0
        more = 0.0
        for each in self._soft:
            if each is not None and (value := place.domains.get(each.constraint.key)) is not None:
                more += (each.added.get(value, 0) - own * each.own) * each.weight
        highest = max(self._highest, self._peak)
        return -round(MAX_NODE_SCORE * more / highest) if highest else 0

    def summary(self) -> Any:
        return {
            **self._summary,
            "hard": [each.predicted() for each in self._hard],
            "soft": [None if each is None else each.predicted() for each in self._soft],
        }

    def _counts(self, constraint: Constraint, load: PodLoad) -> bool:
        alive = load.namespace == self._namespace and not load.terminating
        return alive and constraint.counts and constraint.matches(load.labels)

    def _add(self, each: Followed, place: NodeDomains) -> bool:
        value = place.domains.get(each.constraint.key, UNLABELLED)
        is_sure = each.part["every"] or (each.reliable and place.node in self._offered)
        moved = each.place(value, is_sure=is_sure)
        self._peak = max(self._peak, each.added.get(value, 0) * each.weight)
        return moved


def _keys(rules: Rules, followed: Sequence[Followed | None]) -> frozenset[str]:
    """The labels that a node must have to take part; hostnames are not known here for soft constraints."""
    return frozenset(each.constraint.key for each in followed if each is not None) if rules.every_key else frozenset()
