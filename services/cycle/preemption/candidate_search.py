"""One search for preemption candidates: asks all workers, settles on merged summaries, chooses node and victims.

ask --all answered by the merged summaries--> candidates --(extenders may remove some)--> one outcome per class
 ^                  |
 +------------------+ a summary has changed, or the shards have moved
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from flotilla.plugin import PostFilterPlugin
from flotilla.results import SUCCESS, Code, Status, error, unresolvable, unschedulable
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Unfit
from shared.cluster.eviction_units import group_of
from shared.cluster.nodetable import stable_hash
from shared.framework.profile import (
    MAX_ASKS,
    Framework,
    is_mergeable,
    merge,
    merge_rejections,
    merging_failed,
    unfit_message,
)
from shared.messages.evaluation import Rejections, Ties
from shared.messages.preemption import Candidate, Candidates, Preempt, PreemptAsk, ShardFindings, Victim
from shared.plugins.preemption import NEVER, DefaultPreemption, best_of, is_final, of_all_shards

NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")


@dataclass(frozen=True, slots=True)
class SearchCase:
    """Pods of one class, and why no node is feasible for them."""

    class_id: str
    pods: Sequence[PodInfo]
    unfit: Unfit

    @property
    def groups(self) -> list[str]:
        """The groups of the pods, none of whose pods may be a victim."""
        return sorted({group for info in self.pods if (group := group_of(info.load))})

    def apart(self, spared: Collection[str]) -> "list[SearchCase]":
        """The pods of each of these groups by themselves, and all others.

        What is found for all of them is right for each unless some pod was spared only for the sake of another.
        """
        parts: dict[str, list[PodInfo]] = {}
        for info in self.pods:
            group = group_of(info.load)
            parts.setdefault(group if group in spared else "", []).append(info)
        return [SearchCase(self.class_id, pods, self.unfit) for pods in parts.values()]


@dataclass(frozen=True, slots=True)
class Preemption:
    """The result of the PostFilter plugins for one class.

    `message`: what they add to the reason why the pods are unschedulable; empty if they help. `failed`: a plugin
    failed. `nominated`: the node to nominate a pod to; empty ends its nomination, None leaves it. `victims` are evicted
    there, the most important first. `best`: all candidates that are equally good. `again`: the cluster has
    changed meanwhile, so the pods must be decided again. `deallocate`: resource claims, one of which is to give back
    its devices; `delete`: those to be deleted.
    """

    message: str = ""
    failed: bool = False
    nominated: str | None = None
    victims: tuple[Victim, ...] = ()
    best: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    again: bool = False
    deallocate: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


class Asking:
    """`open`: the classes to ask about. `answered`: the answers to the present ask, by worker."""

    def __init__(self, number: int, ask: int, classes: Iterable[str]) -> None:
        self.number = number
        self.ask = ask
        self.open = set(classes)
        self.answered: dict[str, Candidates] = {}

    def take(self, candidates: Candidates) -> bool:
        """False if the answer is late, doubled or about other classes. The caller checks epoch and shards."""
        if (candidates.search, candidates.ask) != (self.number, self.ask) or candidates.worker in self.answered:
            return False
        if {findings.class_id for findings in candidates.findings} != self.open:
            return False
        self.answered[candidates.worker] = candidates
        return True


class CandidateSearch(Asking):
    def __init__(self, number: int, cases: Sequence[SearchCase]) -> None:
        self.cases = {case.class_id: case for case in cases}
        super().__init__(number, 1, self.cases)
        self._asked = {case.class_id: (case.unfit.summaries, case.unfit.potential) for case in cases}
        self._findings: dict[str, list[ShardFindings]] = {}
        self._narrowed: dict[str, list[Candidate]] = {}
        self._failed: dict[str, Status] = {}
        self.unsettled: set[str] = set()
        """Classes whose summary has changed with every ask."""
        self.judged_on: dict[str, dict[str, int]] = {}
        """By class, the sequence number that each worker's answer was evaluated at."""
        self._spent: Counter[str] = Counter()
        """Victims chosen in this search, by disruption budget."""
        self._hashes: dict[str, int] = {}
        """Of the names of nodes, for ties."""

    def message(self, epoch: int, min_seq: int) -> Preempt:
        """For every worker that has not answered."""
        asks = [self._ask_about(case) for class_id, case in self.cases.items() if class_id in self.open]
        return Preempt(epoch, self.number, self.ask, min_seq, asks)

    def _ask_about(self, case: SearchCase) -> PreemptAsk:
        first, (summaries, potential) = case.pods[0], self._asked[case.class_id]
        profile, refused = first.template.profile, case.unfit.refused
        return PreemptAsk(
            case.class_id,
            profile,
            first.pod,
            summaries,
            potential,
            refused,
            private_claims=first.has_private_claims,
            own_volumes=first.own_volumes,
            spares=case.groups,
        )

    def start_over(self) -> None:
        """The shards have moved."""
        self.open = set(self.cases)
        self._findings.clear()
        self._next_ask()

    def _next_ask(self) -> None:
        self.ask += 1
        self.answered = {}

    def is_usable(self, candidates: Candidates, frameworks: Mapping[str, Framework]) -> bool:
        return all(
            is_mergeable(self._framework(findings.class_id, frameworks), findings.summary)
            for findings in candidates.findings
        )

    def gather(self, frameworks: Mapping[str, Framework]) -> bool:
        """Every worker has answered. False: the message of the next ask must be sent."""
        seqs = {worker: each.seq for worker, each in self.answered.items()}
        for class_id in self.open:
            self.judged_on[class_id] = seqs
            self._findings[class_id] = [
                findings
                for worker in sorted(self.answered)
                for findings in self.answered[worker].findings
                if findings.class_id == class_id
            ]
        unsettled = {class_id for class_id in self.open if not self._is_settled(class_id, frameworks)}
        if unsettled and self.ask < MAX_ASKS:
            self.open = unsettled
            self._next_ask()
            return False
        self.open, self.unsettled = set(), unsettled  # their pods are decided again
        return True

    def _is_settled(self, class_id: str, frameworks: Mapping[str, Framework]) -> bool:
        """Whether the class was judged by the merged summary. If not, the next ask uses it."""
        findings = self._findings[class_id]
        if any(of_shard.failure is not None for of_shard in findings):
            return True
        try:
            merged = merge(self._framework(class_id, frameworks), (of_shard.summary for of_shard in findings))
        except Exception as cause:
            failure = merging_failed(cause)
            self._findings[class_id] = [ShardFindings(class_id, failure=failure)]
            return True
        if merged.plugins == self._asked[class_id][0]:
            return True
        self._asked[class_id] = (merged.plugins, sum(of_shard.potential for of_shard in findings))
        return False

    def _framework(self, class_id: str, frameworks: Mapping[str, Framework]) -> Framework:
        return frameworks[self.cases[class_id].pods[0].template.profile]

    # Extenders

    def candidates(self, class_id: str) -> list[Candidate]:
        """The candidates of all workers, or those that extenders left of them."""
        narrowed = self._narrowed.get(class_id)
        if narrowed is not None:
            return narrowed
        return [candidate for of_shard in self._findings[class_id] for candidate in of_shard.candidates]

    def seen(self, class_id: str) -> int:
        """The oldest state that a worker judged the class on."""
        return min(self.judged_on[class_id].values())

    def told(self, class_id: str) -> tuple[dict[str, object], int]:
        """The merged summaries of the last ask, and on how many nodes preemption might help."""
        return self._asked[class_id]

    def is_narrowed(self, class_id: str) -> bool:
        return class_id in self._narrowed

    def is_extended(self, class_id: str) -> bool:
        """Whether extenders had a say."""
        return class_id in self._narrowed or class_id in self._failed

    def narrow(self, class_id: str, candidates: Sequence[Candidate]) -> None:
        """Extenders leave only these candidates, perhaps with other victims."""
        self._narrowed[class_id] = list(candidates)

    def fail(self, class_id: str, failure: Status) -> None:
        """An extender has failed."""
        self._failed[class_id] = failure

    # Outcome

    def parts(self, class_id: str) -> list[SearchCase]:
        """The class's pods as they must be searched for: together, if sparing their groups has changed nothing."""
        return self.cases[class_id].apart({group for of in self._findings[class_id] for group in of.spared})

    def outcome(self, class_id: str, framework: Framework, ties: Ties) -> Preemption:
        """Runs the PostFilter plugins once everything is gathered."""
        findings = self._findings[class_id]
        failure = next((of_shard.failure for of_shard in findings if of_shard.failure is not None), None)
        if failure is not None:
            return Preemption(failure.message, failed=True)
        if class_id in self.unsettled or any(of_shard.summary.feasible for of_shard in findings):
            return Preemption(again=True)
        reasons: list[str] = []
        nominated: str | None = None
        deallocate: tuple[str, ...] = ()
        delete: tuple[str, ...] = ()
        for plugin in framework.post_filter:
            status, found = self._post_filter(plugin, class_id, ties)
            deallocate, delete = deallocate or found.deallocate, delete or found.delete
            if is_final(status):
                failed = status.code is Code.ERROR
                return replace(found, message=status.message, failed=failed, deallocate=deallocate, delete=delete)
            reasons += status.reasons
            nominated = found.nominated if found.nominated is not None else nominated
        return Preemption(", ".join(reasons), nominated=nominated, deallocate=deallocate, delete=delete)

    def share_out(
        self, first: Preemption, pods: Sequence[PodInfo], taken: Container[str], ties: Ties
    ) -> list[Preemption]:
        """Gives the first pod the best node, and each further one the best that is left. `taken`: nodes not to give.

        For classes whose pods matter to each other only by the node they take: the other candidates stay as they were,
        but for disruption budgets that victims chosen before have used up. A taken node might have room for another
        pod, but at the price of more victims.
        """
        shares = [] if first.nominated in taken else [first]
        for share in shares:
            self._spend(share.victims)
        left = {each.node: each for each in first.candidates if each.node != first.nominated and each.node not in taken}
        best: list[Candidate] = []
        for info in pods[len(shares) :]:
            if self._spent:
                left = {each.node: each for each in self._with_budgets(left.values())}
            if self._spent or not best:
                best = best_of(list(left.values()))  # until they are used up: none that is left costs less
            if not best:
                break
            chosen = self._choose(best, info.uid, ties)
            shares.append(replace(first, nominated=chosen.node, victims=tuple(chosen.victims), best=tuple(best)))
            best.remove(chosen)
            del left[chosen.node]
            self._spend(chosen.victims)
        return shares

    def _spend(self, victims: Iterable[Victim]) -> None:
        """Victims that terminate already are not charged to their budgets."""
        for victim in victims:
            if not victim.terminating:
                self._spent.update(victim.budgets.keys())

    def _with_budgets(self, candidates: Collection[Candidate]) -> Collection[Candidate]:
        """The candidates with the violations that remain once the victims chosen before are gone."""
        if not self._spent:
            return candidates
        return [
            Candidate(each.node, [self._with_budget(victim) for victim in each.victims])
            if any(victim.budgets for victim in each.victims)
            else each
            for each in candidates
        ]

    def _with_budget(self, victim: Victim) -> Victim:
        violates = any(left < self._spent[budget] for budget, left in victim.budgets.items())
        return msgspec.structs.replace(victim, violates=violates) if victim.budgets else victim

    def _choose(self, best: Sequence[Candidate], uid: str, ties: Ties) -> Candidate:
        """The first by name if ties are broken by name; otherwise any one, the same in every run."""
        if ties.mode == "name":
            return best[0]
        of_pod, of_nodes = stable_hash(uid), self._hashes
        for each in best:
            if each.node not in of_nodes:
                of_nodes[each.node] = stable_hash(each.node)
        return min(best, key=lambda candidate: stable_hash(f"{of_pod}/{of_nodes[candidate.node]}"))

    def _post_filter(self, plugin: PostFilterPlugin, class_id: str, ties: Ties) -> tuple[Status, Preemption]:
        if isinstance(plugin, DefaultPreemption):
            return self._default_preemption(class_id, ties)
        findings = self._findings[class_id]
        results = [of_shard.others[plugin.name] for of_shard in findings if plugin.name in of_shard.others]
        result = of_all_shards(results)
        nominated = result.nominated_node or None
        return result.status, Preemption(nominated=nominated, deallocate=result.deallocate, delete=result.delete)

    def _default_preemption(self, class_id: str, ties: Ties) -> tuple[Status, Preemption]:
        findings, first = self._findings[class_id], self.cases[class_id].pods[0]
        ineligible = next((of_shard.ineligible for of_shard in findings if of_shard.ineligible), None)
        if first.template.never_preempts:
            ineligible = NEVER  # regardless of what workers answer
        if ineligible is not None:
            return unschedulable(f"preemption: {ineligible}"), Preemption()
        if class_id in self._failed:
            return error(f"preemption: {self._failed[class_id].message}"), Preemption()
        candidates = list(self._with_budgets(self.candidates(class_id)))
        if candidates:
            best = best_of(candidates)
            chosen = self._choose(best, first.uid, ties)
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
        return unschedulable(f"preemption: {_no_candidate(findings)}"), Preemption(nominated="")


def _no_candidate(findings: Sequence[ShardFindings]) -> str:
    nodes = sum(of_shard.summary.nodes for of_shard in findings)
    tried = merge_rejections(part for of_shard in findings for part in of_shard.rejections)
    untried = nodes - sum(part.nodes for part in tried)
    return unfit_message(nodes, None, [*tried, Rejections(NOT_HELPFUL, untried)] if untried else tried)
