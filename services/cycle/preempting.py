"""Search: who could make way for pods that no node has room for? Asked of all workers, and chosen from what they find.

    asking --all have answered by the merged summaries--> found: candidates --(others may narrow them)--> one outcome
      ^  |                                                        a class
      +--+ a summary has changed meanwhile, or a worker has

It is pure: whoever runs it sends its messages, takes the answers in, and asks again whoever is late.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_struct

from flotilla.results import SUCCESS, Code, Status, error, unresolvable, unschedulable
from services.cycle.walk import QueuedPod
from shared.cluster.nodetable import stable_hash
from shared.framework.diagnosis import merge_rejections, unfit_message
from shared.framework.plugin import PostFilterPlugin
from shared.framework.profile import Framework
from shared.framework.summary import merge
from shared.messages.evaluation import Rejections, Ties
from shared.messages.preemption import Candidate, Candidates, Preempt, PreemptAsk, ShardFindings, Victim
from shared.plugins.preemption.choice import best_of
from shared.plugins.preemption.plugin import NEVER, DefaultPreemption
from shared.plugins.preemption.postfilter import is_final, of_all_shards

MOST_ASKS = 8
"""So often is a class asked about in one search; if its summary still changes, its pods are decided anew."""
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")


@dataclass(frozen=True, slots=True)
class Case:
    """Pods of one class that no node is feasible for.

    `summaries`: the merged ones by which that was found. `potential`: how many nodes were rejected with a status that
    pods making way may change. `refused`: where extenders were asked, the feasible nodes that they rejected.
    """

    class_id: str
    pods: Sequence[QueuedPod]
    summaries: dict[str, object]
    potential: int
    refused: dict[str, Status] | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """What the PostFilter plugins came to for one class.

    `message` is what they add to the reason why the pods are unschedulable, and empty if they help; `failed`: one of
    them ended in an error. `nominated`: the node that a pod of the class is to have; empty if it is to lose the one it
    had, None if nothing is said about it. `victims` make way there, the most important first. `best`: all candidates
    that are equally good. `again`: the cluster has changed meanwhile, and the pods are to be decided anew.
    """

    message: str = ""
    failed: bool = False
    nominated: str | None = None
    victims: tuple[Victim, ...] = ()
    best: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    again: bool = False


class Search:
    """`open`: the classes that are still to be asked about. `answered`: who has answered the present ask."""

    def __init__(self, number: int, cases: Sequence[Case]) -> None:
        self.number = number
        self.cases = {case.class_id: case for case in cases}
        self.ask = 1
        self.open = set(self.cases)
        self.answered: dict[str, Candidates] = {}
        self._asked = {case.class_id: (case.summaries, case.potential) for case in cases}
        self._findings: dict[str, list[ShardFindings]] = {}
        self._narrowed: dict[str, list[Candidate]] = {}
        self._failed: dict[str, Status] = {}
        self._unsettled: set[str] = set()
        self._seen: dict[str, int] = {}
        self._spent: Counter[str] = Counter()
        """By disruption budget: the victims that were chosen in this search."""

    def message(self, epoch: int, min_seq: int) -> Preempt:
        """To every worker that has not answered."""
        asks = [self._ask_about(case) for class_id, case in self.cases.items() if class_id in self.open]
        return Preempt(epoch, self.number, self.ask, min_seq, asks)

    def start_over(self) -> None:
        """Other workers hold the shards now."""
        self.open = set(self.cases)
        self._findings.clear()
        self._next_ask()

    def take(self, candidates: Candidates) -> bool:
        """False if it is late, doubled, or about something else. Its epoch and shards are its receiver's to check."""
        about = {of_class.class_id for of_class in candidates.findings}
        if (candidates.search, candidates.ask) != (self.number, self.ask) or candidates.worker in self.answered:
            return False
        if about != self.open:
            return False
        self.answered[candidates.worker] = candidates
        return True

    def gather(self, frameworks: Mapping[str, Framework]) -> bool:
        """Everybody has answered: is everything found? If not, the message of the next ask is to be sent."""
        oldest = min(each.seq for each in self.answered.values())
        for class_id in self.open:
            self._seen[class_id] = oldest
            self._findings[class_id] = [
                of_class
                for worker in sorted(self.answered)
                for of_class in self.answered[worker].findings
                if of_class.class_id == class_id
            ]
        unsettled = {class_id for class_id in self.open if not self._is_settled(class_id, frameworks)}
        if unsettled and self.ask < MOST_ASKS:
            self.open = unsettled
            self._next_ask()
            return False
        self.open, self._unsettled = set(), unsettled
        return True

    def candidates(self, class_id: str) -> list[Candidate]:
        """What was found for a class, or what others have left of it."""
        narrowed = self._narrowed.get(class_id)
        if narrowed is not None:
            return narrowed
        return [candidate for of_shard in self._findings[class_id] for candidate in of_shard.candidates]

    def seen(self, class_id: str) -> int:
        """The oldest state that what was found for a class rests on."""
        return self._seen[class_id]

    def narrow(self, class_id: str, candidates: Sequence[Candidate]) -> None:
        """Somebody who has a say leaves only these, perhaps with other victims."""
        self._narrowed[class_id] = list(candidates)

    def fail(self, class_id: str, failure: Status) -> None:
        """Somebody who has a say has failed."""
        self._failed[class_id] = failure

    def outcome(self, class_id: str, framework: Framework, ties: Ties) -> Preemption:
        """Once everything is found."""
        findings = self._findings[class_id]
        failure = next((of_shard.failure for of_shard in findings if of_shard.failure is not None), None)
        if failure is not None:
            return Preemption(failure.message, failed=True)
        if class_id in self._unsettled or any(of_shard.summary.feasible for of_shard in findings):
            return Preemption(again=True)
        reasons: list[str] = []
        nominated: str | None = None
        for plugin in framework.post_filter:
            status, found = self._said_by(plugin, class_id, ties)
            if is_final(status):
                return replace(found, message=status.message, failed=status.code is Code.ERROR)
            reasons += status.reasons
            nominated = found.nominated if found.nominated is not None else nominated
        return Preemption(", ".join(reasons), nominated=nominated)

    def shared_out(
        self, first: Preemption, pods: Sequence[QueuedPod], taken: Container[str], ties: Ties
    ) -> list[Preemption]:
        """What the first of these pods of a class get: the best node, and then each the best of those that are left.

        For classes to which only the node itself matters: those left are what they were, but for the disruption budgets
        that the victims chosen before have used up. A node that was taken might make room for another pod as well, but
        then more would have to leave it. `taken`: by others of the search.
        """
        shares = [] if first.nominated in taken else [first]
        for share in shares:
            self._spend(share.victims)
        left = [each for each in first.candidates if each.node != first.nominated and each.node not in taken]
        for queued in pods[len(shares) :]:
            if not left:
                break
            left = self._counted(left)
            best = best_of(left)
            chosen = _one_of(best, queued.pod.uid, ties)
            left.remove(chosen)
            self._spend(chosen.victims)
            shares.append(replace(first, nominated=chosen.node, victims=tuple(chosen.victims), best=tuple(best)))
        return shares

    def is_narrowed(self, class_id: str) -> bool:
        """Whether somebody has had a say in what was found."""
        return class_id in self._narrowed

    # Inside

    def _spend(self, victims: Iterable[Victim]) -> None:
        """Those that go anyway are no part of what a budget still allows for."""
        for victim in victims:
            if not victim.terminating:
                self._spent.update(victim.budgets.keys())

    def _counted(self, candidates: list[Candidate]) -> list[Candidate]:
        """With the violations that there are once the victims chosen before are gone."""
        if not self._spent:
            return candidates
        return [
            Candidate(each.node, [self._of_victim(victim) for victim in each.victims])
            if any(victim.budgets for victim in each.victims)
            else each
            for each in candidates
        ]

    def _of_victim(self, victim: Victim) -> Victim:
        violates = any(left < self._spent[budget] for budget, left in victim.budgets.items())
        return replace_struct(victim, violates=violates) if victim.budgets else victim

    def _ask_about(self, case: Case) -> PreemptAsk:
        summaries, potential = self._asked[case.class_id]
        return PreemptAsk(case.class_id, case.pods[0].profile, case.pods[0].pod, summaries, potential, case.refused)

    def _next_ask(self) -> None:
        self.ask += 1
        self.answered = {}

    def _is_settled(self, class_id: str, frameworks: Mapping[str, Framework]) -> bool:
        """Has it been judged by what is still the merged summary? If not, it is from now on."""
        findings = self._findings[class_id]
        if any(of_shard.failure is not None for of_shard in findings):
            return True
        framework = frameworks[self.cases[class_id].pods[0].profile]
        merged = merge(framework, (of_shard.summary for of_shard in findings))
        if merged.plugins == self._asked[class_id][0]:
            return True
        self._asked[class_id] = (merged.plugins, sum(of_shard.potential for of_shard in findings))
        return False

    def _said_by(self, plugin: PostFilterPlugin, class_id: str, ties: Ties) -> tuple[Status, Preemption]:
        if isinstance(plugin, DefaultPreemption):
            return self._preempted(class_id, ties)
        findings = self._findings[class_id]
        results = [of_shard.others[plugin.name] for of_shard in findings if plugin.name in of_shard.others]
        result = of_all_shards(results)
        return result.status, Preemption(nominated=result.nominated_node or None)

    def _preempted(self, class_id: str, ties: Ties) -> tuple[Status, Preemption]:
        findings = self._findings[class_id]
        why_not = next((of_shard.ineligible for of_shard in findings if of_shard.ineligible), None)
        if self.cases[class_id].pods[0].pod.spec.preemption_policy == "Never":
            why_not = NEVER  # whatever was found
        if why_not is not None:
            return unschedulable(f"preemption: {why_not}"), Preemption()
        if class_id in self._failed:
            return error(f"preemption: {self._failed[class_id].message}"), Preemption()
        candidates = self._counted(self.candidates(class_id))
        if candidates:
            best = best_of(candidates)
            chosen = _one_of(best, self.cases[class_id].pods[0].pod.uid, ties)
            return SUCCESS, Preemption(
                nominated=chosen.node,
                victims=tuple(chosen.victims),
                best=tuple(best),
                candidates=tuple(sorted(candidates, key=lambda candidate: candidate.node)),
            )
        if class_id in self._narrowed:
            return unschedulable("preemption: no candidate node for preemption"), Preemption()
        faults = list(dict.fromkeys(fault for of_shard in findings for fault in of_shard.faults))
        if faults:
            what = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
            return error(f"preemption: {what}"), Preemption()
        return unschedulable(f"preemption: {_nothing_helps(findings)}"), Preemption(nominated="")


def _nothing_helps(findings: Sequence[ShardFindings]) -> str:
    """In the form of the message that it becomes a part of."""
    nodes = sum(of_shard.summary.nodes for of_shard in findings)
    tried = merge_rejections(part for of_shard in findings for part in of_shard.rejections)
    untried = nodes - sum(part.nodes for part in tried)
    return unfit_message(nodes, None, [*tried, Rejections(NOT_HELPFUL, untried)] if untried else tried)


def _one_of(best: Sequence[Candidate], uid: str, ties: Ties) -> Candidate:
    """The first by name where names decide, else any, but the same in every run."""
    if ties.mode == "name":
        return best[0]
    return min(best, key=lambda candidate: stable_hash(f"{uid}/{candidate.node}"))
