"""A worker's part in the search for victims of a gang: ladders of its nodes, and who is gone already.

Victims chosen so far count as gone, and members with room as placed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat

import numpy as np
from msgspec.structs import replace

from services.worker.preempting import Finder
from services.worker.what_if import pods_evicted
from shared.cluster.columns import Rows
from shared.cluster.eviction_units import Unit, family_of, priority_of, unit_of
from shared.cluster.nodetable import NodeTable, Placed
from shared.cluster.topology import domains_of
from shared.framework.dry_run import Budgets, victim_of
from shared.framework.evaluator import ShardEvaluator
from shared.framework.gang_dry_run import GangDryRun
from shared.framework.pod_class import PodClass
from shared.framework.victim_sets import undominated, units_of
from shared.messages.preemption import MAX_POSSIBLE, Candidate, GangAsk, PreemptAsk, ShardFindings, Victim
from shared.model.load import PodLoad, load_of
from shared.plugins.preemption import VICTIMS_STILL_GO

NODES_TOGETHER = 1 << 8
"""Nodes whose rungs are made at once."""
MAX_NODES = 1 << 10
"""Nodes of one shard, in one domain, that a search for a gang offers: their ladders must fit into one message."""
MAX_PODS_NAMED = 1 << 10
"""Possible victims of one shard that are named, if they are in few groups that go whole."""
MAX_GROUPS_NAMED = 8
"""Pod groups that one shard names as possible victims: more than are tried in all combinations."""
Domain = tuple[str, ...]
"""The values of a node's labels."""


class GangLadders:
    """One worker's answer to a question about a gang, made some nodes and one rung at a time.

    Between two steps the worker does other work, and its table may change. Each step goes by the table as it is then.
    The answer counts as one about the state at the first step: the snapshot refuses what has changed since.
    """

    def __init__(self, ask: PreemptAsk, gang: GangAsk, at_once: int | None = None) -> None:
        """`at_once`: how many pods on nodes are judged in one step, or somewhat more; None: all."""
        self.ask = ask
        self.gang = gang
        self._at_once = at_once
        self._findings: ShardFindings | None = None
        """Without the ladders."""
        self._waiting: dict[str, Domain] = {}
        """The nodes of which no rung is made, with their domains."""
        self._now: dict[str, Domain] = {}
        """Nodes with room for `_count` members less one."""
        self._count = 1
        self._made: dict[Domain, list[Candidate]] = {}
        self._kept_groups: set[str] = set()

    def go_on(self, evaluator: ShardEvaluator, pod_class: PodClass, gone: Sequence[Victim]) -> ShardFindings | None:
        """Makes the next step; None until the answer is whole. `gone`: pods of this table that go with their groups."""
        table, finder = evaluator.table, Finder(evaluator, pod_class, self.ask)
        dry_run = GangDryRun(table, evaluator.judge, pod_class, self._may_go(table))
        if self._findings is None:
            self._findings = self._begin(table, finder, dry_run)
        while self._now or self._waiting:
            if self._at_once is not None and dry_run.judged >= self._at_once:
                return None
            self._make_rung(table, dry_run)
        candidates = [each for of_domain in self._made.values() for each in of_domain]
        victims = [*gone, *(victim for each in candidates for victim in each.victims)]
        return replace(
            self._findings,
            candidates=candidates,
            budgets=_budgets(table, victims),
            gone=[*gone],
            kept_groups=sorted(self._kept_groups)[:MAX_GROUPS_NAMED],
        )

    def _begin(self, table: NodeTable, finder: Finder, dry_run: GangDryRun) -> ShardFindings:
        gang, class_id = self.gang, self.ask.class_id
        if _still_go(table, gang):
            return ShardFindings(class_id, summary=finder.summary, ineligible=VICTIMS_STILL_GO)
        if gang.names_possible:
            possible = _possible(table, dry_run)
            has_more = len(possible) > MAX_PODS_NAMED or len(units_of(possible)) > MAX_POSSIBLE
            return ShardFindings(
                class_id,
                summary=finder.summary,
                others=finder.results_of_others(),
                possible=[] if has_more else possible,
                has_more=has_more,
            )
        self._waiting = _domains(table, finder.worth_trying, gang)
        return ShardFindings(
            class_id,
            summary=finder.summary,
            others={} if gang.gone or gang.gone_groups else finder.results_of_others(),
            potential=len(finder.worth_trying),
        )

    def _make_rung(self, table: NodeTable, dry_run: GangDryRun) -> None:
        """Rows do not matter to each other, so nodes of all domains are tried together."""
        if not self._now:
            self._now, self._count = dict(islice(self._waiting.items(), NODES_TOGETHER)), 1
            for name in self._now:
                del self._waiting[name]
        rows = [row for name in self._now if (row := table.row_of(name)) is not None]
        found = dry_run.rung(np.array(rows, dtype=np.intp), self._count)
        for each in found:
            domain = self._now[each.node]
            self._made.setdefault(domain, []).append(replace(each, domain=domain))
        ended = {*self._now.values()}
        self._now = {each.node: self._now[each.node] for each in found} if self._count < self.ask.members else {}
        self._count += 1
        if not self._now:
            for domain in ended.intersection(self._made):
                self._made[domain] = undominated(self._made[domain], self.ask.members, MAX_NODES)

    def _may_go(self, table: NodeTable) -> Callable[[PodLoad, Unit], bool]:
        """Whether pods may be victims."""
        gang, groups = self.gang, table.objects.pod_groups
        family = family_of(load_of(self.ask.pod), groups)

        def may_go(load: PodLoad, unit: Unit) -> bool:
            if unit.priority >= gang.priority or (family and family_of(load, groups) == family):
                return False
            if unit.group and not gang.whole_groups:
                self._kept_groups.add(unit.group)
                return False
            return True

        return may_go


