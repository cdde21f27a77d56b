"""Proposer: judges the nodes of one table for classes of pods, and remembers what it worked out about them."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flotilla.results import Range, Status, error
from services.worker.preempting import findings
from services.worker.sampling import sample
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import domains_of
from shared.errors import FlotillaError
from shared.framework.evaluator import Rungs, ShardEvaluator
from shared.framework.explanation import explain, rejections
from shared.framework.keymatrix import Mask
from shared.framework.nominated import own_node
from shared.framework.podclass import PodClass
from shared.framework.podreads import PluginFailed
from shared.framework.profile import Framework
from shared.messages.evaluation import Explanation, Summary, Ties
from shared.messages.preemption import PreemptAsk, ShardFindings
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder

CLASS_MEMORY = 1 << 30
"""About so many bytes may what is known of classes take; the class not asked about for longest goes first."""

MOST_CLASSES = 512
"""Of pods that are like no other, as those with a volume of their own, there is a new class all the time."""


class Context(NamedTuple):
    """What the asks of one message have in common: the round, and the labels to be told of."""

    round: int
    keys: tuple[str, ...]


class Proposer:
    def __init__(self, table: NodeTable, frameworks: Mapping[str, Framework], ties: Ties, share: float) -> None:
        """`share`: the part of the cluster that the table holds."""
        self.table = table
        self.ties = ties
        self._share = share
        self._evaluators = {name: ShardEvaluator(table, framework, ties) for name, framework in frameworks.items()}
        self._room_for = (0, 0)
        self._classes: OrderedDict[str, tuple[ShardEvaluator, PodClass]] = OrderedDict()

    def propose(self, asks: list[ClassAsk], round_: int, keys: Sequence[str] = ()) -> list[ClassAnswer]:
        """One answer an ask; `keys`: labels whose values are to be told of each node that is proposed.

        A plugin that fails on one class does no harm to the others.
        """
        by_profile: dict[str, list[ClassAsk]] = {}
        for ask in asks:
            by_profile.setdefault(ask.profile, []).append(ask)
        answers: list[ClassAnswer] = []
        most = self._most_classes()
        for profile, group in by_profile.items():
            for start in range(0, len(group), most):
                part = group[start : start + most]
                self._make_room(part, most)
                answers += self._propose(profile, part, Context(round_, tuple(keys)))
        return answers

    def explain(self, ask: ClassAsk) -> tuple[ClassAnswer, Explanation]:
        """How every node fares for the ask's pod, as of now."""
        evaluator = self._evaluators.get(ask.profile)
        if evaluator is None:
            return _no_profile(ask), Explanation()
        self._make_room([ask], self._most_classes())
        pod_class = self._class(evaluator, ask)
        if isinstance(pod_class, ClassAnswer):
            return pod_class, Explanation()
        try:
            summaries, *_ = self._rank(evaluator, [(ask, pod_class)], 0)
            by = pod_class.pre.restricted_by
            return ClassAnswer(ask.class_id, summary=summaries[0], restricted_by=by), explain(evaluator, pod_class)
        except Exception as cause:
            return ClassAnswer(ask.class_id, failure=_failure(cause)), Explanation()

    def preempt(self, ask: PreemptAsk, search: int) -> ShardFindings:
        """What could be done for a class that no node has room for; `search`: which one this is."""
        evaluator = self._evaluators.get(ask.profile)
        if evaluator is None:
            return ShardFindings(ask.class_id, failure=error(f"there is no profile {ask.profile!r}"))
        class_ask = ClassAsk(ask.class_id, ask.profile, 0, ask.pod)
        self._make_room([class_ask], self._most_classes())
        try:
            pod_class = self._prepared(evaluator, class_ask)
            if pod_class.failure is not None:
                return ShardFindings(ask.class_id, failure=pod_class.failure)
            if isinstance(pod_class, ClassAnswer):
                return ShardFindings(ask.class_id, failure=error(f"class {ask.class_id} is not known"))
            return findings(evaluator, pod_class, ask, search)
        except Exception as cause:
            return ShardFindings(ask.class_id, failure=_failure(cause))

    def _propose(self, profile: str, asks: list[ClassAsk], context: Context) -> list[ClassAnswer]:
        evaluator = self._evaluators.get(profile)
        if evaluator is None:
            return [_no_profile(ask) for ask in asks]
        answers: list[ClassAnswer] = []
        ready: list[tuple[ClassAsk, PodClass]] = []
        for ask in asks:
            pod_class = self._class(evaluator, ask)
            if isinstance(pod_class, ClassAnswer):
                answers.append(pod_class)
            else:
                ready.append((ask, pod_class))
        try:
            answers += self._evaluate(evaluator, ready, context)
        except Exception:  # a plugin failed: find out for which class, and answer the others
            answers += [self._evaluate_alone(evaluator, ask, pod_class, context) for ask, pod_class in ready]
        return answers

    def _most_classes(self) -> int:
        """Lines are laid out in powers of two, so up to half of them may be empty."""
        if self._room_for[0] != self.table.capacity:
            each = max((2 * evaluator.bytes_per_class() for evaluator in self._evaluators.values()), default=1)
            self._room_for = (self.table.capacity, max(1, min(MOST_CLASSES, CLASS_MEMORY // each)))
        return self._room_for[1]

    def _class(self, evaluator: ShardEvaluator, ask: ClassAsk) -> PodClass | ClassAnswer:
        """The class that is asked about, or at once the answer if no node is to be looked at."""
        pod_class = self._prepared(evaluator, ask)
        if isinstance(pod_class, ClassAnswer):
            return pod_class
        if pod_class.failure is not None:
            return ClassAnswer(ask.class_id, failure=pod_class.failure)
        if pod_class.pre.rejection is not None:
            nodes = Summary(nodes=self.table.node_count)
            by = pod_class.pre.restricted_by
            return ClassAnswer(ask.class_id, pre_filter=pod_class.pre.rejection, summary=nodes, restricted_by=by)
        return pod_class

    def _prepared(self, evaluator: ShardEvaluator, ask: ClassAsk) -> PodClass | ClassAnswer:
        """The class that is asked about, if it is known or a pod came along."""
        known = self._classes.get(ask.class_id)
        pod = ask.pod
        if known is not None and not evaluator.is_current(known[1]):
            pod = known[1].state.pod
            del self._classes[ask.class_id]
            evaluator.release(known[1])
            known = None
        if known is None:
            if pod is None:
                return ClassAnswer(ask.class_id, unknown=True)
            try:
                known = (evaluator, evaluator.prepare(ask.class_id, pod))
            except Exception as cause:
                return ClassAnswer(ask.class_id, failure=_failure(cause))
            self._classes[ask.class_id] = known
        self._classes.move_to_end(ask.class_id)
        return known[1]

    def _evaluate(
        self, evaluator: ShardEvaluator, ready: list[tuple[ClassAsk, PodClass]], context: Context
    ) -> list[ClassAnswer]:
        if not ready:
            return []
        classes = [pod_class for _, pod_class in ready]
        summaries, samples, by_itself = self._rank(evaluator, ready, context.round)
        topologies = [evaluator.topology(pod_class) for pod_class in classes]
        own = [own_node(self.table, pod_class, evaluator.feasible_rows(pod_class)) for pod_class in classes]
        among = [
            sampled if nominated is None or ask.each else nominated
            for (ask, _), sampled, nominated in zip(ready, samples, own, strict=True)
        ]
        strata = [
            () if topology is None or ask.each or nominated is not None else topology.strata
            for (ask, _), topology, nominated in zip(ready, topologies, own, strict=True)
        ]
        counts = [0 if ask.each else ask.count for ask, _ in ready]
        ladders = [
            evaluator.offers(pod_class, mask) if ask.each else rungs
            for (ask, pod_class), mask, rungs in zip(
                ready, among, evaluator.ladders(classes, counts, among, strata), strict=True
            )
        ]
        return [
            ClassAnswer(
                ask.class_id,
                score_failure=pod_class.score_failure,
                summary=summary,
                ladder=self._ladder(evaluator, pod_class, rungs, of_strata, context.keys),
                rejections=[] if summary.feasible and not ask.each else rejections(evaluator, pod_class),
                restricted_by=pod_class.pre.restricted_by,
                topology=topology,
                via_nominated=nominated is not None,
                by_itself=alone,
            )
            for (ask, _), pod_class, summary, rungs, of_strata, topology, nominated, alone in zip(
                ready, classes, summaries, ladders, strata, topologies, own, by_itself, strict=True
            )
        ]

    def _evaluate_alone(
        self, evaluator: ShardEvaluator, ask: ClassAsk, pod_class: PodClass, context: Context
    ) -> ClassAnswer:
        try:
            return self._evaluate(evaluator, [(ask, pod_class)], context)[0]
        except Exception as cause:
            return ClassAnswer(ask.class_id, failure=_failure(cause))

    def _rank(
        self, evaluator: ShardEvaluator, ready: list[tuple[ClassAsk, PodClass]], round_: int
    ) -> tuple[list[Summary], list[Mask | None], list[bool]]:
        """Evaluates on the guesses, or on what this shard knows where there is none; the last tells which of these."""
        classes = [pod_class for _, pod_class in ready]
        own = [evaluator.summarize(pod_class) for pod_class in classes]
        guesses = [_usable(ask, plugins) for (ask, _), plugins in zip(ready, own, strict=True)]
        for guess, pod_class, plugins in zip(guesses, classes, own, strict=True):
            evaluator.believe(pod_class, plugins if guess is None else guess.plugins)
            if guess is not None:
                evaluator.believe_late(pod_class, guess.late)
        evaluator.refresh(classes)
        samples = [self._sample(evaluator, pod_class, ask, round_) for ask, pod_class in ready]
        late = [evaluator.late_summary(pod_class, among) for pod_class, among in zip(classes, samples, strict=True)]
        for guess, pod_class, of_class in zip(guesses, classes, late, strict=True):
            if guess is None:
                evaluator.believe_late(pod_class, of_class)
        summaries = [
            evaluator.summary(pod_class, plugins, among, of_class)
            for pod_class, plugins, among, of_class in zip(classes, own, samples, late, strict=True)
        ]
        ranges: list[dict[str, Range]] = [
            summary.ranges if guess is None else guess.ranges for guess, summary in zip(guesses, summaries, strict=True)
        ]
        evaluator.rank(classes, ranges)
        return summaries, samples, [guess is None for guess in guesses]

    def _sample(self, evaluator: ShardEvaluator, pod_class: PodClass, ask: ClassAsk, round_: int) -> Mask | None:
        """The rows that count, where not all do."""
        if ask.among is None:
            return sample(evaluator, pod_class, self._share, round_)
        among = np.zeros(self.table.size, dtype=np.bool_)
        among[[row for name in ask.among if (row := self.table.row_of(name)) is not None]] = True
        return among

    def _ladder(
        self, evaluator: ShardEvaluator, pod_class: PodClass, rungs: Rungs, strata: tuple[str, ...], keys: Sequence[str]
    ) -> Ladder:
        names, bits = self.table.names, evaluator.tie_bits
        by_name = self.ties.mode == "name"
        volumes = evaluator.volumes(pod_class, rungs.rows)
        return Ladder(
            nodes=[names[row] for row in rungs.rows.tolist()],
            scores=(rungs.keys >> bits).tolist(),
            ties=[0] * len(rungs.rows) if by_name else (rungs.keys & ((1 << bits) - 1)).tolist(),
            complete=rungs.complete,
            domains={key: domains_of(self.table, key, rungs.rows) for key in keys},
            strata=strata,
            cut=rungs.cut,
            volumes=volumes,
        )

    def _make_room(self, asks: list[ClassAsk], most: int) -> None:
        """Forgets the classes not asked about for longest, until these find room."""
        for ask in asks:
            if ask.class_id in self._classes:
                self._classes.move_to_end(ask.class_id)
        new = sum(ask.class_id not in self._classes for ask in asks)
        while self._classes and len(self._classes) + new > most:
            _, (evaluator, pod_class) = self._classes.popitem(last=False)
            evaluator.release(pod_class)


def _no_profile(ask: ClassAsk) -> ClassAnswer:
    return ClassAnswer(ask.class_id, failure=error(f"there is no profile {ask.profile!r}"))


def _failure(cause: Exception) -> Status:
    if isinstance(cause, PluginFailed):
        return error(str(cause)).by(cause.plugin)
    return error(str(cause) if isinstance(cause, FlotillaError | ValueError) else repr(cause))


def _usable(ask: ClassAsk, own: dict[str, object]) -> Summary | None:
    """The guess, unless it is of somebody who runs other plugins, or of a class of which other things are asked."""
    guess = ask.guess
    if guess is None or guess.plugins.keys() != own.keys():
        return None
    return guess if not ask.borrowed or (_alike(guess.plugins, own) and not guess.late) else None


def _alike(one: object, other: object) -> bool:
    """Whether the same things are said in both."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and not isinstance(one, list)
