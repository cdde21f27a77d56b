"""Replays golden cases of kube-scheduler v1.36 through the same cores that the services run, and tells differences.

Each case is a cluster and pods to schedule one after another. For every pod, all nodes are judged first (the workers'
Explain), then the pod is decided in a round of one, ties by name. What is compared: how each node fared and why, each
plugin's score, the best nodes, the chosen one, and the message.
"""

import gzip
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from services.cycle import events as cycle
from services.inprocess.pipeline import Pipeline
from shared.errors import FlotillaError, InvalidObject, UserError
from shared.framework.explanation import Explanation
from shared.framework.profile import Framework
from shared.framework.status import Status
from shared.framework.summary import Summary, merge
from shared.framework.tiebreak import Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, Explain
from shared.model.objects import Pod, node_from, pod_from
from shared.plugins.frameworks import load_frameworks

LEFT_OUT_PLUGINS = frozenset({"DynamicResources"})
"""Not there yet; it scores nought for pods without claims."""

LEFT_OUT = "left out of every case: PostFilter (its part of a message, and preemption) and DynamicResources (scores 0)"


class UnreadableCases(UserError):
    """A file of cases that is none."""


@dataclass(frozen=True, slots=True)
class Difference:
    case: str
    pod: str
    what: str
    expected: object
    got: object

    def __str__(self) -> str:
        expected, got = self.expected, self.got
        if isinstance(expected, dict) and isinstance(got, dict):  # only what differs
            differing = {key for key in {*expected, *got} if expected.get(key, "none") != got.get(key, "none")}
            expected = {key: value for key, value in expected.items() if key in differing}
            got = {key: value for key, value in got.items() if key in differing}
        head = f"{self.case}, pod {self.pod}: {self.what}"
        return f"{head}\n    expected: {_shown(expected)}\n    got:      {_shown(got)}"


