"""Gangs that are trees of groups: decided group by group in one round, and committed together or not at all.

    root --domain by domain--> its groups, one after the other --> ... --> pod groups, each decided like any gang

A composite group is met if enough of its groups are; if it is not, all that was placed below it is taken back, and its
next domain is tried. Each group is asked about with the members of the earlier ones in place, within the domain of the
groups above it. First all members are placed that fit. If the tree is not met then although fewer would do, only those
are placed that are needed, and the others afterwards as they fit.

Groups that were placed are not moved for later ones.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from services.cycle.extenders import is_judged
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import GangShort, Reservations, RoundResult, Unfit
from services.cycle.round.attempts import MAX_DOMAINS_TRIED
from services.cycle.round.domains import holding
from services.cycle.round.gang import PLUGIN, WAITING, Frame, GangRound, nominated, refusal
from services.cycle.round.gang_reasons import failed_members, unfit_members
from services.cycle.round.given_pods import GivenPods
from services.cycle.round.group_tree import GroupTree, key_of
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.placement_search import MAX_SEARCHED
from services.cycle.round.shared_claims import with_shared_claims
from services.cycle.round.tree_search_step import TreeSearchStep
from services.cycle.round.views import ClassView
from shared.messages.queue import Gang
from shared.messages.rounds import Given, Scope
from shared.model.load import PodLoad

MAX_STEPS = 1024
"""Steps of one tree, as others wait meanwhile; a search has limits of its own."""
MAX_STEPS_OF_GROUP = 4
"""Further steps of a tree for each of its groups."""
Labels = Mapping[str, str]
Steps = Iterator[None]


class TreeRound:
    """`members` are in queue order. It asks one GangRound at a time."""

    def __init__(
        self, members: Sequence[PodInfo], gone: Sequence[str] = (), unreserved: Sequence[str] | None = None
    ) -> None:
        """`gone`, `unreserved`: as of a GangRound."""
        gang = members[0].gang
        assert gang is not None
        self.message: Gang = gang
        self.key, self.least = gang.key, gang.least
        self.members = list(members)
        self.gone = list(gone)
        self.unreserved = nominated(members) if unreserved is None else list(unreserved)
        self.placed_in: dict[int, tuple[str, ...]] = {}
        """Of groups of which members have a place already: the values of their required labels there."""
        self.steps = 0
        self._of_group: dict[int, list[PodInfo]] = {}
        for info in members:
            self._of_group.setdefault(_group(info), []).append(info)
        self._tree = GroupTree(gang.groups, {number: len(of) for number, of in self._of_group.items()})
        self._within: dict[int, Labels] = {}
        """The domains in which groups were placed."""
        self._decided: dict[str, tuple[PodInfo, Placement]] = {}
        self._counts: Counter[int] = Counter()
        """The decided members of each pod group."""
        self._unfit: dict[str, Unfit] = {}
        self._failed: RoundResult | None = None
        self._views: dict[str, ClassView] = {}
        self._plugins: set[str] = set()
        self._why = ""
        self.is_cut = False
        """Whether there may be a placement though none was found."""
        self._is_followed = False
        self._given = GivenPods()
        self._now: GangRound | TreeSearchStep | None = None
        self._run = self._decide()
        self._advance()

    def refused(self, max_bytes: int) -> RoundResult | None:
        """What becomes of all if the gang cannot be decided at all. `max_bytes`: of whole pods in one commit."""
        why = refusal(self._name, self.members, max_bytes)
        if why is not None:
            return RoundResult(self._order, failed=[(info, why) for info in self.members])
        return self.outcome() if self.is_over else None

    @property
    def is_rehearsed(self) -> bool:
        """Whether it is decided only to see whether it would fit."""
        return bool(self.gone)

    # The present step

    @property
    def now(self) -> GangRound | TreeSearchStep:
        assert self._now is not None
        return self._now

    @property
    def scope(self) -> Scope | None:
        return self.now.scope

    def asked(self) -> list[PodInfo]:
        return self.now.asked()

    @property
    def open(self) -> deque[PodInfo]:
        return self.now.open

    @open.setter
    def open(self, left: deque[PodInfo]) -> None:
        self.now.open = left

    @property
    def labels(self) -> tuple[str, ...]:
        return self.now.labels

    @property
    def wanted(self) -> dict[str, int]:
        return self.now.wanted

    def given(self) -> tuple[list[Given], list[PodLoad]]:
        return self._given.of(self.now.assumed)

    def reservations(self) -> Reservations:
        return self.now.reservations()

    def take(self, result: RoundResult) -> None:
        self.steps += 1
        self._is_followed |= result.is_followed
        self.now.take(result)
        if self.steps < MAX_STEPS + MAX_STEPS_OF_GROUP * len(self.message.groups):
            self._advance()
            return
        self._now, self.is_cut = None, True
        if not self._is_met(0):
            self._take_back(0)

    @property
    def is_over(self) -> bool:
        return self._now is None

    def _advance(self) -> None:
        """Goes on to the next step, unless it is over."""
        if next(self._run, self) is self:
            self._now = None

    # The search

    def _decide(self) -> Steps:
        if self._tree.least(0) is None:
            return
        yield from self._place(0, {}, thrifty=False)
        if self._is_met(0) or self._failed or self._tree.is_one(0):
            return
        if not self._tree.needs_all(0):
            yield from self._place(0, {}, thrifty=True)
        if not (self._is_met(0) or self._failed):
            yield from self._search()
        if self._is_met(0) and not self._failed:
            yield from self._add_others(0)

    def _place(self, number: int, within: Labels, *, thrifty: bool) -> Steps:
        """Has the group met, or nothing of it placed. `thrifty`: places no more than it needs."""
        group, tree = self._tree.groups[number], self._tree
        if tree.least(number) is None:
            return
        if not group.is_composite or tree.is_one(number):
            yield from self._place_as_one(number, within, thrifty=thrifty)
            return
        domains: list[Labels] = [within]
        if group.topology:
            domains = []
            yield from self._count(number, within, domains)
        for labels in domains:
            self._within[number] = labels
            children = tree.children(number)
            for at, child in enumerate(children):
                is_met = [self._is_met(each) for each in children]
                hopeful = sum(is_met) + sum(not each for each in is_met[at:])
                if self._failed or hopeful < group.least or (thrifty and sum(is_met) >= group.least):
                    break
                if not self._is_met(child) or not thrifty:
                    yield from self._place(child, labels, thrifty=thrifty)
            if self._failed or self._is_met(number):
                return
            self._take_back(number)

    def _place_as_one(self, number: int, within: Labels, *, thrifty: bool) -> Steps:
        """Decides all members below the group as those of one gang."""
        numbers = [*self._tree.leaves(number)]
        of_all = (info for each in numbers for info in self._of_group.get(each, ()))
        members = [info for info in of_all if info.uid not in self._decided]
        least = self._tree.least(number) or 0
        if not members or (thrifty and not least):
            return
        if number in self._within:
            frame = self._frame(number, 1, self._within[number], bare=True)
            yield from self._ask(number, GangRound(members, frame=frame))
            return
        round_ = GangRound(members, frame=self._frame(number, max(least, 1), within, thrifty=thrifty))
        yield from self._ask(number, round_)
        if round_.verdict == "placed":
            domain = round_.attempts.now
            labels = {**within, **({} if domain is None else domain.domain.labels)}
            self._within |= dict.fromkeys((number, *numbers), labels)

    def _search(self) -> Steps:
        """Searches all placements, if the tree is small enough."""
        if len(self.members) > MAX_SEARCHED or any(is_judged(info.class_id) for info in self.members):
            self.is_cut = True
            return
        step = self._now = TreeSearchStep(self._tree, self._of_group, any_order=self._is_followed)
        while not step.is_over:
            yield
        self._failed = step.failed
        self.is_cut |= step.search.is_cut
        if step.search.outcome == "found":
            self._decided = {info.uid: (info, placement) for info, placement in step.kept()}
            self._counts = Counter(_group(info) for info, _ in step.kept())
            self._within = step.search.domains()

    def _count(self, number: int, within: Labels, domains: list[Labels]) -> Steps:
        """Lists the domains that may hold the composite group, the best first."""
        least = self._tree.least(number) or 0
        members = [info for each in self._tree.leaves(number) for info in self._of_group.get(each, ())]
        round_ = GangRound(members, frame=self._frame(number, least, within, only_counts=True))
        yield from self._ask(number, round_)
        if self._failed is not None:
            return
        found = holding(round_.attempts.domains, least)
        self.is_cut |= len(found) > MAX_DOMAINS_TRIED
        domains += [{**within, **domain.labels} for domain in found[:MAX_DOMAINS_TRIED]]
        self._plugins |= set() if round_.attempts.counted is None else round_.attempts.counted.limited_by
        if not domains and not self._why:
            self._why = round_.attempts.why(len(members))

    def _add_others(self, number: int) -> Steps:
        """Places what else fits: members beyond the minimum, then groups that are not needed."""
        group = self._tree.groups[number]
        if not group.is_composite:
            within = self._within.get(self._tree.groups[number].parent, {})
            yield from self._place_as_one(number, within, thrifty=False)
            return
        children = self._tree.children(number)
        for child in sorted(children, key=lambda each: not self._is_met(each)):
            if self._failed:
                return
            if self._is_met(child):
                yield from self._add_others(child)
            else:
                yield from self._place(child, self._within.get(number, {}), thrifty=False)

    def _ask(self, number: int, round_: GangRound) -> Steps:
        """Decides these members beside those that are decided, and takes over what comes of it."""
        self._now = round_
        while not (round_.is_over or round_.has_counted):
            yield
        counted = round_.attempts.counted
        if counted is not None and counted.placed:
            required = [at for at, level in enumerate(round_.attempts.levels) if level.required]
            self.placed_in[number] = min(tuple(values[at] or "" for at in required) for values in counted.placed)
        if round_.has_counted:
            return
        outcome = round_.outcome()
        self._views |= outcome.views
        if outcome.failed:
            self._failed = outcome
            return
        self._decided |= {info.uid: (info, placement) for info, placement in outcome.decided}
        self._counts.update(_group(info) for info, _ in outcome.decided)
        for info, unfit in (*outcome.unfit, *outcome.withheld):
            self._unfit.setdefault(info.uid, unfit)
            self._plugins.update(unfit.plugins)

    def _frame(
        self,
        number: int,
        least: int,
        within: Labels,
        *,
        bare: bool = False,
        thrifty: bool = False,
        only_counts: bool = False,
    ) -> Frame:
        """`bare`: the group's domain is known already."""
        group = self._tree.groups[number]
        topology, placed_on = ((), ()) if bare else (group.topology, group.placed_on)
        gang = Gang(key_of(self.message, number), least, topology, placed_on)
        return Frame(gang, within, list(self._decided.values()), thrifty, only_counts)

    def _is_met(self, number: int) -> bool:
        return self._tree.is_met(number, self._counts)

    def _take_back(self, number: int) -> None:
        """Everything of this group."""
        below = {*self._tree.leaves(number)}
        if any(self._counts[each] for each in below):
            self._decided = {uid: each for uid, each in self._decided.items() if _group(each[0]) not in below}
        for each in below:
            self._counts.pop(each, None)
        for each in self._below(number):
            self._within.pop(each, None)

    def _below(self, number: int) -> Iterator[int]:
        yield number
        for child in self._tree.children(number):
            yield from self._below(child)

    # The end

    @property
    def verdict(self) -> Literal["placed", "unfit", "failed"]:
        if self._failed is not None:
            return "failed"
        return "placed" if self._is_met(0) and self._decided else "unfit"

    def outcome(self) -> RoundResult:
        whole = RoundResult(self._order, views=self._views)
        verdict = self.verdict
        if self._failed is not None:
            whole.failed = failed_members(self.members, {info.uid: status for info, status in self._failed.failed})
        elif verdict == "placed":
            whole.decided = with_shared_claims(self._decided.values())
            whole.withheld = self._all_unfit([info for info in self.members if info.uid not in self._decided])
        else:
            whole.unfit = self._all_unfit(self.members)
        return whole

    @property
    def names_all_limits(self) -> bool:
        """As of a GangRound. Of members of groups that were placed, and taken back, nothing is remembered.

        Members that matter to each other keep each other from nodes from which something else would keep them as well.
        """
        return len({info.class_id for info in self.members}) == 1 and not self._is_followed

    @property
    def _order(self) -> list[str]:
        return [info.uid for info in self.members]

    @property
    def _name(self) -> str:
        return f'composite pod group "{self.key}"'

    def _all_unfit(self, members: Sequence[PodInfo]) -> list[tuple[PodInfo, Unfit]]:
        others = f"{WAITING}: other groups of {self._name} do not fit"
        plugins = {PLUGIN, *self._plugins}
        short = GangShort(len(self._decided), 0, len(self._unfit), self._short)
        sentence = f"{self._name[0].upper()}{self._name[1:]}: {short.why}." if short.why else ""
        return unfit_members(
            members, self.members, self._unfit, plugins=plugins, others=others, sentence=sentence, short=short
        )

    @property
    def _short(self) -> str:
        """About the whole tree, if it is not met."""
        if self.verdict == "placed":
            return ""
        number = self._tree.unit()
        group = self._tree.groups[number]
        if not group.is_composite:
            return ""
        why = self._why or f"fewer than {group.least} of its {len(self._tree.children(number))} groups fit together"
        ended = f"; the search for a placement ended after {self.steps} steps, so there may be one"
        return f"{why}{ended if self.is_cut else ''}"


def _group(info: PodInfo) -> int:
    return 0 if info.gang is None else info.gang.group
