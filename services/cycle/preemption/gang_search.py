"""The search for victims of a gang: asks all workers for ladders of their nodes, class by class, and chooses a set.

ask about a class --all answered by the merged summaries--> choose nodes and victims --> next class | found | nothing
 ^                                                            |
 +---------- with victims gone, and members in place ----------+

Which classes are asked about, and where, is up to VictimPlan. Groups that are evicted as a whole are left alone at
first; if they might help, the search is made again with some of them gone, and the cheapest set counts.

In the last stage it finds all pods that may go, if they are few: the rehearsal puts back who is not needed.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from services.cycle.preemption.candidate_search import Asking
from services.cycle.preemption.gang_case import GangCase, Stage
from services.cycle.preemption.victim_choice import Choice, Findings, cheaper
from services.cycle.preemption.victim_plan import Plan, Question, VictimPlan
from shared.framework.profile import MAX_ASKS, Framework, is_mergeable, merge, merging_failed
from shared.framework.victim_sets import cost_of, importance, units_of
from shared.messages.preemption import MAX_POSSIBLE, Candidates, GangAsk, Preempt, PreemptAsk, Victim
from shared.plugins.preemption import NEVER, of_all_shards

MAX_QUESTIONS = 256
"""Asks of one search, so that others do not wait long for one gang; then the best set so far counts."""
MAX_GROUPS_COMBINED = 4
"""Groups evicted as a whole that are tried in all combinations: 16 of them."""
MAX_GROUPS = 16
"""Groups evicted as a whole, for one gang."""
TOO_LONG = f"not tried any further after {MAX_QUESTIONS} questions"
NOTHING = "no pods of lower priority make enough room for {needed}"


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
        self._framework = frameworks[case.pods[0].template.profile]
        self._sets = VictimPlan(case, stands_alone)
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
        self._best: Choice | None = None
        self._questions = 0
        self._asks_of_question = 0
        self._plan = self._all_possible() if self.case.stage is Stage.ALL else self._search()
        self._go_on(None)

    @property
    def is_settled(self) -> bool:
        """Whether what was found follows from one state."""
        return not self.unsettled and all(seqs == self.judged_on[0] for seqs in self.judged_on)

    @property
    def puts_back(self) -> bool:
        """Whether single victims may turn out not to be needed."""
        return self.case.stage is not Stage.CHEAPEST or not self._sets.is_exact

    @property
    def may_have_missed(self) -> bool:
        """Whether there may be a set of victims though it was not found, or is not enough."""
        is_exact = self._sets.is_exact and len(self._groups) <= MAX_GROUPS_COMBINED
        return not (self.case.stage is Stage.ALL or is_exact or self.case.never_preempts) and self.is_final

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
            return self._end(self._best, TOO_LONG)
        try:
            self._question = next(self._plan) if findings is None else self._plan.send(findings)
        except StopIteration as end:
            return self._end(end.value, NOTHING.format(needed=self._needed))
        self._questions += 1
        self._asks_of_question = 0
        self._next_ask()
        return False

    def _end(self, choice: Choice | None, why: str) -> bool:
        self.open.clear()
        if choice is None or not choice.victims:
            self.why = why
        else:
            self.victims = tuple(sorted(choice.victims.values(), key=importance))
        return True

    @property
    def _needed(self) -> str:
        case = self.case
        return "the composite pod group" if case.groups else f"{case.least} members of the pod group"

    def _next_ask(self) -> None:
        self.ask += 1
        self._asks_of_question += 1
        self.open = {self._question.of.class_id}
        self.answered = {}

    # Sets of groups that go whole

    def _search(self) -> Plan:
        self._best = yield from self._attempt(())
        if len(self._groups) > MAX_GROUPS_COMBINED:
            with_groups = yield from self._with_groups()
            return cheaper(self._best, with_groups)
        groups = sorted(self._groups)
        for size in range(1, len(groups) + 1):
            for gone in itertools.combinations(groups, size):
                choice = yield from self._attempt(gone)
                self._best = cheaper(self._best, choice)
        return self._best

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
        ask = self._ask_with(gone_groups=list(gone_groups), whole_groups=whole_groups)
        return self._sets.choose(ask)

    def _all_possible(self) -> Plan:
        """All pods that may go, if they are few."""
        ask = msgspec.structs.replace(self._ask_with(whole_groups=True), names_possible=True)
        findings = yield Question(self._sets.classes[0], 1, ask)
        victims = {victim.uid: victim for each in findings for victim in each.possible}
        is_whole = not any(each.has_more for each in findings)
        return Choice(victims) if is_whole and len(units_of(victims.values())) <= MAX_POSSIBLE else None

    def _ask_with(self, *, gone_groups: Sequence[str] = (), whole_groups: bool) -> GangAsk:
        case = self.case
        return GangAsk(
            priority=case.priority,
            nominated=case.nominated,
            gone_groups=list(gone_groups),
            whole_groups=whole_groups,
        )


def _by_importance(choice: Choice, groups: Sequence[str]) -> list[str]:
    """The most important first: by priority, then by size."""
    costs = {group: cost_of((v for v in choice.victims.values() if v.group == group), {}) for group in groups}
    return sorted(groups, key=lambda group: (-costs[group].highest, -costs[group].number, group))
