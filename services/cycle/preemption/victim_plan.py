"""One set of victims for a gang, or for a tree of groups: asks class by class, group by group, in domain after domain.

    root --domain by domain, the cheapest first--> its groups in turn --> ... --> pod groups, class by class

Each class is asked about with the members before it in place, and their victims gone. Pods of a class that matter to
each other only by the nodes they take are placed at once, by the best choice there is; others one after another.
If a class or a group finds no room, all are tried again with that one first.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import msgspec

from services.cycle.preemption.gang_case import GangCase, Stage
from services.cycle.preemption.victim_choice import Choice, Findings, Where, by_domain, cheaper
from services.cycle.round.admission import PodInfo
from shared.messages.preemption import GangAsk

MAX_DOMAINS = 8
"""Domains, the cheapest first, in which room is searched for further classes, or for the groups of a composite one."""
MAX_ORDERS = 4
"""Orders in which classes, or groups, are tried until each finds room."""


@dataclass(frozen=True, slots=True)
class OfClass:
    """Members that are alike, apart from their nominations. `pods`: those that need room."""

    class_id: str
    first: PodInfo
    pods: tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """`members`: for how many of the class there is to be room."""

    of: OfClass
    members: int
    gang: GangAsk


@dataclass(frozen=True, slots=True)
class Domain:
    """The labels by which the groups so far lie together, the widest first; and their values, as far as chosen."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def also(self, keys: Sequence[str], values: Sequence[str]) -> "Domain":
        """Within it, by further labels."""
        new = [key for key in keys if key not in self.keys]
        known = [value for key, value in zip(keys, values, strict=False) if key in new]
        is_chosen = len(self.values) == len(self.keys)
        return Domain((*self.keys, *new), (*self.values, *known) if is_chosen else self.values)

    def ask(self, ask: GangAsk) -> GangAsk:
        return msgspec.structs.replace(ask, keys=list(self.keys), within=self.values)


Plan = Generator[Question, Findings, Choice | None]


