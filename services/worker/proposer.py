"""Evaluates classes of pods on the nodes of one table, and caches the classes."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from flotilla.plugin import Mask
from flotilla.results import error
from services.worker.gang_preempting import GangLadders, victims_gone
from services.worker.lasting_answers import NOTHING_LASTS, as_sent, beside, outlook, ranges
from services.worker.nominated_pods import own_node, own_nodes
from services.worker.places import Counted, count_places, labelled
from services.worker.preempting import findings
from services.worker.sampling import sample_nodes
from services.worker.volume_choices import VolumeChoices
from services.worker.what_if import pods_placed
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import domains_of
from shared.devices.pod_claims import may_claim, own_claims
from shared.framework.evaluator import Explanation, Question, ShardEvaluator
from shared.framework.failures import Failures
from shared.framework.ladders import Rungs
from shared.framework.metering import PluginMeter
from shared.framework.pod_class import PodClass
from shared.framework.profile import Framework, joined
from shared.messages.evaluation import Summary, Ties
from shared.messages.preemption import Preempt, PreemptAsk, ShardFindings
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder, Scope
from shared.model.objects import Pod
from shared.plugins.volumes.own_claims import content_of_pod

Found = TypeVar("Found", bound=ShardFindings | None)
CLASS_MEMORY = 1 << 30
"""Bytes that cached classes may take, approximately; the least recently used one is dropped first."""

MAX_CLASSES = 512
"""Cached classes. Pods that differ from all others, such as those with a volume of their own, are a new class each."""


class RoundContext(NamedTuple):
    """What the asks of one message share. `keys`: labels whose values each ladder lists. `within`: the scope's rows.

    `beside`: classes of which answers that last tell what their placements mean for them.
    """

    round: int
    keys: tuple[str, ...]
    scope: Scope | None = None
    within: Mask | None = None
    beside: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        return self.scope is not None and self.scope.count_by is not None

    @property
    def options(self) -> int:
        return 0 if self.scope is None else self.scope.options


class Proposer:
    def __init__(
        self,
        table: NodeTable,
        frameworks: Mapping[str, Framework],
        ties: Ties,
        share: float,
        meters: Mapping[str, PluginMeter] | None = None,
        failures: Failures | None = None,
    ) -> None:
        """`share`: the part of the cluster that the table holds. `meters`: by profile."""
        self.table = table
        self.ties = ties
        self._share = share
        self._failures = Failures() if failures is None else failures
        by_profile = meters or {}
        self._evaluators = {
            name: ShardEvaluator(table, framework, ties, by_profile.get(name)) for name, framework in frameworks.items()
        }
        self._classes: OrderedDict[str, tuple[ShardEvaluator, PodClass]] = OrderedDict()
        self._round = 0
        self._choices = VolumeChoices()
        self._of_one_pod: set[str] = set()
        """Classes of this round that were prepared from a pod whose own claims have devices already."""

    def propose(
        self,
        asks: list[ClassAsk],
        round_: int,
        keys: Sequence[str] = (),
        scope: Scope | None = None,
        beside: Sequence[str] = (),
    ) -> list[ClassAnswer]:
        """Returns an answer for each ask. `keys`: labels whose values are listed for each proposed node.

        A plugin that fails on one class does not affect the others.
        """
        by_profile: dict[str, list[ClassAsk]] = {}
        self._choices = VolumeChoices()
        if round_ != self._round:
            self._round = round_
            self._forget_classes_of_one_pod()
        for ask in asks:
            by_profile.setdefault(ask.profile, []).append(ask)
        answers: list[ClassAnswer] = []
        within = None if scope is None or not scope.within else labelled(self.table, scope.within)
        context = RoundContext(round_, tuple(keys), scope, within, tuple(beside))
        for profile, group in by_profile.items():
            most = self._most_new_classes() if any(ask.class_id not in self._classes for ask in group) else len(group)
            for start in range(0, len(group), most):
                part = group[start : start + most]
                self._make_room(part)
                answers += self._propose(profile, part, context)
        return answers

    def is_new(self, class_id: str) -> bool:
        """Whether this class will be evaluated on every node of the table."""
        known = self._classes.get(class_id)
        return known is None or not self.table.load_log.reaches(known[1].feasibility.seen)

    def explain(self, ask: ClassAsk) -> tuple[ClassAnswer, Explanation]:
        """Explains the result of every node for the ask's pod, at present."""
        evaluator = self._evaluators.get(ask.profile)
        if evaluator is None:
            return _no_profile(ask), Explanation()
        self._make_room([ask])
        pod_class = self._class(evaluator, ask)
        if isinstance(pod_class, ClassAnswer):
            return pod_class, Explanation()
        try:
            (evaluated,) = evaluator.evaluate(self._questions(evaluator, [(ask, pod_class)], RoundContext(0, ())))
            by = pod_class.pre.restricted_by
            answer = ClassAnswer(ask.class_id, summary=evaluated.summary, restricted_by=by)
            return answer, evaluator.explain(pod_class)
        except Exception as cause:
            return ClassAnswer(ask.class_id, failure=self._failures.status(cause)), Explanation()

    def evaluator(self, profile: str) -> ShardEvaluator | None:
        return self._evaluators.get(profile)

    def search(self, preempt: Preempt) -> list[ShardFindings]:
        """Searches preemption candidates for these classes; for a gang, as if the table were what the ask supposes."""
        gang = preempt.gang
        if gang is None:
            find = partial(findings, search=preempt.search)
            return [self._preempt(ask, partial(find, ask=ask)) for ask in preempt.classes]
        found = (self.search_on(GangLadders(ask, gang)) for ask in preempt.classes)
        return [each for each in found if each is not None]

    def search_on(self, ladders: GangLadders) -> ShardFindings | None:
        """The next step for a gang's class; None until the answer is whole."""
        gang = ladders.gang
        with victims_gone(self.table, gang) as gone, pods_placed(self.table, gang.given, gang.loads):
            return self._preempt(ladders.ask, partial(ladders.go_on, gone=gone))

    def _preempt(self, ask: PreemptAsk, find: Callable[[ShardEvaluator, PodClass], Found]) -> ShardFindings | Found:
        """What `find` returns for a class without a feasible node, or why it cannot be asked."""
        evaluator = self._evaluators.get(ask.profile)
        if evaluator is None:
            return ShardFindings(ask.class_id, failure=error(f"there is no profile {ask.profile!r}"))
        class_ask = ClassAsk(
            ask.class_id, ask.profile, 0, ask.pod, private_claims=ask.private_claims, own_volumes=ask.own_volumes
        )
        self._make_room([class_ask])
        try:
            pod_class = self._prepared(evaluator, class_ask)
            if pod_class.failure is not None:
                return ShardFindings(ask.class_id, failure=pod_class.failure)
            if isinstance(pod_class, ClassAnswer):
                why = "the claims of its pods have changed" if ask.own_volumes else "it is not known"
                return ShardFindings(ask.class_id, failure=error(f"class {ask.class_id}: {why}"))
            return find(evaluator, pod_class)
        except Exception as cause:
            return ShardFindings(ask.class_id, failure=self._failures.status(cause))

    def _propose(self, profile: str, asks: list[ClassAsk], context: RoundContext) -> list[ClassAnswer]:
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
        except Exception as cause:  # a plugin failed: find out for which class, and answer the others
            self._failures.note(cause)
            answers += [self._evaluate_alone(evaluator, ask, pod_class, context) for ask, pod_class in ready]
        return answers

    def _most_new_classes(self) -> int:
        """How many classes there is room for in any case."""
        return max(1, min(MAX_CLASSES, CLASS_MEMORY // self._bytes_per_class()))

    def _bytes_per_class(self) -> int:
        """At most."""
        return max((evaluator.bytes_per_class() for evaluator in self._evaluators.values()), default=1)

    def _class(self, evaluator: ShardEvaluator, ask: ClassAsk) -> PodClass | ClassAnswer:
        """Returns the class, or the answer if no node has to be evaluated."""
        pod_class = self._prepared(evaluator, ask)
        if isinstance(pod_class, ClassAnswer):
            return pod_class
        own_volumes = bool(ask.own_volumes)
        if pod_class.failure is not None:
            return ClassAnswer(ask.class_id, failure=pod_class.failure, own_volumes=own_volumes)
        if pod_class.pre.rejection is not None:
            return ClassAnswer(
                ask.class_id,
                pre_filter=pod_class.pre.rejection,
                summary=Summary(nodes=self.table.node_count),
                restricted_by=pod_class.pre.restricted_by,
                own_volumes=own_volumes,
            )
        return pod_class

    def _prepared(self, evaluator: ShardEvaluator, ask: ClassAsk) -> PodClass | ClassAnswer:
        """Returns the class if it is cached or the ask brings a pod, else an answer that says why not."""
        known = self._classes.get(ask.class_id)
        pod = ask.pod
        if known is not None and not evaluator.is_current(known[1]):
            # The claims of that pod may be gone, or decided.
            pod = pod if ask.own_volumes or may_claim(known[1].state.pod) else known[1].state.pod
            del self._classes[ask.class_id]
            evaluator.release(known[1])
            known = None
        if known is None:
            if pod is None:
                return ClassAnswer(ask.class_id, unknown=True)
            own_volumes = bool(ask.own_volumes)
            if own_volumes and content_of_pod(pod, self.table.objects) != ask.own_volumes:
                return ClassAnswer(ask.class_id)
            try:
                pod_class = evaluator.prepare(
                    ask.class_id, pod, private_claims=ask.private_claims, own_volumes=own_volumes
                )
                known = (evaluator, pod_class)
            except Exception as cause:
                return ClassAnswer(ask.class_id, failure=self._failures.status(cause))
            self._classes[ask.class_id] = known
            if self._has_own_devices(pod, ask.private_claims):
                self._of_one_pod.add(ask.class_id)
        self._classes.move_to_end(ask.class_id)
        return known[1]

    def _has_own_devices(self, pod: Pod, private_claims: bool) -> bool:
        """Whether a claim that no other pod has is allocated, or about to be.

        An attempt may be under way of which a restarted queue does not know. So the other pods of the class, which have
        claims of their own, are judged by this pod in one round only.
        """
        if not may_claim(pod):
            return False
        devices = self.table.objects.devices
        if devices.special_claims_of(pod.uid):
            return True
        own = own_claims(pod, devices.claims)
        if isinstance(own, str):
            return False
        private = (each for each in own if private_claims or each.owner_uid == pod.uid)
        return any(each.is_allocated or each.promised for each in private)

    def _forget_classes_of_one_pod(self) -> None:
        for class_id in self._of_one_pod & self._classes.keys():
            evaluator, pod_class = self._classes.pop(class_id)
            evaluator.release(pod_class)
        self._of_one_pod.clear()

    def _evaluate(
        self, evaluator: ShardEvaluator, ready: list[tuple[ClassAsk, PodClass]], context: RoundContext
    ) -> list[ClassAnswer]:
        if not ready:
            return []
        classes = [pod_class for _, pod_class in ready]
        within = context.within
        evaluated = evaluator.evaluate(self._questions(evaluator, ready, context))
        by_plugin = [evaluator.topologies(pod_class) for pod_class in classes]
        topologies = [joined(each.values()) for each in by_plugin]
        nominated = [self._own_node(evaluator, pod_class, context) for pod_class in classes]
        among = [
            own if own is not None and not ask.each else None if each.among is within else each.among
            for (ask, _), each, own in zip(ready, evaluated, nominated, strict=True)
        ]
        strata = [
            () if topology is None or self._lists(ask, context) or own is not None else topology.strata
            for (ask, _), topology, own in zip(ready, topologies, nominated, strict=True)
        ]
        outlooks = [
            NOTHING_LASTS
            if mask is not None or self._lists(ask, context)
            else outlook(evaluator, pod_class, ask, of_plugins, each.summary.late)
            for (ask, pod_class), each, of_plugins, mask in zip(ready, evaluated, by_plugin, among, strict=True)
        ]
        counts = [
            0
            if self._lists(ask, context)
            else min(ask.count, 1)
            if evaluator.is_one_at_a_time(pod_class, of_strata)
            else ask.count + ask.ahead * coming.lasts
            for (ask, pod_class), of_strata, coming in zip(ready, strata, outlooks, strict=True)
        ]
        ladders = [
            self._listed(evaluator, ask, pod_class, mask, context) or rungs
            for (ask, pod_class), mask, rungs in zip(
                ready, among, evaluator.ladders.climb(classes, counts, among, strata, within), strict=True
            )
        ]
        lasting = [
            (pod_class, rungs.rows if coming.groups is None else coming.groups.rows)
            for pod_class, rungs, coming in zip(classes, ladders, outlooks, strict=True)
            if coming.lasts or coming.groups
        ]
        of_others = beside(evaluator, lasting, context.beside, self._classes, self._failures)
        of_named = ranges(evaluator, context.beside, self._classes) if lasting else {}
        return [
            ClassAnswer(
                ask.class_id,
                score_failure=pod_class.score_failure,
                summary=each.summary if within is None else self._of_scope(each.summary, within),
                ladder=self._ladder(evaluator, pod_class, rungs, of_strata, context.keys, lasts=coming.lasts),
                rejections=[]
                if each.summary.feasible and not ask.each
                else evaluator.rejections(pod_class, context.within),
                restricted_by=pod_class.pre.restricted_by,
                topology=topology,
                via_nominated=own is not None,
                by_itself=each.by_itself,
                runner_up=evaluator.runner_up(pod_class, int(rungs.rows[0]))
                if mask is None and within is None and _is_of_one_node(rungs, lasts=coming.lasts)
                else None,
                lasts=coming.lasts and bool(len(rungs.rows)),
                own_nodes=own_nodes(
                    evaluator,
                    pod_class,
                    ask.nominated,
                    within,
                    partial(self._ladder, evaluator, pod_class, strata=(), keys=context.keys, lasts=False),
                    fits_elsewhere=each.summary.feasible > 0,
                ),
                **self._places(evaluator, pod_class, context)._asdict(),
                own_volumes=bool(ask.own_volumes),
                beside=of_others.get(ask.class_id, {}),
                ranges=of_named | ranges(evaluator, (ask.class_id,), self._classes)
                if coming.lasts or coming.groups
                else {},
                followed=coming.followed,
                groups=[] if coming.groups is None else as_sent(evaluator, coming.groups, self.ties),
            )
            for (ask, pod_class), each, rungs, of_strata, topology, own, mask, coming in zip(
                ready, evaluated, ladders, strata, topologies, nominated, among, outlooks, strict=True
            )
        ]

    # Scopes

    def _lists(self, ask: ClassAsk, context: RoundContext) -> bool:
        """Whether nodes are listed or counted, and none is taken by more than one pod."""
        return ask.each or context.counts or bool(context.options)

    def _listed(
        self, evaluator: ShardEvaluator, ask: ClassAsk, pod_class: PodClass, among: Mask | None, context: RoundContext
    ) -> Rungs | None:
        if not context.options and (context.counts or not ask.each):
            return None
        within = context.within
        here = within if among is None else among if within is None else among & within
        return evaluator.ladders.offers(pod_class, here, context.options)

    def _own_node(self, evaluator: ShardEvaluator, pod_class: PodClass, context: RoundContext) -> Mask | None:
        """The row that the pod is nominated to, if it is to be compared with no other one."""
        if context.counts or context.options:
            return None
        feasible = evaluator.feasible_rows(pod_class)
        return own_node(self.table, pod_class, feasible if context.within is None else feasible & context.within)

    def _places(self, evaluator: ShardEvaluator, pod_class: PodClass, context: RoundContext) -> Counted:
        if context.scope is None or context.scope.count_by is None:
            return Counted([], ())
        loosely = evaluator.is_one_at_a_time(pod_class, ())
        return count_places(evaluator, pod_class, context.within, context.scope.count_by, loosely=loosely)

    def _of_scope(self, summary: Summary, within: Mask) -> Summary:
        """Nodes elsewhere do not exist for the gang."""
        return msgspec.structs.replace(summary, nodes=int(np.count_nonzero(within & self.table.valid[: len(within)])))

    def _evaluate_alone(
        self, evaluator: ShardEvaluator, ask: ClassAsk, pod_class: PodClass, context: RoundContext
    ) -> ClassAnswer:
        try:
            return self._evaluate(evaluator, [(ask, pod_class)], context)[0]
        except Exception as cause:
            return ClassAnswer(ask.class_id, failure=self._failures.status(cause))

    def _questions(
        self, evaluator: ShardEvaluator, ready: list[tuple[ClassAsk, PodClass]], context: RoundContext
    ) -> list[Question]:
        return [
            Question(pod_class, ask.guess, ask.borrowed, partial(self._among, evaluator, ask, context))
            for ask, pod_class in ready
        ]

    def _among(self, evaluator: ShardEvaluator, ask: ClassAsk, context: RoundContext, feasible: Mask) -> Mask | None:
        """The rows to consider, None for all. A gang's domain is looked at as a whole."""
        if context.scope is not None and ask.among is None:
            return context.within
        if ask.among is None:
            return sample_nodes(evaluator, feasible, self._share, context.round)
        among = np.zeros(self.table.size, dtype=np.bool_)
        among[[row for name in ask.among if (row := self.table.row_of(name)) is not None]] = True
        return among if context.within is None else among & context.within

    def _ladder(
        self,
        evaluator: ShardEvaluator,
        pod_class: PodClass,
        rungs: Rungs,
        strata: tuple[str, ...],
        keys: Sequence[str],
        *,
        lasts: bool,
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
            volumes=[*volumes],
            choices=self._choices.of(evaluator, pod_class, rungs.rows, volumes, self._share),
            devices=evaluator.devices(pod_class, rungs.rows),
            fills=np.flatnonzero(rungs.fills).tolist() if lasts and rungs.fills is not None else [],
        )

    def _make_room(self, asks: list[ClassAsk]) -> None:
        """Drops the least recently used classes until these asks' classes fit."""
        known = [ask.class_id for ask in asks if ask.class_id in self._classes]
        for class_id in known:
            self._classes.move_to_end(class_id)
        new = len(asks) - len(known)
        if not new:
            return
        wanted = new * self._bytes_per_class()
        while len(self._classes) > len(known):
            held = sum(evaluator.bytes_of_classes() for evaluator in self._evaluators.values())
            if len(self._classes) + new <= MAX_CLASSES and held + wanted <= CLASS_MEMORY:
                break
            _, (evaluator, pod_class) = self._classes.popitem(last=False)
            evaluator.release(pod_class)


def _no_profile(ask: ClassAsk) -> ClassAnswer:
    return ClassAnswer(ask.class_id, failure=error(f"there is no profile {ask.profile!r}"))


def _is_of_one_node(rungs: Rungs, *, lasts: bool) -> bool:
    """`lasts`: the cycle may use a part of the ladder, so all of it counts."""
    rows = rungs.rows
    return len(rows) == 1 or (lasts and bool(len(rows)) and bool((rows == rows[0]).all()))
