"""The search for victims of a gang: asks all workers for ladders of their nodes, class by class, and chooses a set.

ask about a class --all answered by the merged summaries--> choose nodes and victims --> next class | found | nothing
 ^                                                            |
 +---------- with victims gone, and members in place ----------+

Pods of a class that matter to each other only by the nodes they take are placed at once, by the best choice there is;
others one after another. Pod groups that are evicted as a whole are left alone at first; if they might help, the
search is made again with some of them gone, and the cheapest set counts.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from services.cycle.preemption.candidate_search import Asking
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Unfit
from services.cycle.round.gang import GangRound
from shared.framework.profile import MAX_ASKS, Framework, is_mergeable, merge, merging_failed
from shared.framework.victim_sets import Cost, choose, cost_of, importance
from shared.messages.preemption import Candidate, Candidates, GangAsk, Preempt, PreemptAsk, ShardFindings, Victim
from shared.messages.rounds import Given
from shared.messages.state import Loads
from shared.plugins.preemption import NEVER, of_all_shards

MAX_QUESTIONS = 256
"""Asks of one search, so that others do not wait long for one gang; a search that is cut has found nothing."""
MAX_DOMAINS = 8
"""Domains, the cheapest first, in which room is searched for the gang's further classes."""
MAX_ORDERS = 4
"""Orders in which the gang's classes are tried, until each finds room."""
MAX_GROUPS_COMBINED = 4
"""Pod groups evicted as a whole that are tried in all combinations: 16 of them."""
MAX_GROUPS = 16
"""Pod groups evicted as a whole, for one gang."""
TOO_LONG = f"not tried any further after {MAX_QUESTIONS} questions"
NOTHING = "no pods of lower priority make enough room for {least} members of the pod group"


@dataclass(frozen=True)
class GangCase:
    """A gang that does not fit. `members`: in queue order, with the reason for each.

    `keys`: the labels whose values its domain shares; `within`: those values, if other members have a place already.
    """

    key: str
    least: int
    priority: int
    members: Sequence[tuple[PodInfo, Unfit]]
    never_preempts: bool = False
    keys: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    @property
    def pods(self) -> list[PodInfo]:
        return [info for info, _ in self.members]

    @cached_property
    def unfit(self) -> dict[str, Unfit]:
        """By uid."""
        return {info.uid: unfit for info, unfit in self.members}

    @property
    def nominated(self) -> dict[str, str]:
        return {info.uid: node for info in self.pods if (node := info.nominated_node)}

    @property
    def group(self) -> str:
        """`namespace/name`, without the API."""
        return "/".join(self.key.split("/")[-2:])


@dataclass(frozen=True, slots=True)
class _OfClass:
    """Members that are alike, apart from their nominations. `pods`: those that need room."""

    class_id: str
    first: PodInfo
    pods: tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    of: _OfClass
    members: int
    gang: GangAsk


