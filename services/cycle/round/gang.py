"""Gangs: pods that are placed together or not at all, decided in one round that is asked in steps.

    open --assigned in a step--> decided | unfit | failed
      ^          |
      +-deferred-+

Each step asks about the open members, with those decided so far as given, and assigns them like any round. When no
member is open, the decided ones are committed together if they are enough. If they are not, all are taken back and the
gang is tried in another domain or in another way (`Attempts`). A gang that does not fit leaves the cycle, and holds no
resources meanwhile.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeVar

import msgspec

from flotilla.results import Status, error
from services.cycle.extenders import is_judged
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import GangShort, Reservations, RoundResult, Unfit, bytes_of
from services.cycle.round.attempts import Attempts, in_order
from services.cycle.round.domains import Domain, Level
from services.cycle.round.gang_reasons import failed_members, unfit_members
from services.cycle.round.given_pods import GivenPods
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.placement_search import MAX_OPTIONS, MAX_STEPS, PlacementSearch
from services.cycle.round.shared_claims import with_shared_claims
from services.cycle.round.views import ClassView
from shared.messages.limits import HALF_A_MESSAGE, MAX_GANG
from shared.messages.queue import Gang
from shared.messages.rounds import Given, Scope
from shared.model.load import PodLoad

PLUGIN = "GangScheduling"
"""Rejects the members of a gang that does not fit, beside the plugins that reject some of them."""
MAX_DECISION_BYTES = HALF_A_MESSAGE - (1 << 20)
"""What is decided about volumes and devices of all members, which one ask or one commit has to hold."""
MAX_IDLE_STEPS = 8
"""Consecutive steps without a verdict on any member."""
MAX_COUNTED = 64
"""Classes of a gang that are counted; others are taken to have room everywhere."""
WAITING = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frame:
    """Of a group that is decided as a part of a tree. `before`: what was decided of other groups. `within`: the labels
    of the domain that it must lie in. `thrifty`: no more members are placed than are needed. `only_counts`: it is only
    asked which domains it may lie in.
    """

    gang: Gang
    within: Mapping[str, str]
    before: Sequence[tuple[PodInfo, Placement]] = ()
    thrifty: bool = False
    only_counts: bool = False


class GangRound:
    """`members` are in queue order; `open`: the undecided ones, in the order of decision. `least` must be placed."""

    def __init__(
        self,
        members: Sequence[PodInfo],
        gone: Sequence[str] = (),
        unreserved: Sequence[str] | None = None,
        frame: Frame | None = None,
    ) -> None:
        """`gone`: victims that count as evicted; then the gang is only rehearsed, and nothing is committed.
        `unreserved`: pods whose nominations reserve nothing; by default those of the members, as all are decided
        together. `frame`: of a part of a tree.
        """
        gangs = [info.gang for info in members if info.gang is not None]
        placed_on = tuple(dict.fromkeys(node for gang in gangs for node in gang.placed_on))
        least = max(1, *(gang.least for gang in gangs))
        self.message = msgspec.structs.replace(gangs[0], least=least, placed_on=placed_on)
        """What the queue said of it, and what was placed since."""
        self._before: Sequence[tuple[PodInfo, Placement]] = ()
        self._within: Mapping[str, str] = {}
        self._thrifty = self._only_counts = False
        if frame is not None:
            self.message, self._before, self._within = frame.gang, frame.before, frame.within
            self._thrifty, self._only_counts = frame.thrifty, frame.only_counts
        self.key, self.least = self.message.key, self.message.least
        self.members = list(members)
        self.gone = list(gone)
        self.unreserved = nominated(members) if unreserved is None else list(unreserved)
        self.open = deque(members)
        levels = [Level(constraint.key, not constraint.preferred) for constraint in self.message.topology]
        self.attempts = Attempts(levels, Counter(info.class_id for info in members), self.least)
        self._search: PlacementSearch | None = None
        self._is_followed = False
        """Whether members matter to each other beyond the nodes that they fill."""
        self._reported: tuple[int, dict[str, tuple[PodInfo, Unfit]]] | None = None
        """Of the first attempt: how many members it placed, and why not the others."""
        self._decided: dict[str, tuple[PodInfo, Placement]] = {}
        self._unfit: dict[str, tuple[PodInfo, Unfit]] = {}
        self._failed: dict[str, tuple[PodInfo, Status]] = {}
        self._given = GivenPods()
        self._views: dict[str, ClassView] = {}
        self._idle_steps = 0
        self.steps = 0
        """Steps that it has taken."""
        self.labels: tuple[str, ...] = ()
        """Labels of the offered nodes whose values it must know."""

    def refused(self, max_bytes: int) -> RoundResult | None:
        """All members as failed, if the gang cannot be decided at all. `max_bytes`: of whole pods in one commit."""
        why = refusal(self._name, self.members, max_bytes)
        return None if why is None else RoundResult(self._order, failed=[(info, why) for info in self.members])

    @property
    def is_rehearsed(self) -> bool:
        """Whether it is decided only to see whether it would fit."""
        return bool(self.gone)

    # Steps

    @property
    def scope(self) -> Scope | None:
        """What the present step asks beyond what any round does; it is about `asked` members."""
        now = self.attempts.now
        if now is None:
            return None
        within = {**self._within, **now.domain.labels}
        if now.kind == "count":
            keys = [level.key for level in self.attempts.levels]
            return Scope(within, count_by=keys, values_of=list(self.message.placed_on))
        if now.kind == "search":
            return Scope(within, count_by=[], options=MAX_OPTIONS)
        return Scope(within) if within else None

    def asked(self) -> list[PodInfo]:
        """A member of each class that is counted or searched for; empty if open members are to be assigned."""
        now = self.attempts.now
        if now is None or now.kind == "fill":
            return []
        one_of_each = {info.class_id: info for info in reversed(self.members)}
        classes = list(self.wanted)[:MAX_COUNTED] if self._search is None else self._search.open
        return [one_of_each[class_id] for class_id in classes]

    @property
    def assumed(self) -> Sequence[tuple[PodInfo, Placement]]:
        """Decided members, which the present step assumes on their nodes."""
        return (*self._before, *self._decided.values())

    def given(self) -> tuple[list[Given], list[PodLoad]]:
        return self._given.of(self.assumed)

    def reservations(self) -> Reservations:
        return Reservations(self.assumed)

    def take(self, result: RoundResult) -> None:
        """The result of a step. Members to assign were taken from `open`; deferred ones are put back."""
        self.steps += 1
        self._failed |= {info.uid: (info, status) for info, status in result.failed}
        self._views |= result.views
        self._is_followed |= result.is_followed
        if result.counted is not None and not self._failed:
            self.attempts.take_counts(result.counted)
            self._begin_attempt()
        elif self._search is not None and not self._failed:
            self._go_on_searching(self._search, result)
        elif result.counted is None and result.offered is None:
            self._take_assigned(result)

    def _take_assigned(self, result: RoundResult) -> None:
        self._decided |= {info.uid: (info, placement) for info, placement in result.decided}
        self._unfit |= {info.uid: (info, unfit) for info, unfit in result.unfit}
        self.open.extendleft(reversed(result.deferred))
        if self._thrifty and len(self._decided) >= self.least:
            self._decided = dict(islice(self._decided.items(), self.least))
            self.open.clear()
        self._idle_steps = self._idle_steps + 1 if len(result.deferred) == len(result.order) else 0
        if self._idle_steps == MAX_IDLE_STEPS:
            stuck = error(f"{self._name}: no member was decided in {MAX_IDLE_STEPS} steps")
            self._failed |= {info.uid: (info, stuck) for info in result.deferred}
        placements = with_shared_claims(self.assumed)
        size = sum(bytes_of(placement) for _, placement in placements)
        if size > MAX_DECISION_BYTES:
            large = error(f"{self._name}: what is decided about its volumes and devices takes {size} bytes")
            self._failed |= {info.uid: (info, large) for info in self.members}
        if not self.open and not self._failed and len(self._decided) < self.least:
            self._fail_attempt()

    def _go_on_searching(self, search: PlacementSearch, result: RoundResult) -> None:
        """Tells the result which member goes where next, unless it is of a class that this step has not asked about.

        Once enough are placed, the others go where they fit.
        """
        search.take(result.offered or {})
        self._decided.clear()
        of_class = {class_id: deque(infos) for class_id, infos in self._by_class().items()}
        for class_id, placement in search.placed:
            info = of_class[class_id].popleft()
            self._decided[info.uid] = info, placement
        last = next(reversed(self._decided.values()), None)
        if last is not None and search.outcome != "none" and last[0].class_id in (result.offered or {}):
            result.order, result.decided, result.deferred = [last[0].uid], [last], []
        if search.outcome == "found":
            left = () if self._thrifty else self.members
            self.open = deque(info for info in left if info.uid not in self._decided)
            self._search = None
            self.attempts.found()
        elif search.outcome == "none":
            self.attempts.search_steps -= search.steps
            self.attempts.is_cut |= search.is_cut
            self._fail_attempt()

    def _fail_attempt(self) -> None:
        if self._reported is None:
            self._reported = len(self._decided), dict(self._unfit)
        may_search = not any(is_judged(class_id) for class_id in self.wanted)
        self.attempts.fail(is_exact=self._is_exact, may_search=may_search)
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        now = self.attempts.now
        self._search = None
        self._idle_steps = 0
        if now is None:
            return
        self._decided, self._unfit = {}, {}
        self.open = deque(self.members)
        if now.kind == "fill" and now.hardest_first:
            by_class = self._by_class()
            self.open = deque(info for each in in_order(self.wanted, now.domain) for info in by_class[each])
        elif now.kind == "search":
            steps = min(self.attempts.search_steps, MAX_STEPS)
            any_order = self._is_followed or share_claims(self.members)
            self._search = PlacementSearch(self.wanted, self.least, any_order=any_order, steps=steps)

    @property
    def _is_exact(self) -> bool:
        """Whether members placed one after the other find a placement if there is one."""
        if len(self.wanted) > 1 or self._is_followed:
            return False
        first = self.members[0]
        return first.claims is None and not first.template.load.claims

    @property
    def wanted(self) -> dict[str, int]:
        """Its members by class, in queue order."""
        return dict(Counter(info.class_id for info in self.members))

    def _by_class(self) -> dict[str, list[PodInfo]]:
        by_class: dict[str, list[PodInfo]] = {}
        for info in self.members:
            by_class.setdefault(info.class_id, []).append(info)
        return by_class

    @property
    def is_over(self) -> bool:
        """One failed member is enough."""
        if self._failed or self.attempts.now is None:
            return True
        return self._search is None and self.attempts.now.kind != "count" and not self.open

    @property
    def has_counted(self) -> bool:
        """Whether it was only asked which domains it may lie in, and that is answered."""
        return self._only_counts and self.attempts.counted is not None

    @property
    def domains(self) -> list[Domain]:
        """All domains that it may lie in, the best first; the whole cluster if it has no constraints."""
        return self.attempts.domains

    # The end

    @property
    def verdict(self) -> Literal["placed", "unfit", "failed"]:
        """Of the gang as a whole, once it is over."""
        if self._failed:
            return "failed"
        return "placed" if len(self._decided) >= self.least else "unfit"

    def outcome(self) -> RoundResult:
        whole = RoundResult(self._order, views=self._views)
        verdict = self.verdict
        if verdict == "failed":
            whole.failed = failed_members(self.members, {uid: status for uid, (_, status) in self._failed.items()})
        elif verdict == "placed":
            whole.decided = with_shared_claims(self._decided.values())
            whole.withheld = self._in_order(self._unfit)
        else:
            whole.unfit = self._all_unfit()
        return whole

    @property
    def _order(self) -> list[str]:
        return [info.uid for info in self.members]

    @property
    def _name(self) -> str:
        return f'pod group "{self.key}"'

    def _in_order(self, found: Mapping[str, T]) -> list[T]:
        return [found[info.uid] for info in self.members if info.uid in found]

    def _all_unfit(self) -> list[tuple[PodInfo, Unfit]]:
        """By what the first attempt has found."""
        fitting, found = self._reported or (len(self._decided), self._unfit)
        own = {uid: unfit for uid, (_, unfit) in found.items()}
        first = next((own[info.uid] for info in self.members if info.uid in own), None)
        short = f"only {fitting} of the {self.least} members of {self._name} that are needed fit"
        return unfit_members(
            self.members,
            self.members,
            own,
            plugins={*self._rejecting, *(plugin for unfit in own.values() for plugin in unfit.plugins)},
            others=f"{WAITING}: {short}{'' if first is None else f': {first.message}'}",
            sentence=self._in_a_sentence,
            short=GangShort(fitting, self.least, len(self.members) - fitting, self.why),
        )

    @property
    def _rejecting(self) -> set[str]:
        """The plugins whose events requeue the gang, beside those that reject members."""
        found = self.attempts.counted
        return {PLUGIN, *(() if found is None else found.limited_by)}

    @property
    def names_all_limits(self) -> bool:
        """Whether its reasons name every plugin that keeps any of its members from any node.

        They name those of members that fit nowhere. One that fits may be in the way of others, for lack of another
        place: what keeps it from there is known only if places were counted for all classes, and if members matter to
        each other by nothing but the nodes that they fill.
        """
        if len(self.wanted) == 1:
            return True
        is_counted = self.attempts.counted is not None and len(self.wanted) <= MAX_COUNTED
        return is_counted and not self._is_followed and not any(map(is_judged, self.wanted))

    @property
    def is_cut(self) -> bool:
        """Whether there may be a placement though none was found."""
        return self.attempts.is_cut

    @property
    def why(self) -> str:
        """One sentence about the whole gang, if it does not fit and there is more to say than why members do not."""
        reason = self.attempts.why(len(self.members))
        if not self.attempts.is_cut:
            return reason
        ended = f"the search for a placement ended after {self.steps} steps, so there may be one"
        return f"{reason}; {ended}" if reason else ended

    @property
    def _in_a_sentence(self) -> str:
        why = self.why
        return f"{self._name[0].upper()}{self._name[1:]}: {why}." if why else ""


def nominated(members: Sequence[PodInfo]) -> list[str]:
    """The uids of those that are nominated to a node."""
    return [info.uid for info in members if info.nominated_node]


def share_claims(members: Sequence[PodInfo]) -> bool:
    """Whether what one member is given may bind the others: who goes first matters."""
    return any(info.claims is not None and not info.claims.private for info in members)


def refusal(name: str, members: Sequence[PodInfo], max_bytes: int) -> Status | None:
    """Why these members cannot be decided together at all. `max_bytes`: of whole pods in one commit."""
    size = sum(info.size for info in members)
    if len(members) > MAX_GANG:
        return error(f"{name}: at most {MAX_GANG} pods are placed together, not {len(members)}")
    if size > max_bytes:
        return error(f"{name}: its pods take {size} bytes, and at most {max_bytes} are committed")
    profiles = list(dict.fromkeys(info.template.profile for info in members))
    if len(profiles) > 1:
        names = f'got: "{profiles[0]}" and "{profiles[1]}"'
        return error(f"all pods in a single pod group should have the same .spec.schedulerName set, {names}")
    return None
