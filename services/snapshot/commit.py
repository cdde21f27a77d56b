"""Validates the cycle's commits, applies what still holds, replies, and emits binding orders and evictions."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.snapshot.commit_checks import CommitChecks, ProfileFilters, units
from services.snapshot.events import CommitFault, DispatchOrders, Effect, Reply, WorkerFault
from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.nominator import Nomination
from services.snapshot.state.pending_pods import PendingPods
from services.snapshot.state.preemption_victims import evict_of, evicts
from shared.cluster.disruption_budgets import BudgetCount
from shared.cluster.eviction_units import priority_of
from shared.errors import ProtocolError
from shared.messages.binding import Evict
from shared.messages.preemption import Victim
from shared.messages.state import (
    Change,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    LedgerEntry,
    Loads,
    Nominate,
    Outdated,
    PodNominated,
    PodPlaced,
)
from shared.store.schema import Persist


@dataclass(slots=True)
class _Applied:
    """What of a commit was applied, and what was not. `written`: nodes whose earlier evaluations no longer count."""

    loads: Loads
    changes: list[Change]
    budgets: BudgetCount
    conflicts: list[Conflict] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)


class CommitHandler:
    """`answer`: to the last commit, which also answers its repetition."""

    def __init__(
        self,
        cluster: ClusterState,
        answer: Committed | None,
        refused: deque[ProtocolError],
        filters: Mapping[str, ProfileFilters],
        pending: PendingPods | None = None,
    ) -> None:
        """`answer`: of an earlier term. `refused` is appended to. `filters`: by profile."""
        self._pending = pending
        self._cluster = cluster
        self._refused = refused
        self._checks = CommitChecks(cluster, filters, pending)
        self._decided_at = 0
        self.take_over(answer)

    def take_over(self, answer: Committed | None) -> None:
        """`answer`: the last one of earlier terms."""
        self._cycle_epoch, self._cycle = (0, "") if answer is None else (answer.epoch, answer.cycle)
        self.answer = answer
        self.begin_term()

    def begin_term(self) -> None:
        """The last answer holds as of the new term."""
        if self.answer is not None:
            self.answer = replace(
                self.answer, seq=self._cluster.seq, others=self._cluster.others, relabelled=self._cluster.relabelled
            )

    def handle(self, commit: Commit, now: float) -> list[Effect]:
        newest = self._cycle_epoch
        if commit.epoch < newest or (commit.epoch == newest and commit.cycle != self._cycle):
            which = "another cycle's commit" if commit.epoch == newest else "commit"
            self._refused.append(ProtocolError(f"{which} of epoch {commit.epoch}, now {newest}"))
            return [Outdated(commit.epoch, commit.cycle, newest)]
        if commit.epoch > newest:
            self._cycle_epoch, self._cycle, self.answer = commit.epoch, commit.cycle, None
            self._checks.min_seen = self._decided_at
        if self.answer is not None and commit.number == self.answer.number:
            return [_reply(commit, self.answer)]
        if self.answer is not None and commit.number < self.answer.number:
            return [Outdated(commit.epoch, commit.cycle, newest, commit.number)]
        asked: list[Decision | Nominate] = [*commit.decisions, *commit.nominations]
        if not all(0 <= each.load < len(commit.loads) for each in asked):
            self._refused.append(ProtocolError(f"commit {commit.number} names a load that it does not have"))
            return []
        applied = self._apply(commit, now)
        effects: list[Effect] = []
        at_fault = {conflict.uid: conflict for conflict in applied.conflicts if conflict.fault}
        for each in asked if at_fault else ():
            # Of a gang, only members that are at fault themselves count.
            conflict = at_fault.pop(each.uid, None)
            if conflict is not None:
                effects.append(WorkerFault(each.worker, conflict.fault, f"pod {each.key}: {conflict.reason}"))
        effects += map(CommitFault, self._checks.misstated)
        self._checks.misstated.clear()
        return effects + self._reply(commit, applied)

    def _apply(self, commit: Commit, now: float) -> _Applied:
        if self._pending is not None:
            self._pending.begin_commit()
        cluster = self._cluster
        budgets = BudgetCount(cluster.objects.current)
        applied = _Applied(Loads(commit.loads), cluster.revoke(commit.denominated), budgets)
        for unit in units(commit.decisions):
            conflicts = self._checks.decisions(unit, commit.loads)
            applied.conflicts += conflicts.values()
            if not conflicts:
                applied.entries += [self._assume(commit, each, applied, now) for each in unit]
        applied.written += [entry.assignment.node for entry in applied.entries]
        for together in units(commit.nominations):
            conflicts = self._checks.nominations(together, commit.loads, applied.written)
            applied.conflicts += conflicts.values()
            for nominate in () if conflicts else together:
                self._nominate(commit, nominate, applied, now)
            applied.written += () if conflicts else dict.fromkeys(nominate.node for nominate in together)
        return applied

    def _assume(self, commit: Commit, decision: Decision, applied: _Applied, now: float) -> LedgerEntry:
        """Later decisions of the commit count with this one."""
        cluster, of, decided, number = self._cluster, decision.assignment, commit.loads[decision.load], decision.load
        uid, node, key = of.uid, of.node, of.key
        applied.changes += cluster.revoke((uid,))
        load = cluster.topology_labels.added(decided, node)
        cluster.pods.put(uid, node, load, key, assumed=True)
        if load is not decided:
            number = applied.loads.number(cluster.pods[uid].load)
        applied.changes.append(PodPlaced(uid, node, number, key))
        if of.volumes is not None or of.devices is not None:
            of, overlaid = cluster.objects.assume(of, cluster.seq + 1)
            applied.changes += overlaid
            decision = replace(decision, assignment=of)
        return cluster.ledger.assume(decision, load, commit, cluster.seq + 1, now)

    def _nominate(self, commit: Commit, nominate: Nominate, applied: _Applied, now: float) -> None:
        """Reserves the node; revokes nominations of lower priority on it if there are victims."""
        cluster, uid, node = self._cluster, nominate.uid, nominate.node
        nomination = Nomination(node, commit.loads[nominate.load], nominate.key, cluster.seq + 1)
        cluster.nominator.decide(uid, nomination, now)
        applied.changes.append(PodNominated(uid, node, nominate.load, nomination.key))
        if not evicts(nominate):
            return
        groups = cluster.objects.pod_groups
        losers = cluster.nominator.below(node, priority_of(nomination.load, groups), groups)
        applied.changes += cluster.revoke(loser for loser, _ in losers)

        def violated_by(victim: Victim) -> tuple[str, ...]:
            return applied.budgets.take(cluster.pods[victim.uid].load, victim.key.partition("/")[2])

        evict = evict_of(nominate, cluster.epoch, cluster.seq + 1, cluster.ledger, losers, violated_by)
        applied.evictions.append(evict)
        for victim in evict.victims:  # they count as terminating from now on
            load = cluster.victims.add(victim.uid, uid, cluster.pods[victim.uid].load, now)
            applied.changes.append(cluster.pods.set_load(victim.uid, load).placed(victim.uid, applied.loads))

    def _reply(self, commit: Commit, applied: _Applied) -> list[Effect]:
        delta: Delta | None = None
        if applied.changes:
            decides = not commit.nominations and all(isinstance(each, PodPlaced) for each in applied.changes)
            delta = self._cluster.delta(applied.changes, applied.loads.items, applied.written, decides=decides)
        if applied.written:
            self._decided_at = self._cluster.seq
        cluster = self._cluster
        self.answer = Committed(
            commit.epoch,
            commit.number,
            cluster.seq,
            applied.conflicts,
            commit.cycle,
            others=cluster.others,
            relabelled=cluster.relabelled,
        )
        effects: list[Effect] = [Persist(delta, tuple(applied.entries), answer=self.answer)]
        if delta is not None:
            effects.append(delta)
        effects.append(_reply(commit, self.answer))
        if applied.entries:
            effects.append(DispatchOrders(tuple((entry.assignment.uid, entry.attempt) for entry in applied.entries)))
        return effects + applied.evictions


def _reply(commit: Commit, answer: Committed) -> Reply:
    """An empty commit confirms its cycle's epoch, which must be in Redis before the cycle relies on it."""
    return Reply(answer, durable=not (commit.decisions or commit.nominations))
