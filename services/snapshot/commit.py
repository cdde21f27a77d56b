"""Commits: what the cycle has decided is taken, as far as it can stand, answered, and handed to who carries it out."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from services.snapshot.checks import Checks
from services.snapshot.commit_checks import Judge, units
from services.snapshot.events import (
    Dispatch,
    Displace,
    Effect,
    Misstated,
    Persist,
    Publish,
    RefuseCycle,
    Reply,
    WorkerFault,
)
from services.snapshot.evictions import evict_of, evicts
from services.snapshot.state.cluster_state import Cluster
from services.snapshot.state.nominator import Nomination
from services.snapshot.state.pending_pods import Pending
from shared.errors import ProtocolError
from shared.messages.binding import Evict
from shared.messages.loads import Loads
from shared.messages.state import (
    Change,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    LedgerEntry,
    Nominate,
    Outdated,
    PodNominated,
    PodPlaced,
)


@dataclass(slots=True)
class _Accepted:
    """What of a commit stands, and what does not. `nodes`: those that may not be judged as before."""

    loads: Loads
    changes: list[Change]
    conflicts: list[Conflict] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    displaced: list[Displace] = field(default_factory=list)


class Deciding:
    """`answer`: to the last commit; a doubled one is answered by it."""

    def __init__(
        self,
        cluster: Cluster,
        answer: Committed | None,
        refused: deque[ProtocolError],
        checks: Mapping[str, Checks],
        pending: Pending | None = None,
    ) -> None:
        """`answer`: of the leader before; `refused` is added to; `checks`: by profile."""
        self._pending = pending
        self._cluster = cluster
        self._refused = refused
        self._judge = Judge(cluster.nodes, cluster.pods, cluster.objects, checks, pending)
        self._cycle_epoch, self._cycle = (0, "") if answer is None else (answer.epoch, answer.cycle)
        self._decided_at = 0
        self.answer = answer
        self.begin_term()

    def begin_term(self) -> None:
        """What was answered before holds as of the new term."""
        if self.answer is not None:
            self.answer = msgspec.structs.replace(self.answer, seq=self._cluster.seq)

    def take(self, commit: Commit, now: float) -> list[Effect]:
        newest = self._cycle_epoch
        if commit.epoch < newest or (commit.epoch == newest and commit.cycle != self._cycle):
            which = "another cycle's commit" if commit.epoch == newest else "commit"
            self._refused.append(ProtocolError(f"{which} of epoch {commit.epoch}, now {newest}"))
            return [RefuseCycle(Outdated(commit.epoch, commit.cycle, newest))]
        if commit.epoch > newest:
            self._cycle_epoch, self._cycle, self.answer = commit.epoch, commit.cycle, None
            self._judge.to_be_seen = self._decided_at
        if self.answer is not None and commit.round <= self.answer.round:
            return [Reply(self.answer)] if commit.round == self.answer.round else []
        named = [*(each.load for each in commit.decisions), *(each.load for each in commit.nominations)]
        if not all(0 <= load < len(commit.loads) for load in named):
            self._refused.append(ProtocolError(f"commit of round {commit.round} names a load that it does not have"))
            return []
        self._judge.newest = self._cluster.seq
        if self._pending is not None:
            self._pending.begin_commit()
        accepted = _Accepted(Loads(commit.loads), changes=self._cluster.revoke(commit.denominated))
        for unit in units(commit.decisions):
            conflicts = self._judge.decisions(unit, commit.loads)
            accepted.conflicts += conflicts.values()
            if not conflicts:
                accepted.entries += [self._assume(commit, each, accepted.changes, now) for each in unit]
        accepted.nodes += [entry.node for entry in accepted.entries]
        for nominate in commit.nominations:
            conflict = self._judge.nomination(nominate, commit.loads[nominate.load], accepted.nodes)
            if conflict is not None:
                accepted.conflicts.append(conflict)
                continue
            accepted.nodes.append(nominate.node)
            displace = self._nominate(commit, nominate, accepted.changes, now)
            if displace is not None:
                accepted.displaced.append(displace)
                self._doom(displace.message, accepted, now)
        misstated, self._judge.misstated = self._judge.misstated, []
        faults: list[Effect] = [*_faults(commit, accepted.conflicts), *(Misstated(each) for each in misstated)]
        return [*faults, *self._accept(commit, accepted)]

    def _assume(self, commit: Commit, d: Decision, changes: list[Change], now: float) -> LedgerEntry:
        """From here on the decisions after this one reckon with it; `changes` are added to."""
        uid, node, key, load, volumes = d.uid, d.node, d.key, commit.loads[d.load], d.assignment.volumes
        changes += self._cluster.revoke((uid,))
        self._cluster.pods.put(uid, node, load, key, assumed=True)
        changes.append(PodPlaced(uid, node, d.load, key))
        if volumes is not None:
            volumes, laid = self._cluster.objects.assume(uid, node, volumes, self._cluster.seq + 1)
            changes += laid
            d = msgspec.structs.replace(d, assignment=msgspec.structs.replace(d.assignment, volumes=volumes))
        return self._cluster.ledger.assume(d, load, commit, self._cluster.seq + 1, now)

    def _accept(self, commit: Commit, accepted: "_Accepted") -> list[Effect]:
        delta: Delta | None = None
        if accepted.changes:
            delta = self._cluster.delta(accepted.changes, accepted.loads.items, accepted.nodes)
        if accepted.nodes:
            self._decided_at = self._cluster.seq
        self.answer = Committed(commit.epoch, commit.round, self._cluster.seq, accepted.conflicts, commit.cycle)
        effects: list[Effect] = [Persist(delta, tuple(accepted.entries), answer=self.answer)]
        if delta is not None:
            effects.append(Publish(delta))
        effects.append(Reply(self.answer))
        if accepted.entries:
            effects.append(Dispatch(tuple((entry.uid, entry.attempt) for entry in accepted.entries)))
        return effects + accepted.displaced

    def _nominate(self, commit: Commit, n: Nominate, changes: list[Change], now: float) -> Displace | None:
        """From here on its room is kept, and nobody's of lower priority is whom it takes it from."""
        attempt = self._cluster.seq + 1
        nomination = Nomination(n.node, commit.loads[n.load], n.key, attempt)
        self._cluster.nominations.decide(n.uid, nomination, now)
        changes.append(PodNominated(n.uid, n.node, n.load, nomination.key))
        if not evicts(n):
            return None
        losers = self._cluster.nominations.below(n.node, nomination.load.priority)
        changes += self._cluster.revoke(uid for uid, _ in losers)
        return Displace(evict_of(n, self._cluster.epoch, self._cluster.seq + 1, self._cluster.ledger, losers))

    def _doom(self, evict: Evict, accepted: "_Accepted", now: float) -> None:
        """Whoever is to make way counts as going from now on."""
        for victim in evict.victims:
            place = self._cluster.pods[victim.uid]
            load = self._cluster.doomed.doom(victim.uid, evict.uid, place.load, now)
            self._cluster.pods.put(victim.uid, place.node, load, place.key, place.started, assumed=place.assumed)
            accepted.changes.append(self._cluster.pods[victim.uid].told(victim.uid, accepted.loads))


def _faults(commit: Commit, conflicts: Iterable[Conflict]) -> Iterator[WorkerFault]:
    """Whose they are; of a gang, those of its members that are at fault themselves."""
    at_fault = {conflict.uid: conflict for conflict in conflicts if conflict.fault}
    if at_fault:
        asked: tuple[Decision | Nominate, ...] = (*commit.decisions, *commit.nominations)
        for each in asked:
            conflict = at_fault.pop(each.uid, None)
            if conflict is not None:
                yield WorkerFault(
                    each.worker,
                    conflict.fault,
                    f"pod {each.key}: {conflict.reason}",
                )
