"""Judge: which rows a class of pods may go to, as they are or with hypothetical pods, and why not to the others.

This is the one pipeline behind ladders, preemption, nominated pods, closed domains and explanations. Cached answers are
used where nothing hypothetical can change them; nothing is written to the table.

A node is judged twice for a pod if pods of at least its priority are nominated there: with them and without. The pod
must fit both times, and the first time that it does not gives the reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import Code, DomainFilter, Ints, LazyFilter, Mask, Reads, Status
from shared.cluster.columns import NOTHING_SEEN, Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.nominations import NO_ROW, Nominations
from shared.cluster.view import Changes, Hypothesis, TableView, together
from shared.framework.answers import UNKNOWN, AllowedNodes, Answers, filtered, of_pairs
from shared.framework.pod_class import PodClass

ADMITTED = -1
"""In place of the filter that rejects a row, if none does."""


@dataclass(frozen=True, slots=True)
class Judged:
    """For each row: the first filter, in the profile's order, that rejects it, and the number of its status."""

    by: NDArray[np.intp]
    verdicts: Ints

    @property
    def fits(self) -> Mask:
        fits: Mask = self.by == ADMITTED
        return fits

    def take(self, at: Rows) -> "Judged":
        return Judged(self.by[at], self.verdicts[at])


class Judge:
    """For classes that are refreshed, by the summaries that they use."""

    def __init__(self, table: NodeTable, answers: Answers) -> None:
        self._table = table
        self._answers = answers
        self._all = list(range(len(answers.filters)))
        self._of_pods = answers.filters_by[Reads.PODS]
        self._nominated_at = NOTHING_SEEN
        """The version of the nominations that were sorted."""
        self._nominated = _Nominated(table.nominations)

    def judge(self, pod_class: PodClass, rows: Rows, hypothesis: Hypothesis | None = None) -> Judged:
        """By all filters, and with respect to nominated pods. `hypothesis` is about these rows in this order."""
        view = TableView(self._table, rows, hypothesis)
        judged = self._judge([pod_class], _first(rows), view, self._all)
        self._reserve(pod_class, view, np.arange(len(rows), dtype=np.intp), judged)
        return judged

    def judge_nominated(self, pod_class: PodClass, rows: Rows, uids: Sequence[str]) -> Judged:
        """The i-th row for the pod with the i-th uid: it is of this class, but for its nomination to that row."""
        view = TableView(self._table, rows)
        judged = self._judge([pod_class], _first(rows), view, self._all)
        nominated = self._nominations()
        itself = nominated.entries(uids)
        others = nominated.others(pod_class.state.pod.priority, rows, itself)
        if others is not None:
            _reject(judged, np.arange(len(rows), dtype=np.intp), self._with(pod_class, view, others))
        return judged

    def feasible_pairs(
        self,
        classes: Sequence[PodClass],
        which: Rows,
        view: TableView,
        open_domains: Sequence[bool],
    ) -> Mask:
        """Whether the i-th node, which passes all filters of node objects, is feasible for class `which[i]`.

        `open_domains`: the classes that are not rejected for the present state of a topology domain.
        """
        judged = self._judge(classes, which, view, self._of_pods, open_domains)
        if self._table.nominations:
            for c in np.unique(which).tolist():
                self._reserve(classes[c], view, np.flatnonzero((which == c) & judged.fits), judged)
        return judged.fits

    def rows_in_closed_domains(self, pod_class: PodClass, settled_only: Rows) -> Rows:
        """Those of the rows that only the present state of their topology domain rejects.

        `settled_only`: rows that are not feasible though they pass all filters of node objects. A plugin that looks at
        one node at a time may fail on a node that it need not be asked about yet; then it counts only as far as it was
        asked.
        """
        slots = pod_class.answers.filter_slots
        if not any(isinstance(self._answers.filters[f], DomainFilter) and slots[f] for f in self._of_pods):
            return np.empty(0, dtype=np.intp)
        rows = settled_only[~np.isin(settled_only, self._table.nominations.rows)]
        view = TableView(self._table, rows)
        filters = [*self._of_pods, *(f for f in self._answers.one_by_one if f not in self._of_pods)]
        try:
            judged = self._judge([pod_class], _first(rows), view, filters, [True])
        except Exception:
            judged = self._judge([pod_class], _first(rows), view, filters, [True], ask_one_by_one=False)
        return rows[judged.fits]

    def passes_one_by_one(self, pod_class: PodClass, rows: Rows) -> Mask:
        """Which rows, feasible by all other filters, pass the plugins that look at one node at a time."""
        view = TableView(self._table, rows)
        return self._judge([pod_class], _first(rows), view, self._answers.one_by_one).fits

    def reserve(self, pod_class: PodClass, rows: Rows | None, feasible: Mask) -> None:
        """Take rows (all when None) that nominated pods reserve out of the feasible ones."""
        reserved = self._reserved(pod_class)
        at = reserved if rows is None else np.flatnonzero(np.isin(rows, reserved))
        at = at[feasible[at]]
        if at.size:
            feasible[at] = self._with_nominated(
                pod_class, TableView(self._table, at if rows is None else rows[at])
            ).fits

    def of_each_filter(self, pod_class: PodClass, rows: Rows, most_one_by_one: int) -> Ints:
        """What every filter says of each row, whether or not another one rejects it: filters x rows, 0 for a pass.

        Plugins that look at one node at a time are asked only about rows that at most one other filter rejects, and
        about `most_one_by_one` of them; about the others, they are supposed to agree.
        """
        verdicts = np.zeros((len(self._all), len(rows)), dtype=np.int64)
        columnar = [f for f in self._all if f not in self._answers.one_by_one]
        for f in (*columnar, *self._answers.one_by_one):
            if not self._runs(pod_class, f):
                continue
            at = np.arange(len(rows), dtype=np.intp)
            if f in self._answers.one_by_one:
                at = np.flatnonzero(np.count_nonzero(verdicts, axis=0) < 2)[:most_one_by_one]
            if at.size:
                part = rows[at]
                view = TableView(self._table, part)
                verdicts[f, at] = self._verdicts(f, [pod_class], [True], _first(part), view, (), ask=True)
        return verdicts

    def status(self, f: int, verdict: int) -> Status:
        """What the f-th filter means by this number."""
        return self._answers.filter_pools[f].statuses[verdict].by(self._answers.filters[f].name)

    def reserved_amounts(self, pod_class: PodClass, rows: Rows) -> Ints:
        """Resources x rows: what pods of at least this priority that are nominated to these rows will take there."""
        changes = self._others(pod_class, rows) if self._table.nominations else None
        return TableView(self._table, rows, changes).used - self._table.used[:, rows]

    def statuses(self, pod_class: PodClass, judged: Judged) -> Iterator[tuple[Rows, Status]]:
        """Each status that rejected rows, with the indices of these rows."""
        for f in np.unique(judged.by[~judged.fits]).tolist():
            at, statuses = np.flatnonzero(judged.by == f), self._answers.filter_pools[f].statuses
            found = [(statuses[number], number) for number in np.unique(judged.verdicts[at]).tolist()]
            for status, number in sorted(found, key=lambda each: (each[0].reasons, each[0].code)):
                yield at[judged.verdicts[at] == number], status.by(self._answers.filters[f].name)

    # The pipeline

    def _judge(
        self,
        classes: Sequence[PodClass],
        which: Rows,
        view: TableView,
        filters: Sequence[int],
        open_domains: Sequence[bool] = (),
        *,
        ask_one_by_one: bool = True,
    ) -> Judged:
        judged = Judged(np.full(len(view), ADMITTED, dtype=np.intp), np.zeros(len(view), dtype=np.int64))
        at, rejected = np.arange(len(view), dtype=np.intp), np.zeros(len(view), dtype=np.bool_)
        for f in filters:
            runs = [self._runs(pod_class, f) for pod_class in classes]
            if not at.size or not any(runs):
                continue
            one_by_one = isinstance(self._answers.filters[f], LazyFilter)
            left = len(at) - np.count_nonzero(rejected)
            if left < len(at) and (one_by_one or 2 * left < len(at)):
                kept = np.flatnonzero(~rejected)
                at, view, rejected = at[kept], view.take(kept), rejected[kept]
            ask = ask_one_by_one or not one_by_one
            verdicts = self._verdicts(f, classes, runs, which[at], view, open_domains, ask=ask)
            fails = verdicts != 0
            if fails.any():
                fails &= ~rejected
                judged.by[at[fails]], judged.verdicts[at[fails]] = f, verdicts[fails]
                rejected |= fails
        return judged

    def _runs(self, pod_class: PodClass, f: int) -> bool:
        """A class that PreFilter rejected, though not for good, has no slots; the filters that would have run do."""
        if pod_class.answers.filter_slots[f]:
            return True
        rejection, plugin = pod_class.pre.rejection, self._answers.filters[f]
        if rejection is None or rejection.code is not Code.UNSCHEDULABLE or isinstance(plugin, AllowedNodes):
            return False
        return plugin.name not in pod_class.pre.skipped

    def _verdicts(
        self,
        f: int,
        classes: Sequence[PodClass],
        runs: list[bool],
        which: Rows,
        view: TableView,
        open_domains: Sequence[bool],
        *,
        ask: bool,
    ) -> Ints:
        plugin, pool = self._answers.filters[f], self._answers.filter_pools[f]
        opens = isinstance(plugin, DomainFilter) and any(open_domains)
        if len(classes) == 1:
            slot = int(classes[0].answers.filter_slots[f])
            if slot and not opens and (view.hypothesis is None or plugin.filter_reads is Reads.NODE):
                return self._cached(f, slot, view.rows, ask=ask)
            state = pool.state(slot) if slot else classes[0].state
            return filtered(plugin, pool.statuses, [state], which, view, open_domains=opens)
        states = [pod_class.state for pod_class in classes]
        if opens:
            answers = np.zeros(len(which), dtype=np.int64)
            for is_open in {False, True}:
                at = np.flatnonzero(np.array(runs)[which] & (np.array(open_domains)[which] == is_open))
                if at.size:
                    part = view.take(at)
                    answers[at] = filtered(plugin, pool.statuses, states, which[at], part, open_domains=is_open)
            return answers
        return of_pairs(lambda of, some: filtered(plugin, pool.statuses, states, of, some), runs, which, view)

    def _cached(self, f: int, slot: int, rows: Rows, *, ask: bool) -> Ints:
        plugin, pool = self._answers.filters[f], self._answers.filter_pools[f]
        known = pool.values.read(slot, rows)
        unknown = np.flatnonzero(known == UNKNOWN)
        if unknown.size and ask:
            state, view = pool.state(slot), TableView(self._table, rows[unknown])
            known[unknown] = filtered(plugin, pool.statuses, [state], None, view)[0]
            pool.values.write(slot, rows[unknown], known[unknown])
        return known

    # Nominated pods

    def _reserve(self, pod_class: PodClass, view: TableView, at: Rows, judged: Judged) -> None:
        """Judge the nodes at these indices again, with nominated pods."""
        if not self._table.nominations:
            return
        at = at[np.isin(view.rows[at], self._reserved(pod_class))]
        if at.size:
            _reject(judged, at, self._with_nominated(pod_class, view.take(at)))

    def _with_nominated(self, pod_class: PodClass, view: TableView) -> Judged:
        return self._with(pod_class, view, self._others(pod_class, view.rows))

    def _with(self, pod_class: PodClass, view: TableView, nominated: Changes | None) -> Judged:
        hypothesis = TableView(self._table, view.rows, together(view.hypothesis, nominated))
        return self._judge([pod_class], _first(view.rows), hypothesis, self._all)

    def _others(self, pod_class: PodClass, rows: Rows) -> Changes | None:
        """The pods nominated to these rows that the class must make room for.

        A nominated pod has a class of its own; of any other class, the pod that stands for it is not the one judged.
        """
        nominated, pod = self._nominations(), pod_class.state.pod
        itself = nominated.entries([pod.uid if pod.status.nominated_node_name else ""])
        return nominated.others(pod.priority, rows, np.broadcast_to(itself, len(rows)))

    def _reserved(self, pod_class: PodClass) -> Rows:
        """The rows with nominated pods of at least the priority of the class; ascending."""
        return self._nominations().rows(pod_class.state.pod.priority)

    def _nominations(self) -> "_Nominated":
        nominations = self._table.nominations
        if self._nominated_at != nominations.version:
            self._nominated_at, self._nominated = nominations.version, _Nominated(nominations)
        return self._nominated


