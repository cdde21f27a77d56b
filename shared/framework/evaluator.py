"""ShardEvaluator: filters and scores the nodes of one table for classes of pods, incrementally.

Three levels, each recomputed only for rows that changed since the last time: the answers of plugins (Answers), which
nodes are feasible for a class (Feasibility), and the class's keys (Ranking). What only a changed node object can change
is kept apart, so a placement costs the plugins that read pods and little more. Ladders are built on top.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flotilla.plugin import SUCCESS, ClassState, Code, DomainFilter, Ints, Mask, Pod, Status, Topology
from shared.cluster.columns import Rows
from shared.cluster.devices import PlacedDevices
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Planned, TableView
from shared.cluster.volumes import VolumeDecision
from shared.framework.answers import PRE_FILTERED, AllowedNodes, Answers, scores_alike
from shared.framework.feasibility import Feasibility
from shared.framework.judge import Judge
from shared.framework.ladders import Ladders
from shared.framework.lasting import Lasting
from shared.framework.metering import FILTER, PRE_FILTER, PRE_SCORE, SCORE, PluginMeter, names
from shared.framework.pod_class import ClassRows, PodClass
from shared.framework.profile import Framework
from shared.framework.ranking import Ranking, salt
from shared.framework.signatures import about, named
from shared.messages.evaluation import Rejections, Summary, Ties
from shared.model.load import load_of
from shared.plugins.devices.class_devices import PRIVATE_CLAIMS
from shared.plugins.volumes.own_claims import OWN_CLAIMS, numbered


def _all(feasible: Mask) -> Mask | None:
    return None


class Question(NamedTuple):
    """Evaluate a class on this guess of the merged summary, or on what the shard knows by itself.

    `borrowed`: the guess is another class's. `among`: given the feasible rows, those to consider; None for all.
    """

    pod_class: PodClass
    guess: Summary | None = None
    borrowed: bool = False
    among: Callable[[Mask], Mask | None] = _all


class Evaluated(NamedTuple):
    """`summary`: the shard's own. `by_itself`: no guess could be used."""

    summary: Summary
    among: Mask | None
    by_itself: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """For every node: the status that rejected it, or the weighted score of each plugin."""

    rejected: dict[str, Status] = field(default_factory=dict)
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    skipped_scores: list[str] = field(default_factory=list)


