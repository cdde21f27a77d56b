"""Checks the assume ledger, permits and the queue: entries and waits end, and all three agree with the pods that exist.

Ledger and queue are polled, independently of the watch, so what a poll shows counts only if the next one shows it too.
Messages about permits may be lost, so a wait has also ended when its pod is bound or gone, or its entry has left the
ledger.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shared.messages.binding import BindingOutcome
from shared.messages.queue import QueueContents
from shared.messages.state import LedgerEntry
from testing.auditor.cluster import Assumed, Cluster, PodRecord
from testing.auditor.events import LedgerRead, QueueRead
from testing.auditor.placements import capacity_objection
from testing.auditor.usage import NOTHING, Demand, NodeUsage
from testing.auditor.violations import Debouncer, Invariant, Violation

Key = tuple[str, int]


class LedgerChecks:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._entries: dict[str, LedgerEntry] = {}
        self._ends: dict[str, tuple[LedgerEntry, float]] = {}
        """By uid: the entry as first read with its current window, and when that window ends by our clock."""
        self._unending: Debouncer[Key] = Debouncer(cluster.limits.patience)
        self._crowded: set[Key] = set()
        self._unavailable = False

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, ledger: LedgerRead, now: float) -> list[Violation]:
        self._entries, self._unavailable = {entry.uid: entry for entry in ledger.entries}, False
        self._begin_windows(ledger)
        self._crowded &= {(entry.uid, entry.attempt) for entry in ledger.entries}
        assumed = self._assumed(ledger)
        self._cluster.oldest_assumed = min((a.since for _, a in assumed), default=None)
        if not self._cluster.streams.steady(ledger.asked_at):
            self._unending.clear()
            return []
        return [*self._check_ends(ledger, now), *self._check_usage(assumed, ledger.asked_at, now)]

    def unavailable(self) -> None:
        """The ledger is unavailable, so no one could have removed entries either."""
        self._unavailable = True
        self._unending.clear()

    @property
    def at_rest(self) -> bool:
        return not self._unavailable and not self._entries

    def finish(self, now: float) -> list[Violation]:
        if self._unavailable:
            return [self._cluster.violation(Invariant.LEDGER_ENDS, now, "the ledger cannot be read")]
        return [self._violation(entry, "the entry is still there at the end", now) for entry in self._entries.values()]

    def _begin_windows(self, ledger: LedgerRead) -> None:
        """Deadlines are by another clock, so count each window from when it is first seen."""
        before, self._ends = self._ends, {}
        for entry in ledger.entries:
            known = before.get(entry.uid)
            if known is None or (known[0].attempt, known[0].deadline) != (entry.attempt, entry.deadline):
                known = entry, ledger.asked_at + entry.window
            self._ends[entry.uid] = known

    def _assumed(self, ledger: LedgerRead) -> list[tuple[PodRecord, Assumed]]:
        """The pods that occupy a node only by the ledger."""
        found = []
        for entry in ledger.entries:
            record = self._cluster.pods.get(entry.uid)
            if record is None or record.node or record.finished:
                continue
            assumed = record.assumed
            if assumed is None or assumed.attempt != entry.attempt:
                assumed = record.assumed = Assumed(entry.attempt, entry.node, ledger.asked_at)
                record.note(ledger.asked_at, f"assumed on node {entry.node}, attempt {entry.attempt}")
            found.append((record, assumed))
        return found

    def _check_ends(self, ledger: LedgerRead, now: float) -> list[Violation]:
        suspects: dict[Key, tuple[LedgerEntry, str]] = {}
        for entry in ledger.entries:
            why = self._why_over(entry, ledger.asked_at)
            if why:
                suspects[entry.uid, entry.attempt] = entry, why
        return [
            self._violation(suspects[key][0], f"{suspects[key][1]}, but the entry is still there", now)
            for key, _ in self._unending.look(suspects, ledger.asked_at)
        ]

    def _why_over(self, entry: LedgerEntry, at: float) -> str:
        if self._ends[entry.uid][1] < at:
            return "its window has ended"
        record = self._cluster.pods.get(entry.uid)
        if record is None:
            return "" if entry.uid in self._cluster.unreadable else "the pod does not exist"
        if record.finished:
            return "the pod has finished"
        return f"the pod is bound to node {record.node}" if record.node else ""

    def _check_usage(self, assumed: Sequence[tuple[PodRecord, Assumed]], at: float, now: float) -> list[Violation]:
        """Pods assumed at least `lag` ago: everything that made room for them has been seen by now."""
        by_node: defaultdict[str, list[PodRecord]] = defaultdict(list)
        for record, assumption in assumed:
            if at - assumption.since >= self._cluster.limits.lag:
                by_node[assumption.node].append(record)
        return [
            violation
            for node, records in by_node.items()
            for violation in (*self._check_capacity(node, records, now), *self._check_ports(node, records, now))
        ]

    def _check_capacity(self, name: str, records: Sequence[PodRecord], now: float) -> list[Violation]:
        together: dict[str, int] = {}
        for record in records:
            for resource, amount in record.demand.amounts.items():
                together[resource] = together.get(resource, 0) + amount
        since = self._since(records)
        totals = self._cluster.usage(name).counted(since)
        for resource, amount in together.items():
            totals[resource] = totals.get(resource, 0) + amount
        nodes, objection = self._cluster.nodes, None
        if nodes.was_unknown(name, since):
            return []
        for standing in nodes.states_since(name, since):
            objection = capacity_objection(Demand(together), totals, standing)
            if objection is None:
                return []
        if objection is None:
            return []  # the node is gone; the scheduler will drop what is assumed there
        return self._report(
            records, Invariant.CAPACITY, f"with what is assumed there, {objection.what}", now, objection.numbers
        )

    def _check_ports(self, name: str, records: Sequence[PodRecord], now: float) -> list[Violation]:
        since, bound, among = self._since(records), self._cluster.usage(name), NodeUsage()
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
            among.add(record.uid, Demand(NOTHING.amounts, record.demand.ports), now, decided=True)
        return broken

    def _since(self, records: Sequence[PodRecord]) -> float:
        first = min(record.assumed.since for record in records if record.assumed is not None)
        return first - self._cluster.limits.lag

    def _report(
        self, records: Sequence[PodRecord], invariant: Invariant, what: str, now: float, numbers: Mapping[str, float]
    ) -> list[Violation]:
        """Report each assumption once; of several that exceed a node together, name the newest."""
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


class PermitChecks:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waits: dict[tuple[str, int], tuple[float, float]] = {}
        """By pod and attempt: when the wait ends, and when that was reported."""

    def __len__(self) -> int:
        return len(self._waits)

    def hear(self, outcomes: Sequence[BindingOutcome], now: float) -> None:
        for outcome in outcomes:
            wait = (outcome.uid, outcome.attempt)
            if outcome.wait is None:
                self._waits.pop(wait, None)
            else:
                self._waits[wait] = (now + outcome.wait, now)
                record = self._cluster.pods.get(outcome.uid)
                if record is not None:
                    record.note(now, f"waits for a permit, attempt {outcome.attempt}")

    def read(self, ledger: LedgerRead) -> None:
        standing = {(entry.uid, entry.attempt) for entry in ledger.entries}
        self._waits = {
            wait: (until, heard)
            for wait, (until, heard) in self._waits.items()
            if wait in standing or heard >= ledger.asked_at
        }

    def expire(self, now: float) -> list[Violation]:
        if not self._waits or not self._cluster.streams.steady(now):
            return []
        latest = now - self._cluster.limits.patience
        return self._end([wait for wait, (until, _) in self._waits.items() if until < latest], now)

    def finish(self, now: float) -> list[Violation]:
        return self._end(list(self._waits), now)

    def _end(self, waits: Sequence[tuple[str, int]], now: float) -> list[Violation]:
        broken = []
        for uid, attempt in waits:
            until, _ = self._waits.pop((uid, attempt))
            record = self._cluster.pods.get(uid)
            if record is not None and not record.node:
                numbers = {"attempt": float(attempt), "until": until, "overdue": now - until}
                what = f"attempt {attempt} still waits for a permit"
                broken.append(self._cluster.violation(Invariant.PERMIT_ENDS, now, what, uid=uid, numbers=numbers))
        return broken


class QueueChecks:
    def __init__(self, cluster: Cluster) -> None:
        patience = cluster.limits.patience
        self._cluster = cluster
        self._contents: QueueContents | None = None
        self._unavailable = False
        self._bound: Debouncer[str] = Debouncer(patience)
        self._missing: Debouncer[str] = Debouncer(patience)
        self._ghosts: Debouncer[str] = Debouncer(patience)

    def read(self, look: QueueRead, now: float) -> list[Violation]:
        self._contents, self._unavailable = look.contents, False
        if not self._cluster.streams.steady(look.asked_at):
            self._forget()
            return []
        pods, at = self._cluster.pods, look.asked_at
        to_decide = _to_decide(look.contents)
        binding = set(look.contents.binding)
        bound = [uid for uid in to_decide if _was_bound(pods.get(uid), at)]
        missing = self._cluster.waiting - to_decide - binding
        ghosts = (to_decide | binding) - pods.keys() - self._cluster.unreadable
        broken: list[Violation] = []
        for uid, since in self._bound.look(bound, at):
            what = f"bound, but in the queue for {at - since:.1f} s as {_place(look.contents, uid)}"
            broken.append(self._violation(Invariant.QUEUED_AND_BOUND, uid, what, now, at - since))
        for uid, since in self._missing.look(missing, at):
            what = f"not bound, but missing from the queue for {at - since:.1f} s"
            broken.append(self._violation(Invariant.ACCOUNTED_FOR, uid, what, now, at - since))
        for uid, since in self._ghosts.look(ghosts, at):
            what = f"does not exist, but in the queue for {at - since:.1f} s as {_place(look.contents, uid)}"
            broken.append(self._violation(Invariant.ACCOUNTED_FOR, uid, what, now, at - since))
        return broken

    def unavailable(self) -> None:
        """The queue is unavailable: the next one to answer may have started empty."""
        self._contents, self._unavailable = None, True
        self._forget()

    @property
    def at_rest(self) -> bool:
        """Whether the last poll showed no pod to be decided or bound."""
        return not self._unavailable and not self._busy()

    def finish(self, now: float) -> list[Violation]:
        """Only unschedulable and gated pods may be left."""
        if self._unavailable:
            return [self._cluster.violation(Invariant.ALL_BOUND, now, "the queue does not answer")]
        return [
            self._cluster.violation(Invariant.ALL_BOUND, now, f"still {place} in the queue at the end", uid=uid)
            for uid, place in self._busy()
        ]

    def _busy(self) -> list[tuple[str, str]]:
        contents = self._contents
        if contents is None:
            return []
        busy = [*contents.active, *contents.backoff, *contents.in_flight, *contents.binding]
        return [(uid, _place(contents, uid)) for uid in busy]

    def _forget(self) -> None:
        for suspicions in (self._bound, self._missing, self._ghosts):
            suspicions.clear()

    def _violation(self, invariant: Invariant, uid: str, what: str, now: float, seconds: float) -> Violation:
        return self._cluster.violation(invariant, now, what, uid=uid, numbers={"seconds": seconds})


def _was_bound(record: PodRecord | None, at: float) -> bool:
    return record is not None and record.bound_at is not None and bool(record.node) and record.bound_at < at


def _to_decide(contents: QueueContents) -> set[str]:
    return {
        *contents.active,
        *contents.backoff,
        *contents.unschedulable,
        *contents.gated,
        *contents.in_flight,
    }


def _place(contents: QueueContents, uid: str) -> str:
    places = [name for name in contents.__struct_fields__ if uid in getattr(contents, name)]
    return " and ".join(places)
