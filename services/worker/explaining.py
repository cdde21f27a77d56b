"""A worker's part in explaining one pod: how its nodes are judged, in a form that is small however many there are.

The pod gets a class of its own for the time of one answer, so that nothing stays that rounds would have to look at.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from flotilla.plugin import Ints, Mask
from flotilla.results import Status, error
from services.worker.causes import Judged, causes, shortages
from services.worker.preempting import findings
from services.worker.what_if import cluster_changed
from shared.cluster.columns import Rows
from shared.cluster.disruption_budgets import BudgetCount
from shared.cluster.eviction_units import group_of
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.failures import Failures
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Summary
from shared.messages.explaining import (
    BEST_NODES,
    MAX_EXAMPLES,
    MAX_GROUPS,
    MAX_NAMED,
    MAX_OFFERED,
    Blocked,
    Cause,
    ExplainNodes,
    NodeFindings,
    NodeModel,
    NodeVerdict,
    PluginScore,
    Rejected,
    ScoredNode,
)
from shared.messages.preemption import Candidate, PreemptAsk
from shared.model.load import load_of
from shared.model.wellknown import BETA_INSTANCE_TYPE, INSTANCE_TYPE
from shared.plugins.preemption import best_of

CLASS_ID = "explained"
"""No other class has this name, and this one is gone when the answer is."""
MAX_ONE_BY_ONE = 512
"""Nodes that plugins which look at one node at a time are asked about for an explanation."""
NOMINATED = "room for nominated pods"
"""In place of a plugin: the node would have room but for pods of at least this priority that are nominated to it."""

Explained = tuple[NodeFindings, Summary, bool]
"""With the shard's summary, and whether no guess could be used."""


def explain(table: NodeTable, evaluator: ShardEvaluator | None, ask: ExplainNodes, failures: Failures) -> Explained:
    """Judges the ask's pod on the table, with the supposed changes in place meanwhile.

    Whatever is wrong with pod, changes or plugins is said in the answer.
    """
    if evaluator is None:
        return NodeFindings(failure=error(f"there is no profile {ask.profile!r}")), Summary(), False
    try:
        with cluster_changed(table, ask.supposed):
            return _explain(evaluator, ask)
    except Exception as cause:
        return NodeFindings(failure=failures.status(cause)), Summary(), False


def _explain(evaluator: ShardEvaluator, ask: ExplainNodes) -> Explained:
    pod_class = evaluator.prepare(CLASS_ID, ask.pod)
    try:
        return _Explainer(evaluator, pod_class, ask).explain()
    finally:
        evaluator.release(pod_class)


