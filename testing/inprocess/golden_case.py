"""Replays one golden case on its own cluster and compares it pod by pod.

Each pod is decided in a round of one, ties by name. After the workers' last evaluation, and before the decision is
committed, the replay asks them to explain every node. Placed pods stay; an unschedulable pod leaves no trace.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flotilla.results import Status
from services.cycle import events as cycle
from services.cycle.preemption.candidate_search import Preemption
from services.snapshot.events import NodeSeen, ObjectSeen, PodDeleted, PodSeen, WatchEvent, WatchEvents
from shared.cluster.devices import DeviceDecision
from shared.devices.claim_texts import with_names
from shared.devices.pod_claims import claim_names
from shared.errors import InvalidObject
from shared.framework.evaluator import Explanation
from shared.framework.profile import MAX_ASKS, Framework, merge
from shared.messages.binding import Evicted
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidate
from shared.messages.rounds import ClassAnswer, ClassAsk, Propose
from shared.messages.state import Commit
from shared.model.objects import Pod
from testing.builders import class_state
from testing.inprocess.cases import Case, Difference
from testing.inprocess.device_cases import written_devices
from testing.inprocess.pipeline import Outcome, Pipeline, reliable

TODAY = 1_790_000_000.0
"""Unix time: in 2026, after the timestamps of cases that lie in the past."""

Compared = tuple[str, object, object]
"""What is compared, the expected value, and the actual one."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The evaluation of every node. `allowed`: the nodes to which PreFilter restricted the pod, if it did."""

    answer: ClassAnswer
    explanation: Explanation
    allowed: frozenset[str] | None


def shown_at_once(case: Case) -> Iterator[list[WatchEvent]]:
    """Pending pods exist from the start, which matters if they are nominated."""
    pods = map(PodSeen, (*case.pods, *case.pending))
    yield [*map(NodeSeen, case.nodes), *map(ObjectSeen, case.objects), *pods]


class Replay:
    def __init__(self, case: Case, shards: int, shown: Iterable[list[WatchEvent]] | None = None) -> None:
        """`shown`: batches of watch events that end with the case's cluster, instead of one."""
        self._case = case
        self._pod = Pod()
        self._asked: ClassAsk | None = None
        self._judged: Judgement | None = None
        self._devices: DeviceDecision | None = None
        self._pipeline = Pipeline(
            case.frameworks,
            case.checks,
            shards=shards,
            round_size=1,
            ties=Ties(mode="name"),
            fate=self._overhear,
            binds=False,
        )
        for events in shown_at_once(case) if shown is None else shown:
            self._pipeline.observe(WatchEvents(events))
            self._pipeline.settle()
        self._pipeline.tell_time(TODAY)
        self._pipeline.settle()
        refused = [problem for problem in self._pipeline.problems if isinstance(problem, InvalidObject)]
        if refused:
            raise refused[0]

    def run(self) -> list[Difference]:
        """The differences of the first pod that has any; later pods would see a different cluster."""
        for pod, expected in zip(self._case.pending, self._case.expected, strict=True):
            differences = [
                Difference(self._case.name, pod.key, what, wanted, got)
                for what, wanted, got in self._compare(pod, expected)
                if wanted != got
            ]
            if differences:
                return differences
        return []

    def _compare(self, pod: Pod, expected: Mapping[str, Any]) -> Iterator[Compared]:
        framework = self._case.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            yield "profile", pod.spec.scheduler_name, None
            return
        if self._case.tells_devices:
            yield "PreEnqueue", expected.get("preenqueue"), self._gate(framework, pod)
        outcome = self._decide(pod)
        errors: Sequence[str] | None = expected.get("errors")
        if errors is not None or isinstance(outcome, cycle.Failed):
            failed = outcome.status.message if isinstance(outcome, cycle.Failed) else None
            yield "error", errors, errors if errors is not None and failed in errors else failed
            return
        judged = self._judged or self._judge()
        yield from _verdicts(judged, expected)
        yield from _scores(framework, judged.explanation, expected)
        node = outcome.node if isinstance(outcome, cycle.Decided) else None
        yield "chosen node", expected.get("chosen"), node
        is_nominated = node is not None and node == pod.status.nominated_node_name
        yield "via nominated", expected.get("via_nominated", False), is_nominated
        unschedulable = outcome if isinstance(outcome, cycle.Unschedulable) else None
        yield from _failure(unschedulable, expected)
        if self._case.tells_devices and unschedulable is not None and unschedulable.preemption is not None:
            yield from _given_back(unschedulable.preemption, expected.get("preemption", {}))
        if self._case.tells_devices:
            yield "allocations", expected.get("allocations", {}), written_devices(self._devices)

    def _gate(self, framework: Framework, pod: Pod) -> dict[str, object] | None:
        status = framework.run_pre_enqueue(pod, next(iter(self._pipeline.workers.values())).table.objects)
        if status.ok:
            return None
        return {"plugin": status.plugin, "code": status.code.value, "reasons": list(status.reasons)}

    def _decide(self, pod: Pod) -> Outcome:
        self._pod, self._asked, self._judged, self._devices = pod, None, None, None
        self._pipeline.catch_workers_up()
        self._pipeline.submit([pod])
        self._pipeline.settle()
        outcome = self._pipeline.outcomes[pod.uid]
        if isinstance(outcome, cycle.Unschedulable):
            self._forget_nominations()
        return outcome

    def _forget_nominations(self) -> None:
        """Only initial nominations reserve room; no preemption."""
        decided = {uid for uid, outcome in self._pipeline.outcomes.items() if isinstance(outcome, cycle.Decided)}
        there = (*self._case.pods, *self._case.pending)
        waiting = [pod for pod in there if not pod.spec.node_name and pod.uid not in decided]
        for pod in waiting:
            self._pipeline.observe(Evicted(pod.uid, 1, "no"))
        self._pipeline.observe(WatchEvents([PodDeleted(pod.uid) for pod in waiting]))
        self._pipeline.observe(WatchEvents([PodSeen(pod) for pod in waiting]))
        self._pipeline.settle()

    def _overhear(self, message: object) -> Sequence[float]:
        """Evaluate the nodes once the workers have all summaries, and before the decision changes them."""
        if isinstance(message, Propose):
            (self._asked,) = message.classes
        elif isinstance(message, Commit):
            self._judged = self._judge()
            self._devices = next((each.assignment.devices for each in message.decisions), None)
        return reliable(message)

    def _judge(self) -> Judgement:
        """Evaluate all shards on the summary of the decision, merging until it agrees."""
        pod, asked = self._pod, self._asked
        if asked is None or asked.nominated:  # The answers were known, or are about others of its class, too.
            asked = ClassAsk(pod.uid, pod.spec.scheduler_name, count=1)
        framework, guess = self._case.frameworks[asked.profile], asked.guess
        for _ in range(MAX_ASKS):
            ask = msgspec.structs.replace(asked, pod=pod, guess=guess)
            parts = self._pipeline.explain(ask)
            first = parts[0][0]
            merged = merge(framework, (answer.summary for answer, _ in parts))
            if len(parts) == 1 or first.pre_filter is not None or merged.agrees_with(guess):
                break
            guess = merged
        whole = Explanation(skipped_scores=parts[0][1].skipped_scores)
        for _, part in parts:
            whole.rejected.update(part.rejected)
            whole.scores.update(part.scores)
        if first.pre_filter is not None:
            claims = claim_names(pod.namespace, pod.spec.resource_claims, pod.status.resource_claim_statuses)
            reasons = [with_names(reason, [claim.key for claim in claims]) for reason in first.pre_filter.reasons]
            named = msgspec.structs.replace(first.pre_filter, reasons=tuple(reasons))
            first = msgspec.structs.replace(first, pre_filter=named)
        return Judgement(first, whole, self._allowed(framework, pod))

    def _allowed(self, framework: Framework, pod: Pod) -> frozenset[str] | None:
        objects = next(iter(self._pipeline.workers.values())).table.objects
        found = framework.run_pre_filter(class_state(pod, objects))
        return found.nodes if found.rejection is None else None


