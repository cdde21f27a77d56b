"""Judges the assume ledger: its entries end, and fit on their nodes together with what is bound.

The ledger is read now and then, apart from the watch, so an entry counts only from the second time it is seen.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shared.messages.state import LedgerEntry
from testing.auditor.cluster import Cluster
from testing.auditor.demand import NOTHING, Demand
from testing.auditor.events import LedgerRead
from testing.auditor.placements import judge_room
from testing.auditor.pods import Assumed, PodRecord
from testing.auditor.rooms import Room
from testing.auditor.suspicions import Suspicions
from testing.auditor.violations import Invariant, Violation

Key = tuple[str, int]


class LedgerAudit:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._entries: dict[str, LedgerEntry] = {}
        self._ends: dict[str, tuple[LedgerEntry, float]] = {}
        """By uid: the entry as it was first read with its present window, and when that is over by our clock."""
        self._unending: Suspicions[Key] = Suspicions(cluster.limits.patience)
        self._crowded: set[Key] = set()
        self._silent = False

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, ledger: LedgerRead, now: float) -> list[Violation]:
        self._entries, self._silent = {entry.uid: entry for entry in ledger.entries}, False
        self._begin_windows(ledger)
        self._crowded &= {(entry.uid, entry.attempt) for entry in ledger.entries}
        assumed = self._assumed(ledger)
        self._cluster.oldest_assumed = min((a.since for _, a in assumed), default=None)
        if not self._cluster.streams.steady(ledger.asked_at):
            self._unending.clear()
            return []
        return [*self._judge_ends(ledger, now), *self._judge_rooms(assumed, ledger.asked_at, now)]

    def silent(self) -> None:
        """It was not there, so nobody could end an entry either."""
        self._silent = True
        self._unending.clear()

    @property
    def at_rest(self) -> bool:
        return not self._silent and not self._entries

    def finish(self, now: float) -> list[Violation]:
        if self._silent:
            return [self._cluster.violation(Invariant.LEDGER_ENDS, now, "the ledger cannot be read")]
        return [self._violation(entry, "the entry is left over", now) for entry in self._entries.values()]

    def _begin_windows(self, ledger: LedgerRead) -> None:
        """Deadlines are of another clock than ours, so a window is counted from when it is first seen."""
        before, self._ends = self._ends, {}
        for entry in ledger.entries:
            known = before.get(entry.uid)
            if known is None or (known[0].attempt, known[0].deadline) != (entry.attempt, entry.deadline):
                known = entry, ledger.asked_at + entry.window
            self._ends[entry.uid] = known

    def _assumed(self, ledger: LedgerRead) -> list[tuple[PodRecord, Assumed]]:
        """The pods that hold room by the ledger alone."""
        found = []
        for entry in ledger.entries:
            record = self._cluster.pods.get(entry.uid)
            if record is None or record.node or record.finished:
                continue
            assumed = record.assumed
            if assumed is None or assumed.attempt != entry.attempt:
                assumed = record.assumed = Assumed(entry.attempt, entry.node, ledger.asked_at)
                record.tell(ledger.asked_at, f"assumed on node {entry.node}, attempt {entry.attempt}")
            found.append((record, assumed))
        return found

    def _judge_ends(self, ledger: LedgerRead, now: float) -> list[Violation]:
        suspects: dict[Key, tuple[LedgerEntry, str]] = {}
        for entry in ledger.entries:
            why = self._why_over(entry, ledger.asked_at)
            if why:
                suspects[entry.uid, entry.attempt] = entry, why
        return [
            self._violation(suspects[key][0], f"{suspects[key][1]}, and the entry is still there", now)
            for key, _ in self._unending.look(suspects, ledger.asked_at)
        ]

    def _why_over(self, entry: LedgerEntry, at: float) -> str:
        if self._ends[entry.uid][1] < at:
            return "its window is over"
        record = self._cluster.pods.get(entry.uid)
        if record is None:
            return "" if entry.uid in self._cluster.unreadable else "there is no such pod"
        if record.finished:
            return "the pod is finished"
        return f"the pod is bound to node {record.node}" if record.node else ""

    def _judge_rooms(self, assumed: Sequence[tuple[PodRecord, Assumed]], at: float, now: float) -> list[Violation]:
        """What was assumed `lag` ago rests on room that is seen free by now."""
        by_node: defaultdict[str, list[PodRecord]] = defaultdict(list)
        for record, assumption in assumed:
            if at - assumption.since >= self._cluster.limits.lag:
                by_node[assumption.node].append(record)
        return [
            violation
            for node, records in by_node.items()
            for violation in (*self._judge_room(node, records, now), *self._judge_ports(node, records, now))
        ]

    def _judge_room(self, name: str, records: Sequence[PodRecord], now: float) -> list[Violation]:
        together: dict[str, int] = {}
        for record in records:
            for resource, amount in record.demand.amounts.items():
                together[resource] = together.get(resource, 0) + amount
        since = self._since(records)
        totals = self._cluster.room(name).counted(since)
        for resource, amount in together.items():
            totals[resource] = totals.get(resource, 0) + amount
        nodes, objection = self._cluster.nodes, None
        if nodes.was_unseen(name, since):
            return []
        for standing in nodes.lately(name, since):
            objection = judge_room(Demand(together), totals, standing)
            if objection is None:
                return []
        if objection is None:
            return []  # the node is gone, and whoever is assumed there will be told so
        return self._report(
            records, Invariant.CAPACITY, f"with what is assumed there, {objection.what}", now, objection.numbers
        )

    def _judge_ports(self, name: str, records: Sequence[PodRecord], now: float) -> list[Violation]:
        since, bound, among = self._since(records), self._cluster.room(name), Room()
        broken: list[Violation] = []
        for record in records:
            if not record.demand.ports:
                continue
            clash = bound.port_clash(record.uid, record.demand, since) or among.port_clash(
                record.uid, record.demand, since
            )
            if clash is not None:
                what = f"{clash[1].protocol} port {clash[1].number}, assumed, is taken by pod {clash[0]}"
                broken += self._report([record], Invariant.HOST_PORTS, what, now, {"port": clash[1].number})
            among.put(record.uid, Demand(NOTHING.amounts, record.demand.ports), now, decided=True)
        return broken

    def _since(self, records: Sequence[PodRecord]) -> float:
        first = min(record.assumed.since for record in records if record.assumed is not None)
        return first - self._cluster.limits.lag

    def _report(
        self, records: Sequence[PodRecord], invariant: Invariant, what: str, now: float, numbers: Mapping[str, float]
    ) -> list[Violation]:
        """Once for each assumption; of several that only together are too much, the newest is named."""
        keys = {(r.uid, r.assumed.attempt) for r in records if r.assumed is not None}
        if keys <= self._crowded:
            return []
        self._crowded |= keys
        newest = max(records, key=lambda record: record.assumed.attempt if record.assumed is not None else 0)
        node = newest.assumed.node if newest.assumed is not None else ""
        return [self._cluster.violation(invariant, now, what, uid=newest.uid, node=node, numbers=numbers)]

    def _violation(self, entry: LedgerEntry, what: str, now: float) -> Violation:
        numbers = {
            "attempt": float(entry.attempt),
            "window": entry.window,
            "overdue": now - self._ends[entry.uid][1],
        }
        return self._cluster.violation(
            Invariant.LEDGER_ENDS, now, what, uid=entry.uid, node=entry.node, numbers=numbers
        )