class ShardEvaluator:
    def __init__(self, table: NodeTable, framework: Framework, ties: Ties, meter: PluginMeter | None = None) -> None:
        self.table = table
        self._meter = PluginMeter() if meter is None else meter
        self.framework = framework
        self.ties = ties
        self._answers = Answers(table, framework, self._meter)
        self._class_rows = ClassRows(table)
        self.judge = Judge(table, self._answers)
        self._feasibility = Feasibility(table, self._answers, self._class_rows, self.judge)
        self._ranking = Ranking(table, framework, ties, self._answers, self._class_rows, self.judge)
        self.ladders = Ladders(table, self._answers, self._class_rows, self._feasibility, self._ranking)
        self.lasting = Lasting(table, framework, self._answers, self._class_rows, self._feasibility, self._ranking)
        self.tie_bits = self._ranking.tie_bits
        self._capacity = table.capacity
        pre_score = framework.pre_score if framework.score else ()
        self._prepared_by = tuple(p.name for p in framework.pre_filter), tuple(p.name for p in pre_score)

    # Classes

    def prepare(self, class_id: str, pod: Pod, *, private_claims: bool = False, own_volumes: bool = False) -> PodClass:
        """Run what needs no node (PreFilter, PreScore) and allocate room for the answers.

        `private_claims`: each pod of the class has resource claims of its own, which no other pod names. `own_volumes`:
        likewise, of volume claims.
        What plugins may fail in comes first: a class that cannot be prepared takes no slots.
        """
        shown = self.framework.shown(pod)
        state = ClassState(shown, self.table.objects)
        if private_claims:
            state[PRIVATE_CLAIMS] = True
        if own_volumes:
            state[OWN_CLAIMS] = True
        meter = self._meter.of_pod(PRE_FILTER)
        with about(pod):
            pre = self.framework.run_pre_filter(state, meter)
            looked_at = pre.rejection is None
            pre_score, skipped_scores = (
                self.framework.run_pre_score(state, meter) if looked_at else (SUCCESS, frozenset())
            )
        failure = pre.rejection if pre.rejection is not None and pre.rejection.code is Code.ERROR else None
        state[PRE_FILTERED] = pre
        skipped = pre.skipped if pre.nodes is not None else pre.skipped | {AllowedNodes.name}
        filters = [looked_at and plugin.name not in skipped for plugin in self._answers.filters]
        scored = looked_at and pre_score.ok
        scores = [scored and plugin.name not in skipped_scores for plugin in self._answers.scores]
        reads = self.framework.reads_objects(state)
        kind = self.table.kind(load_of(shown))
        self._meter.ran(PRE_FILTER, self._prepared_by[0])
        if looked_at:
            self._meter.ran(PRE_SCORE, self._prepared_by[1])
        self._fit()
        answers = self._answers.acquire(class_id, state, filters, scores, reads)
        return PodClass(
            id=class_id,
            state=state,
            pre=pre,
            failure=failure,
            score_failure=None if pre_score.ok else pre_score,
            skipped_scores=skipped_scores,
            kind=kind,
            salt=salt(self.ties, class_id),
            slot=self._class_rows.acquire(),
            weights=[weight if runs else 0 for weight, runs in zip(self.framework.weights, scores, strict=True)],
            objects={kind: self.table.objects.generation(kind) for kinds in reads.values() for kind in kinds},
            answers=answers,
            filters=names((plugin.name for plugin in self._answers.filters), filters),
            scores=names((plugin.name for plugin in self._answers.scores), scores),
        )

    def is_current(self, pod_class: PodClass) -> bool:
        """Whether the objects that plugins have read for this class are unchanged."""
        return all(self.table.objects.generation(kind) == then for kind, then in pod_class.objects.items())

    def release(self, pod_class: PodClass) -> None:
        self._class_rows.release(pod_class.slot)
        self._answers.release(pod_class.answers)

    def bytes_per_class(self) -> int:
        """How much memory one more class takes at most, if it shares what reads only node objects with others."""
        of_answers = self._answers.bytes_per_row_and_class()
        return (of_answers + self._class_rows.bytes_per_row_and_class()) * self.table.capacity

    def bytes_of_classes(self) -> int:
        """How much memory all classes take that are not released."""
        return (self._answers.bytes_per_row() + self._class_rows.bytes_per_row()) * self.table.capacity

    # Evaluating

    def evaluate(self, questions: Sequence[Question]) -> list[Evaluated]:
        """Bring classes fully up to date: summaries, feasibility, keys."""
        self._meter.begin()
        classes = [question.pod_class for question in questions]
        own = [self._summarize(pod_class) for pod_class in classes]
        guesses = [_usable(question, plugins) for question, plugins in zip(questions, own, strict=True)]
        for guess, pod_class, plugins in zip(guesses, classes, own, strict=True):
            self._use_summaries(pod_class, plugins if guess is None else guess.plugins)
            if guess is not None:
                self._use_feasible_summaries(pod_class, guess.late)
        self._refresh(classes)
        evaluated: list[Evaluated] = []
        for question, guess, plugins in zip(questions, guesses, own, strict=True):
            pod_class = question.pod_class
            pod_class.lasts, pod_class.followed = False, None
            feasible = self._feasibility.rows(pod_class)
            among = question.among(feasible)
            late = self._summarize_feasible(pod_class, feasible if among is None else feasible & among)
            if guess is None:
                self._use_feasible_summaries(pod_class, late)
            summary = self._summary(pod_class, plugins, among, late)
            self._meter.ran(FILTER, pod_class.filters)
            if summary.feasible:
                self._meter.ran(SCORE, pod_class.scores)
            evaluated.append(Evaluated(summary, among, guess is None))
        if self.table.size:
            ranges = [
                each.summary.ranges if guess is None else guess.ranges
                for guess, each in zip(guesses, evaluated, strict=True)
            ]
            self._ranking.rank(classes, ranges)
        return evaluated

    def refresh_by(self, pod_class: PodClass, summaries: dict[str, object]) -> dict[str, object]:
        """Bring the feasibility of a class up to date, by these merged summaries or else the shard's own.

        Returns the shard's own.
        """
        own = self._summarize(pod_class)
        self._use_summaries(pod_class, {**own, **summaries})
        self._refresh([pod_class])
        return own

    def feasible_rows(self, pod_class: PodClass) -> Mask:
        return self._feasibility.rows(pod_class)

    def totals(self, pod_class: PodClass, rows: Rows) -> Ints:
        """The total scores of these rows, for a class that was evaluated; negative where it is not feasible."""
        totals: Ints = self._class_rows.keys[pod_class.slot, rows] >> self.tie_bits
        return totals

    def rejected_with(self, pod_class: PodClass, rows: Rows, planned: Ints) -> Iterator[tuple[Rows, Status]]:
        """Of these rows, by index: what rejects a pod beside `planned` others of its class, grouped by status."""
        view = Planned(planned, [pod_class.kind], np.zeros(len(rows), dtype=np.intp))
        yield from self.judge.statuses(pod_class, self.judge.judge(pod_class, rows, view))

    @cached_property
    def domain_filters(self) -> frozenset[str]:
        """The filters whose rejection other placements may end, as they depend on the state of topology domains."""
        return frozenset(plugin.name for plugin in self._answers.filters if isinstance(plugin, DomainFilter))

    def topologies(self, pod_class: PodClass) -> dict[str, Topology | None]:
        """By plugin, the labels by which other decisions matter to this class; None if they only fill nodes."""
        view, found, name = TableView(self.table), dict[str, Topology | None](), ""
        try:
            for name, plugin in self.framework.summaries.items():
                found[name] = plugin.topology(pod_class.state, view)
        except Exception:
            with named(self.framework.summaries[name], "topology"):
                raise
        return found

    def volumes(self, pod_class: PodClass, rows: Rows) -> list[VolumeDecision]:
        """What going to each of these rows means for the pod's volumes; empty if nothing anywhere."""
        state = pod_class.state
        decided: list[VolumeDecision] = []
        for plugin in self.framework.volumes:
            if plugin.decides(state):
                with named(plugin, "volumes_for"):
                    decided = [plugin.volumes_for(state, TableView(self.table, row)) for row in rows[:, None]]
        return [numbered(each, state.pod) for each in decided] if has_own_volumes(pod_class) else decided

    def volume_choices(self, pod_class: PodClass, row: int, taken: int) -> list[list[str]]:
        """For each of the bindings in this row, the free volumes that the claim would get there, one after the other.

        `taken`: volumes that other pods may have been given before.
        """
        choices: list[list[str]] = []
        for plugin in self.framework.volumes:
            with named(plugin, "choices_for"):
                choices = plugin.choices_for(pod_class.state, TableView(self.table, np.array([row])), taken)
        return choices

    def is_one_at_a_time(self, pod_class: PodClass, strata: tuple[str, ...]) -> bool:
        """Whether a placement may change what other nodes have for the class, so that no second one is proposed."""
        plugin = self.framework.devices
        if plugin is None:
            return False
        if strata and plugin.has_alternatives(pod_class.state):
            return True
        return plugin.one_at_a_time(pod_class.state)

    def devices(self, pod_class: PodClass, rows: Rows) -> list[PlacedDevices | None]:
        """What each of these placements, one after the other, means for the pods' claims; empty if nothing anywhere."""
        plugin = self.framework.devices
        if plugin is None or not plugin.has_claims(pod_class.state):
            return []
        earlier: Counter[int] = Counter()
        placed: list[PlacedDevices | None] = []
        with named(plugin, "devices_for"):
            for i, row in enumerate(rows.tolist()):
                view = TableView(self.table, rows[i : i + 1])
                placed.append(plugin.devices_for(pod_class.state, view, earlier[row]))
                earlier[row] += 1
        return placed

    # Explaining

    def rejected(self, pod_class: PodClass) -> Iterator[tuple[Rows, Status]]:
        """The status of the first filter, in the profile's order, that rejects each node; grouped by status."""
        rows = np.flatnonzero(self.table.valid[: self.table.size])
        for at, status in self.judge.statuses(pod_class, self.judge.judge(pod_class, rows)):
            yield rows[at], status

    def rejections(self, pod_class: PodClass, within: Mask | None = None) -> list[Rejections]:
        """How many nodes each status rejected; `within`: of these rows."""
        rejected = (
            (rows if within is None else rows[within[rows]], status) for rows, status in self.rejected(pod_class)
        )
        return [Rejections(status, len(rows)) for rows, status in rejected if rows.size]

    def explain(self, pod_class: PodClass) -> Explanation:
        """Why each node was rejected, or how it was scored; for a class that was evaluated."""
        names = self.table.names
        rejected = {names[row]: status for rows, status in self.rejected(pod_class) for row in rows.tolist()}
        feasible = np.flatnonzero(self.feasible_rows(pod_class))
        scores: dict[str, dict[str, int]] = {names[row]: {} for row in feasible.tolist()}
        skipped = set(pod_class.skipped_scores)
        for s, plugin in enumerate(self._answers.scores):
            if not pod_class.answers.score_slots[s]:
                continue
            if scores_alike(plugin, pod_class.state):
                skipped.add(plugin.name)
                continue
            weighted = self._ranking.weighted_scores(pod_class, s, feasible)
            for row, score in zip(feasible.tolist(), weighted.tolist(), strict=True):
                scores[names[row]][plugin.name] = score
        if self.framework.score:  # a disabled Score does not change what PreScore says
            skipped |= {each.name for each in self.framework.prepared_only if scores_alike(each, pod_class.state)}
        return Explanation(rejected, scores, sorted(skipped))

    @property
    def filter_names(self) -> list[str]:
        """In the order in which filters reject; the first, which is empty, stands for restrictions by PreFilter."""
        return [plugin.name for plugin in self._answers.filters]

    def passes_as_node(self, pod_class: PodClass, rows: Rows) -> Mask:
        """Which rows pass all filters that read only the node object."""
        passes: Mask = self._class_rows.settled[pod_class.slot, rows]
        return passes

    def best(self, pod_class: PodClass, wanted: int) -> Rows:
        """The rows with the highest total scores, the best first and equals by name; for a class that was evaluated."""
        _, keys = self._class_rows.best(pod_class.slot, wanted)
        if not keys.size:
            return np.empty(0, dtype=np.intp)
        totals = self._class_rows.keys[pod_class.slot, : self.table.size] >> self.tie_bits
        rows = np.flatnonzero(totals >= int(keys.min()) >> self.tie_bits)
        names = self.table.names
        best = heapq.nsmallest(wanted, rows.tolist(), key=lambda row: (-int(totals[row]), names[row]))
        return np.array(best, dtype=np.intp)

    def runner_up(self, pod_class: PodClass, row: int) -> tuple[str, int] | None:
        """Beside this row, which is its best, the best node and its total score, if there is one."""
        found = self._class_rows.runner_up(pod_class.slot, row)
        return None if found is None else (self.table.names[found[0]], found[1] >> self.tie_bits)

    def scores(self, pod_class: PodClass, rows: Rows) -> dict[str, tuple[Ints, Ints, Ints]]:
        """By plugin that scores: raw, normalized and weighted scores of these rows, which are feasible."""
        found: dict[str, tuple[Ints, Ints, Ints]] = {}
        for s, plugin in enumerate(self._answers.scores):
            is_muted = s in pod_class.answers.muted or scores_alike(plugin, pod_class.state)
            if pod_class.answers.score_slots[s] and not is_muted:
                weighted = self._ranking.weighted_scores(pod_class, s, rows)
                raw = self._answers.score_pools[s].values.read(int(pod_class.answers.score_slots[s]), rows)
                found[plugin.name] = raw, weighted // max(1, self.framework.weights[s]), weighted
        return found

    # Inside

    # One try around all plugins in these, because they run for each class of every round.

    def _summarize(self, pod_class: PodClass) -> dict[str, object]:
        view, found, name = TableView(self.table), dict[str, object](), ""
        try:
            for name, plugin in self.framework.summaries.items():
                found[name] = plugin.summarize(pod_class.state, view)
        except Exception:
            with named(self.framework.summaries[name], "summarize"):
                raise
        return found

    def _summarize_feasible(self, pod_class: PodClass, feasible: Mask) -> dict[str, object]:
        view, found, name = TableView(self.table), dict[str, object](), ""
        try:
            for name, plugin in self.framework.summaries.items():
                summary = plugin.summarize_feasible(pod_class.state, view, feasible)
                if summary is not None:
                    found[name] = summary
        except Exception:
            with named(self.framework.summaries[name], "summarize_feasible"):
                raise
        return found

    def _use_summaries(self, pod_class: PodClass, summaries: dict[str, object]) -> None:
        changed = self._answers.use_summaries(pod_class, summaries)
        pod_class.feasibility.forget(changed)
        pod_class.keys.forget(changed)

    def _use_feasible_summaries(self, pod_class: PodClass, summaries: dict[str, object]) -> None:
        """Only scores rest on these; feasibility stays as it is."""
        changed = self._answers.use_feasible_summaries(pod_class, summaries)
        for reads in changed:
            self._answers.update([pod_class], reads)
        pod_class.keys.forget(changed)

    def _refresh(self, classes: Sequence[PodClass]) -> None:
        self._fit()
        if self.table.size:
            self._feasibility.refresh(classes)

    def _summary(
        self, pod_class: PodClass, plugins: dict[str, object], among: Mask | None, late: dict[str, object]
    ) -> Summary:
        if among is None:
            count, ranges = pod_class.feasibility.count, self._feasibility.ranges(pod_class)
        else:
            chosen = np.flatnonzero(self._feasibility.rows(pod_class) & among)
            count, ranges = len(chosen), self._feasibility.ranges_among(pod_class, chosen)
        return Summary(self.table.node_count, count, plugins, ranges, late)

    def _fit(self) -> None:
        """The table may have grown."""
        if self._capacity != self.table.capacity:
            self._capacity = self.table.capacity
            self._class_rows.fit(self._capacity)
            self._answers.fit(self._capacity)


def has_own_volumes(pod_class: PodClass) -> bool:
    """Whether each pod of the class has volume claims of its own."""
    return pod_class.state.get(OWN_CLAIMS) is not None


def _usable(question: Question, own: dict[str, object]) -> Summary | None:
    """The guess, unless its sender runs other plugins, or it is of a class that asks other things."""
    guess = question.guess
    if guess is None or guess.plugins.keys() != own.keys():
        return None
    return guess if not question.borrowed or (_alike(guess.plugins, own) and not guess.late) else None


def _alike(one: object, other: object) -> bool:
    """Whether two summaries have the same keys and types."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and not isinstance(one, list)
