"""Checks the assume ledger, permits and the queue: entries and waits end, and all three agree with the pods that exist.

Ledger and queue are polled, independently of the watch, so what a poll shows counts only if the next one shows it too.
Messages about permits may be lost, so a wait has also ended when its pod is bound or gone, or its entry has left the
ledger.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from shared.messages.binding import BindingOutcome
from shared.messages.queue import QueueContents
from shared.messages.state import LedgerEntry
from testing.auditor.cluster import Assumed, AuditedCluster, PodRecord
from testing.auditor.placements import capacity_objection
from testing.auditor.usage import NOTHING, Amounts, Demand, NodeUsage
from testing.auditor.violations import Debouncer, Invariant

Key = tuple[str, int]
"""A pod's uid and its attempt."""
AssumedPods = Sequence[tuple[PodRecord, Assumed]]


def _as_devices(entry: LedgerEntry) -> frozenset[str]:
    devices = entry.assignment.devices
    return (
        frozenset()
        if devices is None or devices.special is None
        else frozenset(each.resource for each in devices.special.mappings)
    )


class LedgerChecks:
    def __init__(self, cluster: AuditedCluster) -> None:
        self._cluster = cluster
        self._entries: dict[str, tuple[LedgerEntry, float]] = {}
        """By uid, with the end of the entry's window by our clock."""
        self._unending: Debouncer[Key] = Debouncer(cluster.limits.patience)
        self._crowded: set[Key] = set()
        self._unavailable = False

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, entries: Sequence[LedgerEntry] | None, asked_at: float) -> None:
        """None: the ledger is unavailable, so no one could have removed entries either."""
        self._unavailable = entries is None
        if entries is None:
            self._unending.clear()
            return
        self._begin_windows(entries, asked_at)
        self._crowded &= {(entry.uid, entry.attempt) for entry in entries}
        assumed = self._assumed(entries, asked_at)
        self._cluster.oldest_assumed = min((a.since for _, a in assumed), default=None)
        if self._cluster.whole(asked_at):
            self._check_ends(entries, asked_at)
            self._check_usage(assumed, asked_at)
        else:
            self._unending.clear()

    @property
    def at_rest(self) -> bool:
        return not self._unavailable and not self._entries

    def finish(self) -> None:
        if self._unavailable:
            self._cluster.report(Invariant.LEDGER_ENDS, "the ledger cannot be read")
            return
        for entry, _ in self._entries.values():
            self._not_ended(entry, "the entry is still there at the end")

    def _begin_windows(self, entries: Sequence[LedgerEntry], asked_at: float) -> None:
        """Deadlines are by another clock, so count each window from when it is first seen."""
        before, self._entries = self._entries, {}
        for entry in entries:
            known, end = before.get(entry.uid, (None, 0.0))
            if known is None or (known.attempt, known.deadline) != (entry.attempt, entry.deadline):
                end = asked_at + entry.window
            self._entries[entry.uid] = entry, end

    def _assumed(self, entries: Sequence[LedgerEntry], asked_at: float) -> AssumedPods:
        """The pods that occupy a node only by the ledger."""
        found = []
        for entry in entries:
            record = self._cluster.pods.get(entry.uid)
            if record is None or record.node or record.finished:
                continue
            assumed = record.assumed
            if assumed is None or assumed.attempt != entry.attempt:
                assumed = record.assumed = Assumed(entry.attempt, entry.node, asked_at, _as_devices(entry))
                record.note(asked_at, f"assumed on node {entry.node}, attempt {entry.attempt}")
            found.append((record, assumed))
        return found

    def _check_ends(self, entries: Sequence[LedgerEntry], at: float) -> None:
        suspects: dict[Key, tuple[LedgerEntry, str]] = {}
        for entry in entries:
            why = self._why_over(entry, at)
            if why:
                suspects[entry.uid, entry.attempt] = entry, f"{why}, but the entry is still there"
        for key, _ in self._unending.look(suspects, at):
            self._not_ended(*suspects[key])

    def _why_over(self, entry: LedgerEntry, at: float) -> str:
        if entry.held:
            return ""  # as long as the attempt's claims have not changed
        if self._entries[entry.uid][1] < at:
            return "its window has ended"
        record = self._cluster.pods.get(entry.uid)
        if record is None:
            return "" if entry.uid in self._cluster.unreadable else "the pod does not exist"
        if record.finished:
            return "the pod has finished"
        return f"the pod is bound to node {record.node}" if record.node else ""

    def _not_ended(self, entry: LedgerEntry, what: str) -> None:
        self._cluster.report(Invariant.LEDGER_ENDS, what, uid=entry.uid, node=entry.node)

    def _check_usage(self, assumed: AssumedPods, at: float) -> None:
        """Pods assumed at least `lag` ago: everything that made room for them has been seen by now."""
        by_node: defaultdict[str, list[tuple[PodRecord, Assumed]]] = defaultdict(list)
        for record, assumption in assumed:
            if at - assumption.since >= self._cluster.limits.lag:
                by_node[assumption.node].append((record, assumption))
        for node, pods in by_node.items():
            since = min(assumption.since for _, assumption in pods) - self._cluster.limits.lag
            self._check_capacity(node, pods, since)
            self._check_ports(node, pods, since)

    def _check_capacity(self, name: str, pods: AssumedPods, since: float) -> None:
        together: Amounts = Counter()
        for record, assumption in pods:
            amounts = record.demand.amounts
            together.update({name: amounts[name] for name in amounts.keys() - assumption.as_devices})
        totals, nodes = self._cluster.usage(name).counted(since) + together, self._cluster.nodes
        if nodes.was_unknown(name, since):
            return
        objections = [capacity_objection(together, totals, standing) for standing in nodes.states_since(name, since)]
        if objections and None not in objections:  # without any, the node is gone, and so will be what is assumed there
            self._report(pods, Invariant.CAPACITY, f"with what is assumed there, {objections[-1]}")

    def _check_ports(self, name: str, pods: AssumedPods, since: float) -> None:
        bound, among = self._cluster.usage(name), NodeUsage()
        for record, assumption in pods:
            clashes = (usage.port_clash(record.uid, record.demand, since) for usage in (bound, among))
            clash = next(filter(None, clashes), None)
            if clash is not None:
                what = f"{clash[1].protocol} port {clash[1].number}, assumed, is taken by pod {clash[0]}"
                self._report([(record, assumption)], Invariant.HOST_PORTS, what)
            among.add(record.uid, Demand(NOTHING.amounts, record.demand.ports), self._cluster.now, decided=True)

    def _report(self, pods: AssumedPods, invariant: Invariant, what: str) -> None:
        """Report each assumption once; of several that exceed a node together, name the newest."""
        keys = {(record.uid, assumption.attempt) for record, assumption in pods}
        if not keys <= self._crowded:
            self._crowded |= keys
            newest, assumption = max(pods, key=lambda each: each[1].attempt)
            self._cluster.report(invariant, what, uid=newest.uid, node=assumption.node)