class VictimPlan:
    def __init__(self, case: GangCase, stands_alone: Callable[[str], bool]) -> None:
        """`stands_alone`: whether pods of a class matter to each other only by the nodes they take."""
        self._case = case
        self._tree = case.tree
        self._stands_alone = stands_alone
        self._on_one_node = case.stage is Stage.ON_ONE_NODE
        self._stuck: OfClass | None = None
        self.classes = classes_of(case.pods if case.groups else case.pods[: case.least])

    @property
    def is_exact(self) -> bool:
        """Whether the best choice of what workers offer is found, and nothing only if there is nothing to be found."""
        return len(self.classes) == 1 and self._stands_alone(self.classes[0].class_id) and not self._case.groups

    def choose(self, ask: GangAsk) -> Plan:
        """Victims that make room for all that is needed."""
        domain = Domain(self._case.keys, self._case.within)
        if self._tree.least(0) == 0:  # all that must be placed is: one more of its pods is to be
            group, (first, *_) = next(iter(self._case.of_group.items()))
            return (yield from self._members([first], Choice(), self._domain_of(group, domain, path=True), ask))
        return (yield from self._group(0, Choice(), domain, ask))

    # Groups

    def _group(self, number: int, choice: Choice, within: Domain, ask: GangAsk) -> Plan:
        """Room for what this group needs."""
        tree = self._tree
        least = tree.least(number)
        if not least:
            return None if least is None else choice
        domain = self._domain_of(number, within)
        if not tree.groups[number].is_composite or tree.is_one(number):
            return (yield from self._members(self._needed(number, least), choice, domain, ask))
        if len(domain.values) == len(domain.keys):
            return (yield from self._groups_in(number, choice, domain, ask))
        best: Choice | None = None
        for values in (yield from self._domains(number, choice, domain, ask))[:MAX_DOMAINS]:
            found = yield from self._groups_in(number, choice, Domain(domain.keys, values), ask)
            best = cheaper(best, found)
        return best

    def _needed(self, number: int, least: int) -> list[PodInfo]:
        members = [info for leaf in self._tree.leaves(number) for info in self._case.of_group.get(leaf, ())]
        return members[:least]

    def _domain_of(self, number: int, within: Domain, *, path: bool = False) -> Domain:
        """Where the group may lie. `path`: also by what the groups above it say."""
        if not self._case.groups:
            return within
        placed_in = self._case.placed_in or {}
        for each in reversed(self._tree.path(number)) if path else [number]:
            keys = [level.key for level in self._tree.groups[each].topology if not level.preferred]
            within = within.also(keys, placed_in.get(each, ()))
        return within

    def _domains(
        self, number: int, choice: Choice, domain: Domain, ask: GangAsk
    ) -> Generator[Question, Findings, list[tuple[str, ...]]]:
        """Where there is room for the class of which most is needed, the cheapest first."""
        least = self._tree.least(number) or 0
        needed = self._needed(number, least) if self._tree.needs_all(number) else []
        of = max(classes_of(needed or self._case.of_group[self._some_leaf(number)]), key=lambda each: len(each.pods))
        members = self._at_once(of, len(of.pods) if needed else 1)
        findings = yield Question(of, members, choice.supposed(domain.ask(ask)))
        found: list[tuple[Choice, tuple[str, ...]]] = []
        for where, candidates in by_domain(findings).items():
            extended = choice.also(findings).extended(of.pods, candidates, members)
            found += [] if extended is None else [(extended, where.values)]
        return [values for _, values in sorted(found, key=lambda each: (each[0].cost(), each[1]))]

    def _some_leaf(self, number: int) -> int:
        return next(leaf for leaf in self._tree.leaves(number) if self._case.of_group.get(leaf))

    def _groups_in(self, number: int, choice: Choice, domain: Domain, ask: GangAsk) -> Plan:
        """Room for enough groups of a composite one."""
        tree, children = self._tree, self._tree.children(number)
        lacks = tree.groups[number].least - sum(tree.is_met(child, {}) for child in children)
        others = [child for child in children if not tree.is_met(child, {}) and tree.least(child) is not None]
        if lacks <= 0 or len(others) < lacks:
            return choice if lacks <= 0 else None
        if len(others) > lacks:
            others = yield from self._cheapest_first(others, choice, domain, ask)
        for _ in range(MAX_ORDERS):
            found, stuck = yield from self._in_turn(others, lacks, choice, domain, ask)
            if found is not None or stuck is None or stuck == others[0]:
                return found
            others = [stuck, *(each for each in others if each != stuck)]
        return None

    def _cheapest_first(
        self, groups: Sequence[int], choice: Choice, domain: Domain, ask: GangAsk
    ) -> Generator[Question, Findings, list[int]]:
        """Those for which there is room, each by itself."""
        found: list[tuple[Choice, int]] = []
        for each in groups:
            extended = yield from self._group(each, choice, domain, ask)
            found += [] if extended is None else [(extended, each)]
        return [number for _, number in sorted(found, key=lambda each: (each[0].cost(), each[1]))]

    def _in_turn(
        self, groups: Sequence[int], lacks: int, choice: Choice, domain: Domain, ask: GangAsk
    ) -> Generator[Question, Findings, tuple[Choice | None, int | None]]:
        """Room for this many of the groups, beside each other; or the first for which there is none."""
        stuck: int | None = None
        for at, each in enumerate(groups):
            if lacks > len(groups) - at:
                break
            extended = yield from self._group(each, choice, domain, ask)
            if extended is None:
                stuck = each if stuck is None else stuck
                continue
            choice, lacks = extended, lacks - 1
            if not lacks:
                return choice, None
        return None, stuck

    # Members of one group

    def _members(self, needed: Sequence[PodInfo], choice: Choice, domain: Domain, ask: GangAsk) -> Plan:
        """Room for all of these; if a class finds none, it is tried again with that class first."""
        order, tried = classes_of(needed), 0
        while True:
            found = yield from self._in_order(order, choice, domain, ask)
            tried += 1
            if found is not None or tried == min(len(order), MAX_ORDERS):
                return found
            stuck = self._stuck or order[0]
            order = [stuck, *(of for of in order if of is not stuck)]

    def _in_order(self, classes: Sequence[OfClass], before: Choice, domain: Domain, ask: GangAsk) -> Plan:
        """The classes one after another, in the cheapest domain."""
        first, *rest = classes
        self._stuck = first
        members = self._at_once(first, len(first.pods))
        findings = yield Question(first, members, before.supposed(domain.ask(ask)))
        choices: dict[Where, Choice] = {}
        for where, candidates in by_domain(findings, each_node=self._on_one_node).items():
            choice = before.also(findings).extended(first.pods, candidates, members)
            if choice is not None:
                choices[where] = choice
        cheapest = sorted(choices, key=lambda each: (choices[each].cost(), each))
        if not rest and members == len(first.pods):
            return choices[cheapest[0]] if cheapest else None
        best: Choice | None = None
        for where in cheapest[:MAX_DOMAINS]:
            within = Domain(domain.keys, where.values).ask(ask)
            found = yield from self._rest(classes, choices[where], within, where.node)
            best = cheaper(best, found)
        return best

    def _rest(self, classes: Sequence[OfClass], choice: Choice, ask: GangAsk, node: str) -> Plan:
        """Places the members that have no room yet, class by class."""
        placed = {info.uid for info, _ in choice.placed}
        for of in classes:
            waiting = [info for info in of.pods if info.uid not in placed]
            while waiting:
                members = self._at_once(of, len(waiting))
                findings = yield Question(of, members, choice.supposed(ask))
                candidates = [each for found in findings for each in found.candidates if node in ("", each.node)]
                extended = choice.also(findings).extended(waiting, candidates, members)
                if extended is None:
                    self._stuck = of
                    return None
                choice, waiting = extended, waiting[members:]
        return choice

    def _at_once(self, of: OfClass, members: int) -> int:
        return members if self._on_one_node or self._stands_alone(of.first.class_id) else 1


def classes_of(pods: Sequence[PodInfo]) -> list[OfClass]:
    """The classes of these members, in their order."""
    found: dict[str, list[PodInfo]] = {}
    for info in pods:
        class_id = info.class_of_template if info.apart else info.class_id
        found.setdefault(class_id, []).append(info)
    return [OfClass(class_id, of[0], tuple(of)) for class_id, of in found.items()]
