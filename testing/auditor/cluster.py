"""All that the auditor knows, for its judges to look at."""

from collections.abc import Iterable, Mapping

from shared.errors import InvariantBroken
from testing.auditor.limits import Limits
from testing.auditor.nodes import Nodes
from testing.auditor.pods import PodRecord, Pods
from testing.auditor.rooms import Room
from testing.auditor.streams import Streams
from testing.auditor.violations import Invariant, Violation

EMPTY = Room()


class Cluster:
    """`unreadable`: uids of pods that exist and of which nothing can be said; `waiting`: those to be scheduled, `gated`
    those of them that have gates."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.streams = Streams(limits.lag)
        self.pods = Pods()
        self.nodes = Nodes()
        self.unreadable: set[str] = set()
        self.waiting: set[str] = set()
        self.gated: set[str] = set()
        self.oldest_assumed: float | None = None
        self._rooms: dict[str, Room] = {}

    def room(self, node: str) -> Room:
        return self._rooms.get(node, EMPTY)

    def put(self, record: PodRecord, now: float) -> None:
        self._rooms.setdefault(record.node, Room()).put(record.uid, record.demand, now, decided=record.decided)

    def take(self, record: PodRecord) -> None:
        """From the room that it is in, if any."""
        room = self._rooms.get(record.node)
        if room is not None and record.uid in room.places:
            room.take(record.uid)
            if not room.places:
                del self._rooms[record.node]

    def list_waiting(self, record: PodRecord) -> None:
        """Where it belongs as it is now."""
        self.unlist(record.uid)
        if record.waits:
            self.waiting.add(record.uid)
            if record.gated:
                self.gated.add(record.uid)

    def unlist(self, uid: str) -> None:
        self.waiting.discard(uid)
        self.gated.discard(uid)

    def horizon(self, now: float) -> float:
        """What was so before this, and changed before this, no decision that is still to be judged can rest on."""
        reach = self.streams.reach(now)
        return (reach if self.oldest_assumed is None else min(reach, self.oldest_assumed)) - self.limits.lag

    def decided_since(self, record: PodRecord, now: float) -> float:
        """A decision that is seen now was made after this."""
        reach, assumed = self.streams.reach(now), record.assumed
        if assumed is not None and assumed.node == record.node:
            reach = min(reach, assumed.since)
        return reach - self.limits.lag

    def violation(
        self,
        invariant: Invariant,
        now: float,
        what: str,
        *,
        uid: str = "",
        node: str = "",
        numbers: Mapping[str, float] | None = None,
    ) -> Violation:
        record = self.pods.remembered(uid)
        return Violation(
            invariant,
            now,
            what,
            uid=uid,
            pod=record.key if record is not None else "unknown" if uid else "",
            node=node or (record.node if record is not None else ""),
            numbers=numbers or {},
            story=record.story() if record is not None else (),
        )

    def validate(self) -> None:
        """Counts everything anew."""
        for name, room in self._rooms.items():
            room.validate(name)
        _same("pods in rooms", ((uid, node) for node, room in self._rooms.items() for uid in room.places), self._held())
        demands = ((r.uid, self.room(r.node).places[r.uid].demand == r.demand) for r in self.pods.values() if r.holds)
        _same("demands", demands, ((uid, True) for uid, _ in self._held()))
        waiting = {uid for uid, record in self.pods.items() if record.waits and uid not in self.unreadable}
        _same("waiting pods", self.waiting, waiting)
        _same("gated pods", self.gated, (uid for uid in waiting if self.pods[uid].gated))

    def _held(self) -> list[tuple[str, str]]:
        return [(uid, record.node) for uid, record in self.pods.items() if record.holds]


def _same(what: str, kept: Iterable[object], recount: Iterable[object]) -> None:
    difference = set(kept) ^ set(recount)
    if difference:
        raise InvariantBroken(f"{what}: kept and counted anew differ by {difference}")