def _domains(table: NodeTable, rows: Rows, gang: GangAsk) -> dict[str, Domain]:
    """The nodes in these rows, with their values of the gang's labels; without those that lack one."""
    values = zip(*(domains_of(table, key, rows) for key in gang.keys), strict=True) if gang.keys else repeat(())
    found: dict[str, Domain] = {}
    for row, of_row in zip(rows.tolist(), values, strict=False):
        domain = tuple(value for value in of_row if value is not None)
        if len(domain) == len(gang.keys) and domain[: len(gang.within)] == gang.within:
            found[table.names[row]] = domain
    return found


def _possible(table: NodeTable, dry_run: GangDryRun) -> list[Victim]:
    """All pods that may go, or just more than can be named."""
    found: list[Victim] = []
    for row in np.flatnonzero(table.valid[: table.size]).tolist():
        found += dry_run.possible(row)
        if len(found) > MAX_PODS_NAMED:
            break
    return found


def _still_go(table: NodeTable, gang: GangAsk) -> bool:
    """Whether victims of the gang are terminating on a node that one of its members is nominated to."""
    rows = {row for node in gang.nominated.values() if (row := table.row_of(node)) is not None}
    groups, loads = table.objects.pod_groups, (load for row in rows for load in table.loads_at(row))
    return any(load.preempted and priority_of(load, groups) < gang.priority for load in loads)


def _budgets(table: NodeTable, victims: Iterable[Victim]) -> dict[str, int]:
    keys = {key for victim in victims for key in victim.budgets}
    budgets = table.objects.disruption_budgets
    return {key: budgets[key].status.disruptions_allowed for key in keys if key in budgets}


@contextmanager
def victims_gone(table: NodeTable, gang: GangAsk) -> Iterator[list[Victim]]:
    """Removes the ask's victims within the context; yields those that are evicted with their groups."""
    groups = set(gang.gone_groups)
    placed = ((uid, pod) for row in range(table.size) for uid, pod in table.placed_at(row)) if groups else ()
    gone = [each for uid, pod in placed if (each := _gone_with_group(table, uid, pod, groups)) is not None]
    with pods_evicted(table, [*gang.gone, *(victim.uid for victim in gone)], gang.nominated):
        yield gone


def _gone_with_group(table: NodeTable, uid: str, pod: Placed, groups: set[str]) -> Victim | None:
    load = pod.kind.load
    unit = unit_of(load, table.objects.pod_groups)
    if unit.group not in groups:
        return None
    [budgets] = Budgets(table.objects).left_after([pod])
    victim = victim_of(uid, pod, unit.priority, budgets)
    return replace(victim, group=unit.group, node=table.names[pod.row])