@dataclass(slots=True)
class GroupResult:
    total: int = 0
    passed: int = 0
    differences: list[Difference] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """The cases of a .jsonl or .jsonl.gz file."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        case = msgspec.json.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
                        raise UnreadableCases(f"{path}:{number}: {cause}") from None
                    if not _is_case(case):
                        raise UnreadableCases(f"{path}:{number}: not a case")
                    yield case
    except (OSError, EOFError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
        raise UnreadableCases(f"{path}: {reason}") from None


def _is_case(case: object) -> TypeGuard[dict[str, Any]]:
    match case:
        case {"name": str(), "objects": dict(), "pending": list(pending), "expected": list(expected)}:
            return len(pending) == len(expected)
    return False


def run_cases(cases: Iterator[dict[str, Any]], shards: int) -> dict[str, GroupResult]:
    """Results by group, in the order of first appearance."""
    groups: dict[str, GroupResult] = {}
    for case in cases:
        group = groups.setdefault((case.get("tags") or ["untagged"])[0], GroupResult())
        group.total += 1
        try:
            replay = Replay(case, shards)
            differences = replay.run()
            group.missing |= replay.missing
        except FlotillaError as cause:
            differences = [Difference(case["name"], "-", "cannot be run", "a run", str(cause))]
        group.passed += not differences
        group.differences += differences
    return groups


class Replay:
    """One case on a cluster of its own."""

    def __init__(self, case: Mapping[str, Any], shards: int) -> None:
        self._case = case
        self._name: str = case["name"]
        self._frameworks = load_frameworks(case.get("config"), lenient=True)
        self._pipeline = Pipeline(self._frameworks, shards=shards, round_size=1, ties=Ties(mode="name"), binds=False)
        self.missing: set[str] = set().union(*(f.missing for f in self._frameworks.values()))
        self._ids = itertools.count()
        objects = case["objects"]
        self._pipeline.add_nodes(node_from(node) for node in objects.get("nodes", ()))
        self._pipeline.add_pods(pod_from(pod) for pod in objects.get("pods", ()))
        self._pipeline.settle()
        refused = [problem for problem in self._pipeline.problems if isinstance(problem, InvalidObject)]
        if refused:
            raise refused[0]

    def run(self) -> list[Difference]:
        differences: list[Difference] = []
        for raw, expected in zip(self._case["pending"], self._case["expected"], strict=True):
            pod = pod_from(raw)
            for what, wanted, got in self._compare(pod, expected):
                if wanted != got:
                    differences.append(Difference(self._name, pod.key, what, wanted, got))
            if differences:
                break  # what follows rests on a different cluster
        return differences

    def _compare(self, pod: Pod, expected: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
        framework = self._frameworks[pod.spec.scheduler_name]
        answer, explained = self._judge(framework, pod)
        outcome = self._decide(pod)
        if isinstance(outcome, cycle.Failed):
            yield "outcome", "a decision", outcome.status.message
            return
        yield "prefilter", expected.get("prefilter"), _pre_filter(answer)
        if answer.pre_filter is None:
            yield "filter", expected.get("filter"), _filter(explained, answer)
        got_skipped = set(explained.skipped_scores)
        if "skipped_score" in expected:
            yield "skipped scores", set(expected["skipped_score"]) - framework.missing, got_skipped
        scores = expected.get("scores", {})
        yield "scores", {node: self._known(framework, s["plugins"]) for node, s in scores.items()}, explained.scores
        left_out = {n for s in scores.values() for n in s["plugins"] if n in framework.missing - LEFT_OUT_PLUGINS}
        if left_out:
            yield "plugins that score", "all there", f"not there: {', '.join(sorted(left_out))}"
        yield "best nodes", expected.get("best", []), _best(framework, explained)
        decided = isinstance(outcome, cycle.Decided)
        yield "chosen node", expected.get("chosen"), outcome.node if isinstance(outcome, cycle.Decided) else None
        if not decided:
            message = outcome.unfit.message if isinstance(outcome, cycle.Unschedulable) else "none"
            yield "message", _without_post_filter(expected), message

    def _known(self, framework: Framework, scores: Mapping[str, int]) -> dict[str, int]:
        return {name: score for name, score in scores.items() if name not in framework.missing}

    def _judge(self, framework: Framework, pod: Pod) -> tuple[ClassAnswer, Explanation]:
        """All shards together: first what each knows by itself, then on the merged summary."""
        guess: Summary | None = None
        for _ in range(4):
            ask = ClassAsk(f"explain-{next(self._ids)}", framework.name, 1, pod, guess)
            answers = self._pipeline.explain(Explain(pod.uid, ask))
            merged = merge(framework, (part.answer.summary for part in answers))
            if merged.agrees_with(guess) or answers[0].answer.pre_filter is not None:
                break
            guess = merged
        whole = Explanation(skipped_scores=answers[0].explanation.skipped_scores)
        for part in answers:
            whole.rejected.update(part.explanation.rejected)
            whole.scores.update(part.explanation.scores)
        return answers[0].answer, whole

    def _decide(self, pod: Pod) -> object:
        self._pipeline.submit([pod])
        self._pipeline.settle()
        return self._pipeline.outcomes[pod.uid]


def _pre_filter(answer: ClassAnswer) -> object:
    if answer.pre_filter is None:
        return None
    shown = _status(answer.pre_filter)
    return shown if answer.pre_filter.plugin else shown | {"plugins": list(answer.restricted_by)}


def _filter(explained: Explanation, answer: ClassAnswer) -> dict[str, object]:
    statuses: dict[str, object] = dict.fromkeys(explained.scores)
    for node, status in explained.rejected.items():
        shown = _status(status)
        statuses[node] = shown if status.plugin else shown | {"plugins": list(answer.restricted_by)}
    return statuses


def _status(status: Status) -> dict[str, object]:
    return {"plugin": status.plugin, "code": status.code.value, "reasons": list(status.reasons)}


def _best(framework: Framework, explained: Explanation) -> list[str]:
    totals = {node: sum(scores.values()) if framework.score else 1 for node, scores in explained.scores.items()}
    highest = max(totals.values(), default=0)
    return sorted(node for node, total in totals.items() if total == highest)


def _without_post_filter(expected: Mapping[str, Any]) -> object:
    """The message without what PostFilter plugins added to it."""
    message: str | None = expected.get("message")
    added = (expected.get("preemption") or {}).get("message")
    if message is None or not added:
        return message
    return message.removesuffix(f" {added}")


def _shown(value: object) -> str:
    if isinstance(value, set):
        value = sorted(value)
    return msgspec.json.encode(value, order="sorted").decode() if value is not None else "nothing"


def exit_code(groups: Sequence[GroupResult]) -> int:
    return 0 if all(group.passed == group.total for group in groups) else 1
