"""A worker's part in the search for victims of a gang: ladders of its nodes, and who is gone already.

Victims chosen so far count as gone, and members with room as placed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from msgspec.structs import replace

from services.worker.preempting import Finder
from services.worker.what_if import pods_evicted
from shared.cluster.columns import Rows
from shared.cluster.eviction_units import Unit, tree_of, unit_of
from shared.cluster.nodetable import NodeTable, Placed
from shared.cluster.topology import domains_of
from shared.framework.dry_run import Budgets, victim_of
from shared.framework.evaluator import ShardEvaluator
from shared.framework.gang_dry_run import GangDryRun
from shared.framework.pod_class import PodClass
from shared.framework.victim_sets import undominated, units_of
from shared.messages.preemption import MAX_POSSIBLE, Candidate, GangAsk, PreemptAsk, ShardFindings, Victim
from shared.model.load import PodLoad
from shared.model.objects import Pod, PodGroup, group_of
from shared.plugins.preemption import VICTIMS_STILL_GO

MAX_NODES = 1 << 10
"""Nodes of one shard, in one domain, that a search for a gang offers: their ladders must fit into one message."""
MAX_PODS_NAMED = 1 << 10
"""Possible victims of one shard that are named, if they are in few groups that go whole."""
MAX_GROUPS_NAMED = 8
"""Pod groups that one shard names as possible victims: more than are tried in all combinations."""


def gang_findings(
    evaluator: ShardEvaluator, pod_class: PodClass, ask: PreemptAsk, gang: GangAsk, gone: list[Victim]
) -> ShardFindings:
    """`gone`: pods of this table that are evicted with their groups."""
    table, finder = evaluator.table, Finder(evaluator, pod_class, ask)
    if _still_go(table, gang):
        return ShardFindings(pod_class.id, summary=finder.summary, ineligible=VICTIMS_STILL_GO)
    kept: set[str] = set()
    groups = table.objects.pod_groups
    own = {gang.group, _tree_of_pod(ask.pod, groups)}

    def may_go(load: PodLoad, unit: Unit) -> bool:
        if unit.priority >= gang.priority or (load.group and tree_of(load.namespace, load.group, groups) in own):
            return False
        if unit.group and not gang.whole_groups:
            kept.add(unit.group)
            return False
        return True

    dry_run = GangDryRun(table, evaluator.judge, pod_class, may_go)
    if gang.names_possible:
        possible = _possible(table, dry_run)
        has_more = len(possible) > MAX_PODS_NAMED or len(units_of(possible)) > MAX_POSSIBLE
        others, possible = finder.results_of_others(), [] if has_more else possible
        return ShardFindings(pod_class.id, summary=finder.summary, others=others, possible=possible, has_more=has_more)
    by_domain: dict[tuple[str, ...], list[Candidate]] = {}
    for domain, rows in _domains(table, finder.worth_trying, gang).items():
        found = [each if not domain else _within(each, domain) for each in dry_run.run(rows, ask.members)]
        by_domain[domain] = undominated(found, ask.members, MAX_NODES)
    candidates = [each for of_domain in by_domain.values() for each in of_domain]
    return ShardFindings(
        pod_class.id,
        summary=finder.summary,
        others={} if gang.gone or gang.gone_groups else finder.results_of_others(),
        potential=len(finder.worth_trying),
        candidates=candidates,
        budgets=_budgets(table, [*gone, *(victim for each in candidates for victim in each.victims)]),
        gone=gone,
        kept_groups=sorted(kept)[:MAX_GROUPS_NAMED],
    )


def _tree_of_pod(pod: Pod, groups: Mapping[str, PodGroup]) -> str:
    ref = group_of(pod)
    return "" if ref is None else tree_of(pod.namespace, ref.name, groups)


def _within(candidate: Candidate, domain: tuple[str, ...]) -> Candidate:
    return replace(candidate, domain=domain)


def _domains(table: NodeTable, rows: Rows, gang: GangAsk) -> dict[tuple[str, ...], Rows]:
    """The rows by their values of the gang's labels, without those that lack one."""
    if not gang.keys:
        return {(): rows}
    values = zip(*(domains_of(table, key, rows) for key in gang.keys), strict=True)
    by_domain: dict[tuple[str, ...], list[int]] = {}
    for row, of_row in zip(rows.tolist(), values, strict=True):
        domain = tuple(value for value in of_row if value is not None)
        if len(domain) == len(gang.keys) and domain[: len(gang.within)] == gang.within:
            by_domain.setdefault(domain, []).append(row)
    return {domain: np.array(members, dtype=np.intp) for domain, members in by_domain.items()}


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
    loads = (load for row in rows for load in table.loads_at(row))
    return any(load.preempted and load.priority < gang.priority for load in loads)


def _budgets(table: NodeTable, victims: Iterable[Victim]) -> dict[str, int]:
    keys = {key for victim in victims for key in victim.budgets}
    budgets = table.objects.disruption_budgets
    return {key: budgets[key].status.disruptions_allowed for key in keys}


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
    victim = victim_of(uid, pod, budgets)
    return replace(victim, priority=unit.priority, group=unit.group, node=table.names[pod.row])
