"""Watcher: turns what the API server says into one numbered stream of changes.

It keeps no objects: every change is passed on as it comes. What is in a listing stands between marks; a kind's events
never stand between the marks of that kind, for the API server tells one after the other.
"""

from collections.abc import Iterable, Sequence

import msgspec

from services.watcher.events import Asked, Beat, Complain, Effect, Event, Heard, ListAgain, Publish, Skipped, Tick
from services.watcher.outline import outline
from services.watcher.resources import MOST_BODY_BYTES, RESOURCES, describe, unreadable
from shared.errors import FlotillaError, InvariantBroken
from shared.kube.listwatch import Events, ListBegins, ListEnds, ListPage, WatchEvent
from shared.messages.watch import (
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    PodChange,
    WatchBeat,
    WatchChange,
    Watched,
)

MOST_CHANGES = 256
"""Of one message."""
MOST_MESSAGE_BYTES = MOST_BODY_BYTES
"""Of the bodies in one message; with the names around them that stays below what any NATS server takes (1 MiB)."""
RELIST_PAUSE = 1.0
"""Seconds between two listings that were asked for, at least."""
MOST_COMPLAINTS = 10_000
"""So many unusable objects of a kind are remembered; the owners of further ones hear of theirs more than once."""


class WatcherCore:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._seq = 0
        self._complaints: dict[Kind, _Complaints] = {kind: _Complaints() for kind in RESOURCES}
        self._list_at: float | None = None
        self._listed_at: float | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Heard(kind=kind, what=what):
                return self._on_heard(kind, what, now)
            case Asked():
                return self._on_asked(now)
            case Tick():
                return self._on_tick(now)
            case Beat():
                return [Publish(WatchBeat(self.epoch, self._seq))]

    def next_deadline(self) -> float | None:
        return self._list_at

    @property
    def seq(self) -> int:
        return self._seq

    # What the API server says

    def _on_heard(self, kind: Kind, what: ListBegins | ListPage | ListEnds | Events, now: float) -> list[Effect]:
        match what:
            case Events(events=events):
                return self._on_events(kind, events, now)
            case ListPage(objects=objects):
                return self._on_page(kind, objects, now)
            case ListBegins():
                self._complaints[kind].begin_listing()
                return [self._publish([ListingBegins(kind)])]
            case ListEnds():
                self._complaints[kind].end_listing()
                return [self._publish([ListingEnds(kind)])]

    def _on_page(self, kind: Kind, objects: Sequence[msgspec.Raw], now: float) -> list[Effect]:
        """Finished pods are left out: who knows them as unfinished hears that they are gone when the listing ends."""
        effects: list[Effect] = []
        changes: list[WatchChange] = []
        for raw in objects:
            change = self._read(kind, raw, now, effects)
            if change is not None and not (isinstance(change, PodChange) and change.finished):
                changes.append(change)
        return [*self._publish_all(changes), *effects]

    def _on_events(self, kind: Kind, events: Iterable[WatchEvent], now: float) -> list[Effect]:
        effects: list[Effect] = []
        changes: list[WatchChange] = []
        for event in events:
            if event.type == "DELETED":
                change = self._gone(kind, event.object, now, effects)
            else:
                change = self._read(kind, event.object, now, effects)
            if change is not None:
                changes.append(change)
        return [*self._publish_all(changes), *effects]

    def _read(self, kind: Kind, raw: msgspec.Raw, now: float, effects: list[Effect]) -> WatchChange | None:
        try:
            change = RESOURCES[kind].read(raw, now)
        except (FlotillaError, ValueError, RecursionError) as cause:
            return self._refuse(kind, raw, cause, effects)
        if self._complaints[kind]:
            self._complaints[kind].settle(_key(change))
        return change

    def _gone(self, kind: Kind, raw: msgspec.Raw, now: float, effects: list[Effect]) -> WatchChange | None:
        found = outline(raw)
        if found is None:
            effects.append(Skipped(kind, "an object without a name was deleted"))
            return None
        change = RESOURCES[kind].gone(found, now)
        self._complaints[kind].settle(_key(change))
        return change

    def _refuse(self, kind: Kind, raw: msgspec.Raw, cause: Exception, effects: list[Effect]) -> WatchChange | None:
        found = outline(raw)
        if found is None:
            effects.append(Skipped(kind, describe(cause)))
            return None
        change = unreadable(kind, found, cause)
        key = change.uid if kind is Kind.POD else change.name
        if self._complaints[kind].is_new(key, change.problem):
            effects.append(Complain(change, found.metadata.generation, found.said_unscheduled))
        return change

    # Listings that are asked for

    def _on_asked(self, now: float) -> list[Effect]:
        if self._list_at is None:
            earliest = now if self._listed_at is None else self._listed_at + RELIST_PAUSE
            self._list_at = min(max(now, earliest), now + RELIST_PAUSE)
        return self._on_tick(now)

    def _on_tick(self, now: float) -> list[Effect]:
        if self._list_at is None or now < self._list_at:
            return []
        self._list_at, self._listed_at = None, now
        return [ListAgain()]

    # Messages

    def _publish_all(self, changes: Sequence[WatchChange]) -> Iterable[Effect]:
        part: list[WatchChange] = []
        size = 0
        for change in changes:
            more = len(change.body) if isinstance(change, PodChange | NodeChange) else 0
            if part and (len(part) == MOST_CHANGES or size + more > MOST_MESSAGE_BYTES):
                yield self._publish(part)
                part, size = [], 0
            part.append(change)
            size += more
        if part:
            yield self._publish(part)

    def _publish(self, changes: list[WatchChange]) -> Publish:
        self._seq += 1
        return Publish(Watched(self.epoch, self._seq, changes))

    def validate(self) -> None:
        """What is remembered stays bounded."""
        for kind, complaints in self._complaints.items():
            if len(complaints) > 2 * MOST_COMPLAINTS:
                raise InvariantBroken(f"{kind}: {len(complaints)} complaints are remembered")


class _Complaints:
    """What the owners of a kind's unusable objects have been told; forgotten with the object or its problem.

    By problem, not by version: telling the owner makes a version of its own.
    """

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._before: dict[str, str] = {}
        """From before the listing that is under way; what it does not name is forgotten."""

    def __len__(self) -> int:
        return len(self._told) + len(self._before)

    def is_new(self, key: str, problem: str) -> bool:
        told = self._told.pop(key, None) or self._before.pop(key, None)
        if len(self._told) >= MOST_COMPLAINTS:
            del self._told[next(iter(self._told))]
        self._told[key] = problem
        return told != problem

    def settle(self, key: str) -> None:
        self._told.pop(key, None)
        self._before.pop(key, None)

    def begin_listing(self) -> None:
        self._before = (self._before | self._told) if len(self) <= MOST_COMPLAINTS else self._told
        self._told = {}

    def end_listing(self) -> None:
        self._before = {}


def _key(change: PodChange | NodeChange) -> str:
    return change.uid if isinstance(change, PodChange) else change.name
