"""Watcher: turns what the API server says into one numbered stream of changes.

It keeps no objects: every change is passed on as it comes, but none that goes back in time. What is in a listing stands
between marks; a kind's events never stand between the marks of that kind, for the API server tells one after the other.

A kind that the server does not show us counts as one without objects: an empty listing says so.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from services.watcher.absence import Absence
from services.watcher.complaints import MOST_COMPLAINTS, Complaints
from services.watcher.events import (
    Asked,
    Beat,
    Complain,
    Denied,
    Effect,
    Event,
    Heard,
    ListAgain,
    Missing,
    Publish,
    Skipped,
    Stale,
    Tick,
)
from services.watcher.fitting import MOST_BODY_BYTES
from services.watcher.history import History
from services.watcher.outline import outline
from services.watcher.rescue import rescue
from services.watcher.resources import RESOURCES, Change, describe, unreadable
from shared.errors import InvariantBroken
from shared.kube.listwatch import Events, ListBegins, ListEnds, ListPage, Watching
from shared.kube.wire import WatchEvent, version_of
from shared.messages.watch import (
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    Unreadable,
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


class WatcherCore:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._seq = 0
        self._complaints = {kind: Complaints() for kind in RESOURCES}
        self._history = {kind: History() for kind in RESOURCES}
        self._absence = {kind: Absence() for kind, resource in RESOURCES.items() if not resource.required}
        self._list_at: float | None = None
        self._listed_at: float | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Heard(kind=kind, what=what, at=at):
                return self._on_heard(kind, what, at)
            case Denied(kind=kind, problem=problem):
                return self._on_denied(kind, problem, now)
            case Asked():
                return self._on_asked(now)
            case Tick():
                return self._on_tick(now)
            case Beat():
                return [Publish(WatchBeat(self.epoch, self._seq, [kind.value for kind in RESOURCES]))]

    def next_deadline(self) -> float | None:
        return self._list_at

    @property
    def seq(self) -> int:
        return self._seq

    def is_missing(self, kind: Kind) -> bool:
        """Whether the server shows no objects of this kind, and there count as none."""
        return kind in self._absence and self._absence[kind].missing

    # What the API server says

    def _on_heard(
        self, kind: Kind, what: ListBegins | ListPage | ListEnds | Watching | Events, at: float
    ) -> list[Effect]:
        match what:
            case Watching():
                return self._shown(kind)
            case Events(events=events):
                return self._on_events(kind, events, at)
            case ListPage(objects=objects):
                return [*self._shown(kind), *self._on_page(kind, objects, at)]
            case ListBegins(version=version):
                if self._history[kind].too_old_to_begin(version):
                    return [self._stale(kind, version)]
                self._complaints[kind].begin_listing()
                return [] if self.is_missing(kind) else [self._publish([ListingBegins(kind)])]
            case ListEnds(version=version, since=since):
                if not self._history[kind].listed(version, since):
                    return [self._stale(kind, version)]
                self._complaints[kind].end_listing()
                effects = [*self._shown(kind), self._publish([ListingEnds(kind, version)])]
                if kind in self._absence:
                    self._absence[kind].listed = True
                return effects

    # Kinds that may be missing

    def _shown(self, kind: Kind) -> list[Effect]:
        """While a kind is missing nobody is told that a listing begins, for most likely none does."""
        was_missing = kind in self._absence and self._absence[kind].shown()
        return [self._publish([ListingBegins(kind)])] if was_missing else []

    def _on_denied(self, kind: Kind, problem: str, now: float) -> list[Effect]:
        if not self._absence[kind].refused(now):
            return []
        return [self._publish([ListingBegins(kind), ListingEnds(kind)]), Missing(kind, problem)]

    def _on_page(self, kind: Kind, objects: Sequence[msgspec.Raw], at: float) -> list[Effect]:
        """Finished pods are left out: who knows them as unfinished hears that they are gone when the listing ends."""
        effects: list[Effect] = []
        changes: list[WatchChange] = []
        for raw in objects:
            change = self._read(kind, raw, at, effects)
            if change is not None and not (isinstance(change, PodChange) and change.finished):
                changes.append(change)
        return [*self._publish_all(changes), *effects]

    def _on_events(self, kind: Kind, events: Iterable[WatchEvent], at: float) -> list[Effect]:
        effects: list[Effect] = []
        changes: list[WatchChange] = []
        for event in events:
            version = version_of(event.object)
            if not self._history[kind].happened(version):
                effects.append(self._stale(kind, version))
                break
            if event.type == "DELETED":
                change = self._gone(kind, event.object, at, effects)
            else:
                change = self._read(kind, event.object, at, effects)
            if change is not None:
                changes.append(change)
        return [*self._publish_all(changes), *effects]

    def _read(self, kind: Kind, raw: msgspec.Raw, at: float, effects: list[Effect]) -> WatchChange | None:
        try:
            change = RESOURCES[kind].read(raw, at)
        except Exception as cause:  # whatever one object leads to, the others that came with it are told
            return self._refuse(kind, raw, cause, at, effects)
        if not isinstance(change, ObjectChange) and change.problem:
            self._complain(kind, raw, ValueError(change.problem), effects)
        elif self._complaints[kind]:
            self._complaints[kind].settle(_key(change))
        return change

    def _gone(self, kind: Kind, raw: msgspec.Raw, at: float, effects: list[Effect]) -> WatchChange | None:
        found = outline(raw)
        if found is None:
            effects.append(Skipped(kind, "an object without a name was deleted"))
            return None
        change = RESOURCES[kind].gone(found, at)
        self._complaints[kind].settle(_key(change))
        return change

    def _refuse(
        self, kind: Kind, raw: msgspec.Raw, cause: Exception, at: float, effects: list[Effect]
    ) -> WatchChange | None:
        """What does not decode is told as far as it can be read, so that it still counts; else as unreadable."""
        complaint = self._complain(kind, raw, cause, effects)
        found = outline(raw)
        if complaint is None or found is None:
            return None
        try:
            rescued = rescue(kind, found, raw, at)
        except Exception:  # on any failure, still report the object as present but unreadable
            return complaint
        match rescued:
            case PodChange():
                return replace(rescued, scheduler=complaint.scheduler, problem=complaint.problem)
            case NodeChange():
                return replace(rescued, problem=complaint.problem if rescued.problem else "")
        return rescued or complaint

    def _complain(self, kind: Kind, raw: msgspec.Raw, cause: Exception, effects: list[Effect]) -> Unreadable | None:
        """None where the object has no name."""
        found = outline(raw)
        if found is None:
            effects.append(Skipped(kind, describe(cause)))
            return None
        change = unreadable(kind, found, cause)
        if self._complaints[kind].is_new(change.key, change.problem):
            effects.append(Complain(change, found.metadata.generation, found.said_unscheduled))
        return change

    def _stale(self, kind: Kind, version: str) -> Stale:
        newest = self._history[kind].shown
        return Stale(kind, f"a state of version {version} is shown, older than {newest}, which was shown before")

    # Listings that are asked for

    def _on_asked(self, now: float) -> list[Effect]:
        """Who asks before anything was said hears it all, and needs no listing of its own."""
        if not self._seq:
            return []
        if self._list_at is None:
            earliest = now if self._listed_at is None else self._listed_at + RELIST_PAUSE
            self._list_at = min(max(now, earliest), now + RELIST_PAUSE)
        return self._on_tick(now)

    def _on_tick(self, now: float) -> list[Effect]:
        if self._list_at is None or now < self._list_at:
            return []
        self._list_at, self._listed_at = None, now
        missing = [kind for kind in self._absence if self.is_missing(kind)]
        return [ListAgain(), *(self._publish([ListingBegins(kind), ListingEnds(kind)]) for kind in missing)]

    # Messages

    def _publish_all(self, changes: Sequence[WatchChange]) -> Iterable[Effect]:
        part: list[WatchChange] = []
        size = 0
        for change in changes:
            more = len(change.body) if isinstance(change, Change) else 0
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


def _key(change: Change) -> str:
    match change:
        case PodChange(uid=uid):
            return uid
        case NodeChange(name=name):
            return name
        case ObjectChange(key=key):
            return key