class PermitChecks:
    def __init__(self, cluster: AuditedCluster) -> None:
        self._cluster = cluster
        self._waits: dict[Key, tuple[float, float]] = {}
        """When the wait ends, and when that was reported."""

    @property
    def at_rest(self) -> bool:
        return not self._waits

    def on_outcomes(self, outcomes: Sequence[BindingOutcome]) -> None:
        now = self._cluster.now
        for outcome in outcomes:
            wait = (outcome.uid, outcome.attempt)
            if outcome.wait is None:
                self._waits.pop(wait, None)
            else:
                self._waits[wait] = (now + outcome.wait, now)
                record = self._cluster.pods.get(outcome.uid)
                if record is not None:
                    record.note(now, f"waits for a permit, attempt {outcome.attempt}")

    def read_ledger(self, entries: Sequence[LedgerEntry], asked_at: float) -> None:
        standing = {(entry.uid, entry.attempt) for entry in entries}
        self._waits = {
            wait: (until, reported)
            for wait, (until, reported) in self._waits.items()
            if wait in standing or reported >= asked_at
        }

    def expire(self) -> None:
        if self._waits and self._cluster.whole(self._cluster.now):
            latest = self._cluster.now - self._cluster.limits.patience
            self._end([wait for wait, (until, _) in self._waits.items() if until < latest])

    def finish(self) -> None:
        self._end(list(self._waits))

    def _end(self, waits: Sequence[Key]) -> None:
        for uid, attempt in waits:
            del self._waits[uid, attempt]
            record = self._cluster.pods.get(uid)
            if record is not None and not record.node:
                what = f"attempt {attempt} still waits for a permit"
                self._cluster.report(Invariant.PERMIT_ENDS, what, uid=uid)


class QueueChecks:
    def __init__(self, cluster: AuditedCluster) -> None:
        self._cluster = cluster
        self._contents: QueueContents | None = None
        self._unavailable = False
        self._suspects: Debouncer[tuple[str, str]] = Debouncer(cluster.limits.patience)
        """What is wrong, and the pod's uid."""

    def read(self, contents: QueueContents | None, asked_at: float) -> None:
        """None: the queue is unavailable, and the next one to answer may have started empty."""
        self._contents, self._unavailable = contents, contents is None
        if contents is None or not self._cluster.whole(asked_at):
            self._suspects.clear()
            return
        pods, binding = self._cluster.pods, set(contents.binding)
        resting = {*contents.backoff, *contents.unschedulable, *contents.gated}
        to_decide = {*contents.active, *contents.in_flight} | resting
        bound = {uid for uid in to_decide if uid in pods and pods[uid].was_bound(asked_at)}
        missing = self._cluster.waiting - to_decide - binding
        ghosts = (to_decide | binding) - pods.keys() - self._cluster.unreadable
        suspects: dict[tuple[str, str], Invariant] = {}
        for what, uids, invariant in (
            ("bound, but in the queue", bound, Invariant.QUEUED_AND_BOUND),
            ("not bound, but missing from the queue", missing, Invariant.ACCOUNTED_FOR),
            ("does not exist, but in the queue", ghosts, Invariant.ACCOUNTED_FOR),
        ):
            suspects.update(((what, uid), invariant) for uid in uids)
        for (what, uid), since in self._suspects.look(suspects, asked_at):
            place = f" as {_place(contents, uid)}" if uid not in missing else ""
            self._cluster.report(suspects[what, uid], f"{what} for {asked_at - since:.1f} s{place}", uid=uid)

    @property
    def at_rest(self) -> bool:
        """Whether the last poll showed no pod to be decided or bound."""
        return not self._unavailable and not self._busy()

    def finish(self) -> None:
        """Only unschedulable and gated pods may be left."""
        if self._unavailable:
            self._cluster.report(Invariant.ALL_BOUND, "the queue does not answer")
        elif self._contents is not None:
            for uid in self._busy():
                what = f"still {_place(self._contents, uid)} in the queue at the end"
                self._cluster.report(Invariant.ALL_BOUND, what, uid=uid)

    def _busy(self) -> list[str]:
        contents = self._contents
        if contents is None:
            return []
        return [*contents.active, *contents.backoff, *contents.in_flight, *contents.binding]


def _place(contents: QueueContents, uid: str) -> str:
    places = [name for name in contents.__struct_fields__ if uid in getattr(contents, name)]
    return " and ".join(places)
