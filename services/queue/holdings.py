"""All pods that the queue knows, each in one place; `move` is the one way from place to place."""

from collections.abc import Iterator
from typing import Protocol

from services.queue.places import TRANSITIONS, Place
from services.queue.scheduling.backoff_queue import PodHeap
from services.queue.scheduling.in_flight_pods import Away
from services.queue.scheduling.pod_groups import Gangs
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.unschedulable_pods import Rejected
from services.queue.tally import Tally
from services.queue.timed import Timed
from shared.errors import InvariantBroken
from shared.messages.queue import QueueContents

AWAY = frozenset({Place.IN_FLIGHT, Place.BINDING})


class Holding(Protocol):
    """What keeps the pods of one place, in the order in which they leave it."""

    def add(self, entry: Entry) -> None: ...
    def discard(self, entry: Entry) -> None: ...
    def first(self) -> Entry | None: ...
    def validate(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Entry]: ...


class Holdings:
    def __init__(self, away: Away, tally: Tally, patience: float) -> None:
        """`patience`: seconds that a pod may be away, in flight or binding."""
        self.tally = tally
        self.entries: dict[str, Entry] = {}
        self.gangs = Gangs()
        self.active = PodHeap(lambda entry: entry.rank)
        self.backoff = PodHeap(lambda entry: (entry.backoff_until, entry.rank))
        self.error_backoff = PodHeap(lambda entry: (entry.backoff_until, entry.rank))
        self.unschedulable = Rejected()
        self.gated = Rejected()
        self.in_flight = Timed(patience)
        self.binding = Timed(patience)
        self.heaps = {
            Place.ACTIVE: self.active,
            Place.BACKOFF: self.backoff,
            Place.ERROR_BACKOFF: self.error_backoff,
        }
        self._at: dict[Place, Holding] = {
            **self.heaps,
            Place.UNSCHEDULABLE: self.unschedulable,
            Place.GATED: self.gated,
            Place.IN_FLIGHT: self.in_flight,
            Place.BINDING: self.binding,
        }
        self._away = away

    def move(self, entry: Entry, place: Place, now: float, why: str, gate: str | None = None) -> None:
        """What a holding sorts or finds by changes only while it does not have it."""
        before = entry.place
        if place not in TRANSITIONS[before]:
            raise InvariantBroken(f"pod {entry.pod.key}: {before} to {place} ({why}); before: {entry.told()}")
        if before is not Place.NEW:
            self._at[before].discard(entry)
        if gate is not None or entry.gate is not None:
            self.shut(entry, gate)
        if (before in AWAY) is not (place in AWAY):
            self._away.end(entry.uid) if before in AWAY else self._away.start(entry.uid)
        entry.place = place
        entry.tell(now, place, why)
        if before is Place.NEW or entry.uid in self.gangs:
            self.gangs.moved(entry, now)
        if place is Place.DONE:
            return
        if place is Place.ACTIVE and entry.active_at is None:
            entry.active_at = now
        self.tally.incoming[place, why] += 1
        self._at[place].add(entry)

    def shut(self, entry: Entry, gate: str | None) -> None:
        """Or open, if it is None. The gate is one more plugin that rejects the pod."""
        entry.gate = gate
        if gate and gate not in entry.plugins:
            if gate not in entry.pending:
                self.tally.reject((gate,), entry.framework.name)
            entry.plugins = (*entry.plugins, gate)

    def blame(self, entry: Entry, plugins: tuple[str, ...], pending: tuple[str, ...]) -> None:
        """Whom an attempt was rejected by, instead of who did before."""
        if entry.plugins or entry.pending:
            self.tally.clear(entry.rejectors, entry.framework.name)
        entry.plugins, entry.pending = plugins, pending
        if plugins or pending:
            self.tally.reject(entry.rejectors, entry.framework.name)

    # To look at

    def of(self, place: Place) -> Iterator[Entry]:
        """In the order in which they leave it."""
        return iter(self._at[place])

    def counts(self) -> dict[Place, int]:
        return {place: len(holding) for place, holding in self._at.items()}

    def contents(self) -> QueueContents:
        def uids(*places: Place) -> list[str]:
            return [entry.uid for place in places for entry in self.of(place)]

        return QueueContents(
            active=uids(Place.ACTIVE),
            backoff=uids(Place.BACKOFF, Place.ERROR_BACKOFF),
            unschedulable=uids(Place.UNSCHEDULABLE),
            gated=uids(Place.GATED),
            in_flight=uids(Place.IN_FLIGHT),
            binding=uids(Place.BINDING),
        )

    def validate(self) -> None:
        """Every pod is in one place and knows it, and every count and index agrees."""
        for place, holding in self._at.items():
            holding.validate()
            entries = list(holding)
            if len(entries) != len(holding):
                raise InvariantBroken(f"{len(entries)} pods are {place}, counted as {len(holding)}")
            for entry in entries:
                if entry.place is not place or self.entries.get(entry.uid) is not entry:
                    raise InvariantBroken(f"pod {entry.pod.key} is kept as {place}: {entry.told()}")
                if (entry.gate is not None) != (place is Place.GATED):
                    raise InvariantBroken(f"pod {entry.pod.key} is {place}, its gate {entry.gate}: {entry.told()}")
        if sum(self.counts().values()) != len(self.entries):
            raise InvariantBroken(f"{len(self.entries)} pods, and in the places {self.counts()}")
        self.gangs.validate()
        self._away.validate({entry.uid for place in AWAY for entry in self.of(place)})
        self.tally.validate((p, entry.framework.name) for entry in self.entries.values() for p in entry.rejectors)
