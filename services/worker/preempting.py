"""A worker's part in finding out who could make way for pods that no node has room for."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from flotilla.results import Code, PostFilterResult, Status
from shared.cluster.columns import Rows
from shared.framework.dry_run import DryRun, Tried
from shared.framework.evaluator import ShardEvaluator
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Rejections, Summary
from shared.messages.preemption import Preempt, PreemptAsk, ShardFindings
from shared.plugins.preemption import DefaultPreemption, is_final


class Inbox:
    """The newest search that was asked for, until the worker has seen enough to answer."""

    def __init__(self) -> None:
        self._newest = (0, 0, 0)
        self._waiting: Preempt | None = None

    def take(self, preempt: Preempt) -> bool:
        """False if it is older than another that came."""
        number = (preempt.epoch, preempt.search, preempt.ask)
        if number < self._newest:
            return False
        self._newest, self._waiting = number, preempt
        return True

    @property
    def waits_for(self) -> int | None:
        """The sequence number to be seen before the answer."""
        return None if self._waiting is None else self._waiting.min_seq

    def ready(self, seq: int) -> Preempt | None:
        """What can be answered now; once."""
        waiting = self._waiting
        if waiting is None or waiting.min_seq > seq:
            return None
        self._waiting = None
        return waiting


def findings(evaluator: ShardEvaluator, pod_class: PodClass, ask: PreemptAsk, search: int) -> ShardFindings:
    """`search`: where the search begins among the nodes that may help, so that not always the same ones are tried."""
    return _Finder(evaluator, pod_class, ask).find(search)


@dataclass(slots=True)
class _Found:
    others: dict[str, PostFilterResult] = field(default_factory=dict)
    ineligible: str = ""
    tried: Tried = field(default_factory=Tried)


class _Finder:
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
        self._potential: Rows = np.sort(np.concatenate(may_help)) if may_help else np.empty(0, dtype=np.intp)

    def find(self, search: int) -> ShardFindings:
        found = self._ask_plugins(search)
        return ShardFindings(
            self._class.id,
            summary=self._summary,
            others=found.others,
            ineligible=found.ineligible,
            potential=len(self._potential),
            candidates=found.tried.candidates,
            rejections=[Rejections(status, nodes) for status, nodes in found.tried.rejected.items()],
            faults=found.tried.faults,
        )

    def _refreshed(self) -> dict[str, object]:
        """Judges by the merged summaries, or by what this shard knows where there are none yet. Tells the latter."""
        rejection = self._class.pre.rejection
        if rejection is not None and rejection.code is not Code.UNSCHEDULABLE:
            return {}
        return self._evaluator.refresh_by(self._class, self._ask.summaries)

    def _judged(self) -> Iterator[tuple[Rows, Status]]:
        """Why each node is not feasible."""
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

    def _ask_plugins(self, search: int) -> _Found:
        found = _Found()
        for plugin in self._evaluator.framework.post_filter:
            if isinstance(plugin, DefaultPreemption):
                found.ineligible = plugin.ineligible(self._class.state.pod, self._table, self._status_of_nominated())
                if not found.ineligible:
                    found.tried = self._try(plugin, search)
            else:
                result = plugin.post_filter(self._class.state, self._by_name())
                found.others[plugin.name] = result
                if is_final(result.status):
                    break
        return found

    def _try(self, plugin: DefaultPreemption, search: int) -> Tried:
        """Looks for this shard's share of the candidates."""
        rows = self._potential
        if not rows.size:
            return Tried()
        everywhere = max(self._ask.potential, len(rows))
        wanted = math.ceil(plugin.candidates_wanted(everywhere) * len(rows) / everywhere)
        dry_run = DryRun(self._table, self._judge, self._class)
        return dry_run.run(np.roll(rows, -(search * wanted % len(rows))), wanted)

    def _status_of_nominated(self) -> Status | None:
        row = self._table.row_of(self._class.state.pod.status.nominated_node_name)
        return next((status for rows, status in self._statuses if row in rows), None)

    def _by_name(self) -> dict[str, Status]:
        names = self._table.names
        return {names[row]: status for rows, status in self._statuses for row in rows.tolist()}