def _verdicts(judged: Judgement, expected: Mapping[str, Any]) -> Iterator[Compared]:
    answer = judged.answer
    rejected = None if answer.pre_filter is None else _status(answer.pre_filter, answer)
    yield "prefilter", expected.get("prefilter"), rejected
    yield "allowed", expected.get("allowed"), None if judged.allowed is None else sorted(judged.allowed)
    yield "filter", expected.get("filter"), _filter(judged.explanation, answer) if rejected is None else None


def _scores(framework: Framework, explained: Explanation, expected: Mapping[str, Any]) -> Iterator[Compared]:
    scores: Mapping[str, Any] = expected.get("scores", {})
    yield "scores", {node: score["plugins"] for node, score in scores.items()}, explained.scores
    totals = {node: sum(of.values()) if framework.score else 1 for node, of in explained.scores.items()}
    yield "total scores", {node: score["total"] for node, score in scores.items()}, totals
    if scores:
        yield "skipped scores", set(expected.get("skipped_score", ())), set(explained.skipped_scores)
    yield "best nodes", expected.get("best", []), sorted(n for n, t in totals.items() if t == max(totals.values()))


def _failure(outcome: cycle.Unschedulable | None, expected: Mapping[str, Any]) -> Iterator[Compared]:
    yield "message", expected.get("message"), None if outcome is None else outcome.unfit.message
    preemption = None if outcome is None else outcome.preemption
    wanted: Mapping[str, Any] | None = expected.get("preemption")
    if wanted is None or preemption is None:
        yield "preemption", wanted, None if preemption is None else "some"
        return
    yield "outcomes of preemption", wanted["outcomes"], _candidates(preemption.best)
    yield "candidates of preemption", wanted.get("candidates", []), _candidates(preemption.candidates)
    yield "message of preemption", wanted.get("message", ""), preemption.message
    yield "failed preemption", wanted.get("error", False), preemption.failed
    if wanted["outcomes"]:
        nodes = {candidate["node"] for candidate in wanted["outcomes"]}
        yield "nominated node", True, preemption.nominated in nodes


def _given_back(preemption: Preemption, wanted: Mapping[str, Any]) -> Iterator[Compared]:
    yield "claims to be deallocated", wanted.get("deallocates", []), sorted(preemption.deallocate)
    yield "claims to be deleted", wanted.get("deletes", []), sorted(preemption.delete)


def _candidates(candidates: Iterable[Candidate]) -> list[dict[str, object]]:
    """Candidates in the form of the cases, ordered by node."""
    shown: list[dict[str, object]] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.node):
        entry: dict[str, object] = {"node": candidate.node, "victims": sorted(v.key for v in candidate.victims)}
        if candidate.violations:
            entry["pdb_violations"] = candidate.violations
        shown.append(entry)
    return shown


def _filter(explained: Explanation, answer: ClassAnswer) -> dict[str, object]:
    statuses: dict[str, object] = dict.fromkeys(explained.scores)
    statuses.update((node, _status(status, answer)) for node, status in explained.rejected.items())
    return statuses


def _status(status: Status, answer: ClassAnswer) -> dict[str, object]:
    shown: dict[str, object] = {"plugin": status.plugin, "code": status.code.value, "reasons": list(status.reasons)}
    return shown if status.plugin else shown | {"plugins": list(answer.restricted_by)}
