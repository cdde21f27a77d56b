"""A worker's part in a preemption search: the candidates among its nodes for a class without a feasible node."""

import math
from collections.abc import Iterator

import numpy as np

from flotilla.plugin import PostFilterPlugin
from flotilla.results import Code, PostFilterResult, Status
from shared.cluster.columns import Rows
from shared.framework.dry_run import DryRun, Tried
from shared.framework.evaluator import ShardEvaluator
from shared.framework.pod_class import PodClass
from shared.framework.signatures import named
from shared.messages.evaluation import Rejections, Summary
from shared.messages.preemption import PreemptAsk, ShardFindings
from shared.plugins.preemption import DefaultPreemption, is_final


def findings(evaluator: ShardEvaluator, pod_class: PodClass, ask: PreemptAsk, search: int) -> ShardFindings:
    """Runs the PostFilter plugins. `search`: its number; each search begins the dry run at another node."""
    return Finder(evaluator, pod_class, ask).find(search)


class Finder:
    """Why nodes are not feasible, and which of them evictions may change."""

    def __init__(self, evaluator: ShardEvaluator, pod_class: PodClass, ask: PreemptAsk) -> None:
        self._table = evaluator.table
        self._evaluator = evaluator
        self._class = pod_class
        self._ask = ask
        self._judge = evaluator.judge
        own = self._refreshed()
        self._statuses = list(self._judged())
        feasible = 0 if ask.refused is not None else self._table.node_count - sum(len(r) for r, _ in self._statuses)
        self._summary = Summary(nodes=self._table.node_count, feasible=feasible, plugins=own)
        may_help = [rows for rows, status in self._statuses if status.code is Code.UNSCHEDULABLE]
        self._potential: Rows = self._table.in_turn(np.concatenate(may_help or [np.empty(0, np.intp)]))

    def find(self, search: int) -> ShardFindings:
        others: dict[str, PostFilterResult] = {}
        ineligible, tried = "", Tried()
        for plugin in self._evaluator.framework.post_filter:
            if isinstance(plugin, DefaultPreemption):
                ineligible = plugin.ineligible(self._class.state.pod, self._table, self._status_of_nominated())
                if not ineligible:
                    tried = self._try(plugin, search)
            else:
                others[plugin.name] = result = self._result_of(plugin)
                if is_final(result.status):
                    break
        return ShardFindings(
            self._class.id,
            summary=self._summary,
            others=others,
            ineligible=ineligible,
            potential=len(self._potential),
            candidates=tried.candidates,
            rejections=[Rejections(status, nodes) for status, nodes in tried.rejected.items()],
            faults=tried.faults,
            spared=tried.spared,
        )

    def _result_of(self, plugin: PostFilterPlugin) -> PostFilterResult:
        with named(plugin, "post_filter"):
            return plugin.post_filter(self._class.state, self._by_name())

    def results_of_others(self) -> dict[str, PostFilterResult]:
        """Of all PostFilter plugins but DefaultPreemption."""
        plugins = self._evaluator.framework.post_filter
        return {each.name: self._result_of(each) for each in plugins if not isinstance(each, DefaultPreemption)}

    @property
    def summary(self) -> Summary:
        return self._summary

    @property
    def worth_trying(self) -> Rows:
        """The feasible rows, and those that evictions may make feasible."""
        hopeless = [rows for rows, status in self._statuses if status.code is not Code.UNSCHEDULABLE]
        rows = np.flatnonzero(self._table.valid[: self._table.size])
        return np.setdiff1d(rows, np.concatenate(hopeless)) if hopeless else rows

    def _refreshed(self) -> dict[str, object]:
        """Uses the merged summaries, or this shard's own where there are none yet. Returns the latter."""
        rejection = self._class.pre.rejection
        if rejection is not None and rejection.code is not Code.UNSCHEDULABLE:
            return {}
        return self._evaluator.refresh_by(self._class, self._ask.summaries)

    def _judged(self) -> Iterator[tuple[Rows, Status]]:
        """Yields rows of nodes that are not feasible, and why."""
        rows = np.flatnonzero(self._table.valid[: self._table.size])
        rejection = self._class.pre.rejection
        if rejection is not None:
            yield rows, rejection
            return
        judged = self._judge.judge(self._class, rows)
        for at, status in self._judge.statuses(self._class, judged):
            yield rows[at], status
        for node, status in (self._ask.refused or {}).items():
            row = self._table.row_of(node)
            if row is not None and judged.fits[rows == row].any():
                yield np.array([row], dtype=np.intp), status

    def _try(self, plugin: DefaultPreemption, search: int) -> Tried:
        """Searches this shard's share of the candidates."""
        rows = self._potential
        if not rows.size:
            return Tried()
        everywhere = max(self._ask.potential, len(rows))
        wanted = math.ceil(plugin.candidates_wanted(everywhere) * len(rows) / everywhere)
        dry_run = DryRun(self._table, self._judge, self._class, self._ask.spares)
        return dry_run.run(np.roll(rows, -(search * wanted % len(rows))), wanted)

    def _status_of_nominated(self) -> Status | None:
        row = self._table.row_of(self._class.state.pod.status.nominated_node_name)
        return next((status for rows, status in self._statuses if row in rows), None)

    def _by_name(self) -> dict[str, Status]:
        names = self._table.names
        return {names[row]: status for rows, status in self._statuses for row in rows.tolist()}