Findings = Sequence[ShardFindings]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Victims so far, and nodes of members. `touched`: pod groups among the victims that were not gone before."""

    victims: dict[str, Victim] = field(default_factory=dict)
    placed: tuple[tuple[PodInfo, str], ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    touched: frozenset[str] = frozenset()

    def cost(self) -> Cost:
        return cost_of(self.victims.values(), self.budgets)

    def left(self) -> dict[str, int]:
        """What budgets allow in addition."""
        spent = Counter(budget for victim in self.victims.values() for budget in victim.budgets)
        return {budget: allowed - spent[budget] for budget, allowed in self.budgets.items()}


Plan = Generator[_Question, Findings, _Choice | None]


class GangSearch(Asking):
    """No class is open once the search is over; then there are `victims`, the most important first, or none and `why`.

    `is_final`: the gang's earlier nominations end with this.
    """

    def __init__(
        self,
        number: int,
        case: GangCase,
        frameworks: Mapping[str, Framework],
        stands_alone: Callable[[str], bool] = lambda class_id: False,
    ) -> None:
        super().__init__(number, 0, ())
        self.case = case
        self._stands_alone = stands_alone
        self._framework = frameworks[case.pods[0].template.profile]
        self._classes = _classes_of(case)
        self.judged_on: list[dict[str, int]] = []
        """For each ask, the sequence number that each worker judged it on."""
        self.start_over()

    def start_over(self) -> None:
        """The shards have moved."""
        self.victims: tuple[Victim, ...] = ()
        self.why = ""
        self.is_final = True
        self.deallocate: dict[str, None] = {}
        """Claims of members, in the order of plugins: without victims, the first allocated one is deallocated."""
        self.delete: dict[str, None] = {}
        self.unsettled = False
        self.judged_on.clear()
        self._summaries = {info.class_id: unfit.summaries for info, unfit in self.case.members if unfit.summaries}
        self._groups: set[str] = set()
        self._questions = 0
        self._asks_of_question = 0
        self._plan = self._search()
        self._go_on(None)

    @property
    def is_settled(self) -> bool:
        """Whether what was found follows from one state."""
        return not self.unsettled and all(seqs == self.judged_on[0] for seqs in self.judged_on)

    @property
    def puts_back(self) -> bool:
        """Whether single victims may turn out not to be needed."""
        return len(self._classes) > 1 or not self._stands_alone(self._classes[0].first.class_id)

    # The conversation

    def message(self, epoch: int, min_seq: int) -> Preempt:
        """For every worker that has not answered."""
        question = self._question
        of, first = question.of, question.of.first
        ask = PreemptAsk(
            of.class_id,
            first.template.profile,
            first.unnominated,
            self._summaries.get(of.class_id, {}),
            private_claims=first.has_private_claims,
            members=question.members,
        )
        return Preempt(epoch, self.number, self.ask, min_seq, [ask], question.gang)

    def is_usable(self, candidates: Candidates, frameworks: Mapping[str, Framework]) -> bool:
        return all(is_mergeable(self._framework, findings.summary) for findings in candidates.findings)

    def gather(self, frameworks: Mapping[str, Framework]) -> bool:
        """Every worker has answered. False: the message of the next ask must be sent."""
        findings = [each for worker in sorted(self.answered) for each in self.answered[worker].findings]
        class_id = self._question.of.class_id
        self.judged_on.append({worker: each.seq for worker, each in self.answered.items()})
        failure = next((each.failure for each in findings if each.failure is not None), None)
        if failure is not None:
            return self._give_up(failure.message)
        ineligible = next((each.ineligible for each in findings if each.ineligible), "")
        if ineligible:
            self.is_final = False
            return self._give_up(ineligible)
        try:
            merged = merge(self._framework, (each.summary for each in findings)).plugins
        except Exception as cause:
            return self._give_up(merging_failed(cause).message)
        settled = merged == self._summaries.get(class_id, {})
        self._summaries[class_id] = merged
        if not settled and self._asks_of_question < MAX_ASKS:
            self._next_ask()
            return False
        self.unsettled |= not settled
        self._take_claims(findings)
        if self.case.never_preempts:
            return self._give_up(NEVER)
        self._groups.update(group for each in findings for group in each.kept_groups)
        return self._go_on(findings)

    def _take_claims(self, findings: Findings) -> None:
        """What PostFilter plugins do about claims as long as no pod counts as gone."""
        for plugin in self._framework.post_filter:
            results = [each.others[plugin.name] for each in findings if plugin.name in each.others]
            if results:
                result = of_all_shards(results)
                self.deallocate |= dict.fromkeys(result.deallocate)
                self.delete |= dict.fromkeys(result.delete)

    def _give_up(self, why: str) -> bool:
        self.why = why
        self.open.clear()
        return True

    def _go_on(self, findings: Findings | None) -> bool:
        """Whether the search is over."""
        if self._questions == MAX_QUESTIONS:
            return self._give_up(TOO_LONG)
        try:
            self._question = next(self._plan) if findings is None else self._plan.send(findings)
        except StopIteration as end:
            choice: _Choice | None = end.value
            self.open.clear()
            if choice is None or not choice.victims:
                self.why = NOTHING.format(least=self.case.least)
            else:
                self.victims = tuple(sorted(choice.victims.values(), key=importance))
            return True
        self._questions += 1
        self._asks_of_question = 0
        self._next_ask()
        return False

    def _next_ask(self) -> None:
        self.ask += 1
        self._asks_of_question += 1
        self.open = {self._question.of.class_id}
        self.answered = {}

    # The plan

    def _search(self) -> Plan:
        best = yield from self._attempt(())
        if len(self._groups) > MAX_GROUPS_COMBINED:
            with_groups = yield from self._with_groups()
            return _cheaper(best, with_groups)
        groups = sorted(self._groups)
        for size in range(1, len(groups) + 1):
            for gone in itertools.combinations(groups, size):
                choice = yield from self._attempt(gone)
                best = _cheaper(best, choice)
        return best

    def _with_groups(self) -> Plan:
        """Adds groups that help until no further one is needed, then leaves out each that the gang can do without."""
        gone: tuple[str, ...] = ()
        choice = yield from self._attempt(gone, whole_groups=True)
        while choice is not None and choice.touched:
            gone = (*gone, *sorted(choice.touched))
            if len(gone) > MAX_GROUPS:
                return None
            choice = yield from self._attempt(gone, whole_groups=True)
        if choice is None:
            return None
        for group in _by_importance(choice, gone):
            without = tuple(each for each in gone if each != group)
            other = yield from self._attempt(without)
            if other is not None and other.cost() < choice.cost():
                gone, choice = without, other
        return choice

    def _attempt(self, gone_groups: tuple[str, ...], *, whole_groups: bool = False) -> Plan:
        """One set of victims for all classes; if a class finds no room, it is made again with that class first."""
        ask = GangAsk(
            priority=self.case.priority,
            group=self.case.group,
            nominated=self.case.nominated,
            gone_groups=list(gone_groups),
            whole_groups=whole_groups,
            keys=list(self.case.keys),
            within=self.case.within,
        )
        order, tried = self._classes, 0
        while True:
            choice = yield from self._in_order(order, ask)
            tried += 1
            if choice is not None or tried == min(len(order), MAX_ORDERS):
                return choice
            order = [self._stuck, *(of for of in order if of is not self._stuck)]

    def _in_order(self, classes: Sequence[_OfClass], ask: GangAsk) -> Plan:
        """The classes one after another, in the cheapest domain."""
        first, *rest = classes
        self._stuck = first
        members = self._at_once(first, len(first.pods))
        findings = yield _Question(first, members, ask)
        choices: dict[tuple[str, ...], _Choice] = {}
        for domain, candidates in _by_domain(findings).items():
            choice = _extended(_also(_Choice(), findings), first.pods, candidates, members)
            if choice is not None:
                choices[domain] = choice
        if not rest and members == len(first.pods):
            return min(choices.values(), key=_Choice.cost, default=None)
        best: _Choice | None = None
        for domain in sorted(choices, key=lambda each: (choices[each].cost(), each))[:MAX_DOMAINS]:
            found = yield from self._rest(classes, choices[domain], msgspec.structs.replace(ask, within=domain))
            best = _cheaper(best, found)
        return best

    def _rest(self, classes: Sequence[_OfClass], choice: _Choice, ask: GangAsk) -> Plan:
        """Places the members that have no room yet, class by class."""
        placed = {info.uid for info, _ in choice.placed}
        for of in classes:
            waiting = [info for info in of.pods if info.uid not in placed]
            while waiting:
                members = self._at_once(of, len(waiting))
                findings = yield _Question(of, members, _with_placed(ask, choice))
                candidates = [each for found in findings for each in found.candidates]
                extended = _extended(_also(choice, findings), waiting, candidates, members)
                if extended is None:
                    self._stuck = of
                    return None
                choice, waiting = extended, waiting[members:]
        return choice

    def _at_once(self, of: _OfClass, members: int) -> int:
        return members if self._stands_alone(of.first.class_id) else 1


def case_of(gang: GangRound, unfit: Sequence[tuple[PodInfo, Unfit]]) -> GangCase:
    """Of a gang that does not fit, with all its members."""
    group = gang.members[0].gang
    own = min(info.template.priority for info in gang.members)
    said = None if group is None else group.priority
    never = any(info.template.never_preempts for info in gang.members) or (group is not None and group.never_preempts)
    required = [k for k, level in enumerate(gang.attempts.levels) if level.required]
    keys = tuple(gang.attempts.levels[k].key for k in required)
    counted = gang.attempts.counted
    placed = [] if counted is None or not required else counted.placed
    within = min((tuple(values[k] or "" for k in required) for values in placed), default=())
    return GangCase(gang.key, gang.least, own if said is None else said, unfit, never, keys, within)


def _classes_of(case: GangCase) -> list[_OfClass]:
    """The classes of the members that must be placed, in queue order."""
    by_class: dict[str, list[PodInfo]] = {}
    for info in case.pods[: case.least]:
        class_id = info.template.class_id if info.apart else info.class_id
        by_class.setdefault(class_id, []).append(info)
    return [_OfClass(class_id, pods[0], tuple(pods)) for class_id, pods in by_class.items()]


def _by_domain(findings: Findings) -> dict[tuple[str, ...], list[Candidate]]:
    by_domain: dict[tuple[str, ...], list[Candidate]] = {}
    for of_shard in findings:
        for each in of_shard.candidates:
            by_domain.setdefault(each.domain, []).append(each)
    return by_domain


def _also(choice: _Choice, findings: Findings) -> _Choice:
    """With what these answers tell of budgets, and of the pods of groups that are gone."""
    gone = {victim.uid: victim for of_shard in findings for victim in of_shard.gone}
    budgets = {key: allowed for of_shard in findings for key, allowed in of_shard.budgets.items()}
    return replace(choice, victims={**choice.victims, **gone}, budgets={**choice.budgets, **budgets})


def _extended(
    choice: _Choice, pods: Sequence[PodInfo], candidates: Sequence[Candidate], members: int
) -> _Choice | None:
    """Finds room for the first `members` of these pods at the lowest cost; None if there is none."""
    chosen = choose(sorted(candidates, key=lambda each: (each.node, each.members)), members, choice.left())
    if chosen is None:
        return None
    nodes = [each.node for each in chosen for _ in range(each.members)]
    victims = {
        victim.uid: msgspec.structs.replace(victim, node=each.node) for each in chosen for victim in each.victims
    }
    touched = {victim.group for victim in victims.values() if victim.group}
    return replace(
        choice,
        victims={**choice.victims, **victims},
        placed=(*choice.placed, *zip(pods[:members], nodes, strict=False)),
        touched=choice.touched | touched,
    )


def _with_placed(ask: GangAsk, choice: _Choice) -> GangAsk:
    loads = Loads()
    given = [Given(info.uid, node, loads.number(info.template.load)) for info, node in choice.placed]
    gone = [victim.uid for victim in choice.victims.values() if victim.group not in ask.gone_groups]
    return msgspec.structs.replace(ask, given=given, loads=loads.items, gone=gone)


def _cheaper(one: _Choice | None, other: _Choice | None) -> _Choice | None:
    """The first of two that cost the same."""
    if one is None or other is None:
        return one or other
    return other if other.cost() < one.cost() else one


def _by_importance(choice: _Choice, groups: Sequence[str]) -> list[str]:
    """The most important first: by priority, then by size."""
    costs = {group: cost_of((v for v in choice.victims.values() if v.group == group), {}) for group in groups}
    return sorted(groups, key=lambda group: (-costs[group].highest, -costs[group].number, group))
