"""The journal: what the cycle decided about pods, kept for a while for those who ask why.

One small record for each kind of decision of a pod: where it was placed, why its last attempt failed, whom it
preempted, and by whom it was preempted. What pods of a class have in common is kept once for each round. The oldest
pods go when there are too many, in number or in bytes. A new term begins with an empty journal.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from services.cycle.events import Failed, Unschedulable
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import GangShort
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.views import NO_VIEW, ClassView
from shared.messages.explaining import EVICTED, FAILED, NOMINATED, PLACED, Remembered, ScoredNode
from shared.messages.preemption import Victim

MAX_PODS = 1 << 14
"""Pods with records: a few minutes of decisions at full speed, hours otherwise."""
MAX_BYTES = 16 << 20
"""About how much memory records take at most."""
MAX_TEXT = 1024
"""Characters of a message, and victims' names in one record."""
RECORD_BYTES = 400
"""Of a record without its texts and its class's view."""
RUNG_BYTES = 40
"""Of a node in a class's view, most of which are shared by the pods of the class."""
MAX_VICTIMS = 16
_NOT_SHORT = GangShort(0, 0, 0)


class Record(msgspec.Struct, frozen=True, gc=False):
    """`at` is a time of the cycle's own clock. Fields as in Remembered."""

    kind: str
    at: float
    attempt: int
    round: int
    seq: int
    node: str = ""
    score: int = 0
    view: ClassView = NO_VIEW
    message: str = ""
    names: tuple[str, ...] = ()
    preemptor: str = ""
    candidates: int = 0
    gang: str = ""
    short: GangShort | None = None

    @property
    def bytes(self) -> int:
        return RECORD_BYTES + len(self.message) + 64 * len(self.names) + RUNG_BYTES * self.view.rungs + self._of_gang

    @property
    def _of_gang(self) -> int:
        return 0 if self.short is None else len(self.short.why)


class _Entry(msgspec.Struct, gc=False):
    namespace: str
    name: str
    records: list[Record]
    bytes: int


class Journal:
    def __init__(self, most: int = MAX_PODS, most_bytes: int = MAX_BYTES) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    # Writing

    def placed(self, info: PodInfo, placement: Placement, round_: int, view: ClassView, now: float) -> None:
        gang = "" if info.gang is None else info.gang.key
        record = Record(
            PLACED, now, info.attempt, round_, placement.seen, placement.node, placement.score, view, gang=gang
        )
        self._put_of(info, record)

    def unplaced(self, effect: Unschedulable | Failed, round_: int, seq: int, now: float) -> None:
        """A failed attempt; and if victims are evicted for the pod, which ones."""
        info = effect.pod
        if info is None:
            return
        gang = "" if info.gang is None else info.gang.key
        if isinstance(effect, Failed):
            text = effect.status.message[:MAX_TEXT]
            self._put_of(info, Record(FAILED, now, info.attempt, round_, seq, message=text, gang=gang))
            return
        unfit, found = effect.unfit, effect.preemption
        view = ClassView(0, unfit.nodes)
        members, text = unfit.kept_out_by[:MAX_VICTIMS], unfit.message[:MAX_TEXT]
        failed = Record(
            FAILED, now, info.attempt, round_, seq, view=view, message=text, names=members, gang=gang, short=unfit.gang
        )
        self._put_of(info, failed)
        if found is not None and found.nominated and found.victims:
            self._nominated(info, found.nominated, found.victims, len(found.candidates), round_, seq, now)

    def _nominated(
        self,
        info: PodInfo,
        node: str,
        victims: Sequence[Victim],
        candidates: int,
        round_: int,
        seq: int,
        now: float,
    ) -> None:
        keys = tuple(victim.key for victim in victims[:MAX_VICTIMS])
        record = Record(NOMINATED, now, info.attempt, round_, seq, node, names=keys, candidates=candidates)
        self._put_of(info, record)
        for victim in victims:
            namespace, _, name = victim.key.partition("/")
            others = tuple(key for key in keys if key != victim.key)
            evicted = Record(
                EVICTED, now, 0, round_, seq, node, info.template.priority, names=others, preemptor=info.key,
                candidates=candidates, message=f"priority {victim.priority}",
            )  # fmt: skip
            self._put(victim.uid, namespace, name, evicted)

    def _put_of(self, info: PodInfo, record: Record) -> None:
        self._put(info.uid, info.namespace, info.name, record)

    def _put(self, uid: str, namespace: str, name: str, record: Record) -> None:
        """In place of the pod's last record of this kind."""
        entries, added = self._entries, record.bytes
        entry = entries.get(uid)
        if entry is None:
            entries[uid] = _Entry(namespace, name, [record], added)
        else:
            entries.move_to_end(uid)
            for i, known in enumerate(entry.records):
                if known.kind == record.kind:
                    added -= known.bytes
                    del entry.records[i]
                    break
            entry.records.append(record)
            entry.bytes += added
        self._bytes += added
        while len(entries) > self._most or (self._bytes > self._most_bytes and len(entries) > 1):
            self._bytes -= entries.popitem(last=False)[1].bytes

    # Reading

    def of(
        self, uid: str, namespace: str, name: str, date: Callable[[float], float]
    ) -> tuple[str, tuple[Remembered, ...]]:
        """The uid and the records of a pod, the last one first; by its name if the uid is not known.

        Of several pods of a name, one after the other, the last. `date` makes times Unix times.
        """
        if uid not in self._entries:
            found = (u for u in reversed(self._entries) if _is_named(self._entries[u], namespace, name))
            uid = next(found, "")
        entry = self._entries.get(uid)
        records = [] if entry is None else entry.records
        return uid, tuple(_remembered(each, date) for each in reversed(records))


def _is_named(entry: _Entry, namespace: str, name: str) -> bool:
    return entry.name == name and entry.namespace == namespace


def _remembered(record: Record, date: Callable[[float], float]) -> Remembered:
    """The pod's own node is not among those that were next best."""
    best = [(node, score) for node, score in record.view.best() if node != record.node]
    if record.kind == PLACED:
        best.insert(0, (record.node, record.score))
    short = record.short or _NOT_SHORT
    return Remembered(
        kind=record.kind,
        at=date(record.at),
        attempt=record.attempt,
        round=record.round,
        seq=record.seq,
        node=record.node,
        score=record.score,
        best=tuple(ScoredNode(node, score) for node, score in best),
        feasible=record.view.feasible,
        nodes=record.view.nodes,
        message=record.message,
        victims=record.names if record.kind != FAILED else (),
        kept_out_by=record.names if record.kind == FAILED else (),
        preemptor=record.preemptor,
        candidates=record.candidates,
        gang=record.gang,
        fits=short.fits,
        needs=short.needs,
        kept_out=short.kept_out,
        gang_why=short.why[:MAX_TEXT],
    )