class _Explainer:
    def __init__(self, evaluator: ShardEvaluator, pod_class: PodClass, ask: ExplainNodes) -> None:
        self._evaluator = evaluator
        self._table = evaluator.table
        self._class = pod_class
        self._ask = ask

    def explain(self) -> Explained:
        pre, nodes = self._class.pre, self._table.node_count
        if self._class.failure is not None:
            return NodeFindings(nodes, failure=self._class.failure), Summary(nodes), False
        if pre.rejection is not None:
            by = pre.restricted_by
            found = NodeFindings(nodes, pre_filter=pre.rejection, restricted_by=by)
            return found, Summary(nodes), False
        (evaluated,) = self._evaluator.evaluate([Question(self._class, self._ask.guess, self._ask.borrowed)])
        summary = evaluated.summary
        found = self._details() if self._ask.details else NodeFindings(nodes, summary.feasible)
        return found, summary, evaluated.by_itself

    def _details(self) -> NodeFindings:
        evaluator, table, pod_class = self._evaluator, self._table, self._class
        rows = np.flatnonzero(table.valid[: table.size])
        judged = evaluator.judge.judge(pod_class, rows)
        verdicts = evaluator.judge.of_each_filter(pod_class, rows, MAX_ONE_BY_ONE)
        blocking = verdicts > 0
        reserved = ~judged.fits & ~blocking.any(axis=0)
        alone = self._blocked_by_alone(blocking, judged.by, reserved)
        fit = self._filter("NodeResourcesFit")
        short = rows[alone == fit] if fit is not None else rows[:0]
        found = self._preemption() if not judged.fits.any() else ("", ())
        return NodeFindings(
            nodes=len(rows),
            feasible=int(np.count_nonzero(judged.fits)),
            restricted_by=pod_class.pre.restricted_by,
            rejected=tuple(self._rejected()),
            blocked=tuple(self._blocked(rows, blocking, reserved)),
            causes=tuple(self._causes(rows, verdicts, judged.by)),
            shortages=tuple(shortages(table, evaluator.judge, pod_class, short)),
            best=tuple(self._best()),
            skipped_scores=tuple(sorted(pod_class.skipped_scores)),
            verdicts=tuple(self._verdicts(rows, verdicts, judged.by, judged.fits)),
            models=tuple(self._models(rows)),
            ineligible=found[0],
            candidates=found[1],
            offers=tuple(self._offers()) if self._ask.offers else (),
        )

    # Rejections

    def _filter(self, name: str) -> int | None:
        names = self._evaluator.filter_names
        return names.index(name) if name in names else None

    def _rejected(self) -> Iterator[Rejected]:
        found = sorted(self._evaluator.rejected(self._class), key=lambda each: -len(each[0]))
        for rows, status in found[:MAX_GROUPS]:
            names = self._names(rows, MAX_NAMED) if self._ask.everywhere else ()
            yield Rejected(status, len(rows), self._names(rows), names)

    def _blocked_by_alone(self, blocking: Mask, by: Rows, reserved: Mask) -> Rows:
        """The number of the only filter that rejects each row; -1 where none or several do."""
        alone = np.where(blocking.sum(axis=0) == 1, blocking.argmax(axis=0), -1)
        return np.where(reserved, by, alone)

    def _blocked(self, rows: Rows, blocking: Mask, reserved: Mask) -> Iterator[Blocked]:
        names = [name or "/".join(self._class.pre.restricted_by) for name in self._evaluator.filter_names]
        masks = np.vstack([blocking, reserved])
        first, which, counts = _distinct(masks)
        patterns = masks[:, first]
        order = sorted(range(len(counts)), key=lambda i: (int(patterns[:, i].sum()), -int(counts[i])))
        for i in [i for i in order if patterns[:, i].any()][:MAX_GROUPS]:
            blocks = [name for name, blocks in zip([*names, NOMINATED], patterns[:, i], strict=True) if blocks]
            yield Blocked(tuple(dict.fromkeys(blocks)), int(counts[i]), self._names(rows[which == i]))

    def _causes(self, rows: Rows, verdicts: Ints, by: Rows) -> Iterator[Cause]:
        """Rows that fewest filters reject come first: what is in the way there is worth most."""
        for f, name in enumerate(self._evaluator.filter_names):
            at = np.flatnonzero(verdicts[f] > 0)
            at = at[np.argsort(np.count_nonzero(verdicts[:, at], axis=0), kind="stable")]
            if at.size:
                statuses = {n: self._evaluator.judge.status(f, n) for n in np.unique(verdicts[f, at]).tolist()}
                yield from causes(self._judged(name, rows[at], by[at] == f, statuses, verdicts[f, at]))

    def _judged(self, name: str, rows: Rows, first: Mask, statuses: dict[int, Status], verdicts: Ints) -> Judged:
        return Judged(name, self._table, self._evaluator.judge, self._class, rows, first, statuses, verdicts)

    # Nodes by name, and the best ones

    def _verdicts(self, rows: Rows, verdicts: Ints, by: Rows, fits: Mask) -> Iterator[NodeVerdict]:
        for node in self._ask.nodes:
            at = np.flatnonzero(rows == self._table.row_of(node)) if node in self._table else rows[:0]
            if not at.size:
                continue
            i = int(at[0])
            if fits[i]:
                (score,) = self._scored(rows[at])
                yield NodeVerdict(node, score=score)
                continue
            rejecting = sorted(np.flatnonzero(verdicts[:, i] > 0).tolist(), key=lambda f: f != by[i])
            statuses = tuple(self._evaluator.judge.status(f, int(verdicts[f, i])) for f in rejecting)
            yield NodeVerdict(node, statuses, causes=tuple(self._causes(rows[at], verdicts[:, at], by[at])))

    def _best(self) -> Sequence[ScoredNode]:
        rows = self._evaluator.best(self._class, BEST_NODES)
        return self._scored(rows) if rows.size else []

    def _offers(self) -> Iterator[tuple[str, int]]:
        """None if there are too many."""
        rungs = self._evaluator.ladders.offers(self._class, None)
        if len(rungs.rows) <= MAX_OFFERED:
            totals = (rungs.keys >> self._evaluator.tie_bits).tolist()
            yield from zip(self._names(rungs.rows, len(rungs.rows)), totals, strict=True)

    def _scored(self, rows: Rows) -> list[ScoredNode]:
        by_plugin = self._evaluator.scores(self._class, rows)
        scored: list[ScoredNode] = []
        for i, node in enumerate(self._names(rows, len(rows))):
            plugins = {name: PluginScore(*(int(each[i]) for each in parts)) for name, parts in by_plugin.items()}
            total = sum(score.weighted for score in plugins.values())
            scored.append(ScoredNode(node, total, plugins))
        return scored

    def _names(self, rows: Rows, most: int = MAX_EXAMPLES) -> tuple[str, ...]:
        return tuple(self._table.names[row] for row in rows[:most].tolist())

    def _models(self, rows: Rows) -> Iterator[NodeModel]:
        """Nodes of each size among those that the filters of node objects let the pod on."""
        table = self._table
        open_to = rows[self._evaluator.passes_as_node(self._class, rows)]
        if not open_to.size:
            return
        _, which, counts = _distinct(table.allocatable[:, open_to])
        for i in np.argsort(-counts, kind="stable")[:MAX_GROUPS].tolist():
            row = min(open_to[which == i].tolist(), key=table.names.__getitem__)
            node = table.node_at(row)
            labels = node.metadata.labels
            size = table.allocatable[:, row].tolist()
            amounts = {name: size[n] for n, name in enumerate(table.resources.items) if size[n]}
            instance_type = labels.get(INSTANCE_TYPE) or labels.get(BETA_INSTANCE_TYPE) or ""
            yield NodeModel(node.name, int(counts[i]), amounts, instance_type)

    # Preemption

    def _preemption(self) -> tuple[str, tuple[Candidate, ...]]:
        """Why the pod may not preempt, and the shard's best node to preempt on."""
        ask, guess = self._ask, self._ask.guess
        if guess is not None and guess.feasible:
            return "", ()
        summaries, group = dict(self._class.state.summaries), group_of(load_of(ask.pod))
        asked = PreemptAsk(CLASS_ID, ask.profile, ask.pod, summaries, spares=[group] if group else [])
        found = findings(self._evaluator, self._class, asked, 0)
        return found.ineligible, tuple(self._with_budgets(each) for each in best_of(found.candidates)[:1])

    def _with_budgets(self, candidate: Candidate) -> Candidate:
        """With the budgets that these evictions alone violate: the dry run counts pods that stay as well."""
        count = BudgetCount(self._table.objects)
        violated: set[str] = set()
        for victim in candidate.victims:
            if not victim.terminating:
                namespace, _, name = victim.key.partition("/")
                budgets = count.take(self._table.load_of(victim.uid), name)
                violated.update(f"{namespace}/{budget}" for budget in budgets)
        return replace(candidate, violates=tuple(sorted(violated)))


def _distinct(columns: Ints | Mask) -> tuple[Rows, Rows, Rows]:
    """Of the distinct columns: the first of each, which one each column is, and how many there are of each.

    By hashes, because sorting whole columns takes a hundred times as long.
    """
    factors = np.random.default_rng(len(columns)).integers(1, 1 << 62, len(columns), dtype=np.int64) | 1
    hashes = (columns.astype(np.int64) * factors[:, None]).sum(axis=0)
    _, first, which, counts = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    return first, which.ravel(), counts