def _reject(judged: Judged, at: Rows, first: Judged) -> None:
    """The rows at these indices were judged before: the first rejection counts."""
    failed = np.flatnonzero(~first.fits)
    judged.by[at[failed]], judged.verdicts[at[failed]] = first.by[failed], first.verdicts[failed]


def _first(rows: Rows) -> Rows:
    return np.zeros(len(rows), dtype=np.intp)


class _Nominated:
    """Nominated pods in the order of their rows."""

    def __init__(self, nominations: Nominations) -> None:
        order = np.argsort(nominations.rows, kind="stable")
        order = order[np.searchsorted(nominations.rows[order], NO_ROW, side="right") :]
        self._rows: Rows = nominations.rows[order]
        self._which: Rows = nominations.which[order]
        self._priority = nominations.priorities[order]
        self._kinds = nominations.kinds
        self._entry_of = nominations.entry_of
        self._places = np.full(len(nominations), -1, dtype=np.intp)
        self._places[order] = np.arange(len(order))

    def rows(self, priority: int) -> Rows:
        rows: Rows = np.unique(self._rows[self._priority >= priority])
        return rows

    def entries(self, uids: Sequence[str]) -> Rows:
        """The place of each pod among the nominated ones; -1 of one that is not."""
        entries = map(self._entry_of, uids)
        return np.array([-1 if entry is None else self._places[entry] for entry in entries], dtype=np.intp)

    def others(self, priority: int, rows: Rows, itself: Rows) -> Changes | None:
        """The pods nominated to these rows, of at least this priority; for each row, one entry does not count."""
        begins = np.searchsorted(self._rows, rows, side="left")
        counts = np.searchsorted(self._rows, rows, side="right") - begins
        at = np.repeat(np.arange(len(rows), dtype=np.intp), counts)
        entries = np.arange(len(at), dtype=np.intp) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        counted = (self._priority[entries] >= priority) & (entries != itself[at])
        if not counted.any():
            return None
        used, which = np.unique(self._which[entries[counted]], return_inverse=True)
        return Changes(
            nodes=len(rows),
            at=at[counted],
            which=which.astype(np.intp),
            count=np.ones(len(which), dtype=np.int64),
            kinds=[self._kinds[number] for number in used.tolist()],
        )
