"""WatchReader: follows the watcher's stream, and knows when what it has seen is the whole cluster.

    unsynced --a listing of every kind, seen whole--> synced
        ^                                               |
        +-- a message is missing, or the watcher is new-+

Changes are passed on in order, each at most once, and never one that is older than what was passed on before. What a
whole listing does not name is reported as gone; so after one, the consumer's world is the watcher's, whatever was lost.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from shared.errors import MOST_REMEMBERED, InvariantBroken, ProtocolError
from shared.messages.watch import (
    OBJECT_KINDS,
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    Relist,
    Unreadable,
    WatchBeat,
    WatchChange,
    Watched,
)

FIRST_PATIENCE = 0.5
"""Seconds that a listing that was asked for is waited for; twice as long each time, until one is complete."""
LONGEST_PATIENCE = 8.0
DOUBT_PAUSE = 10.0
"""Seconds between two listings that are asked for because the stream has shown the past."""

Seen = PodChange | NodeChange | ObjectChange | Unreadable
Effect = Seen | Relist
"""Changes are to be applied in order; a Relist is to be sent to the watcher."""


@dataclass(slots=True)
class _Objects:
    """What the consumer knows of one kind: pods by uid, others by key. `listed`: the part of a listing seen so far.

    `version`: of the last listing that was seen whole.
    """

    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    listed: set[str] | None = None
    complete: bool = False
    version: str = ""


class WatchReader:
    """Pure: it is told messages and the time, and says what to do. It remembers keys, never objects."""

    def __init__(self, asker: str) -> None:
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self.listings = 0
        """Listings of pods that were seen whole."""
        self._asker = asker
        self._epoch = 0
        self._seq = 0
        self._objects = {kind: _Objects() for kind in Kind}
        self._listed: frozenset[Kind] = frozenset(Kind)
        """The kinds that the watcher lists; one of an earlier release does not list all that are known here."""
        self._patience = FIRST_PATIENCE
        self._ask_at: float | None = None
        self._doubt_at = -math.inf

    @property
    def synced(self) -> bool:
        """A listing of every kind has been seen whole, and nothing was missed since."""
        return all(self._objects[kind].complete for kind in self._listed)

    @property
    def epoch(self) -> int:
        """The watcher's; 0 before anything was heard."""
        return self._epoch

    @property
    def position(self) -> tuple[int, int]:
        """The watcher's epoch, and the number of its last message that was heard."""
        return self._epoch, self._seq

    def version_of(self, kind: Kind) -> str:
        """The resourceVersion of the kind's last listing that was seen whole; empty if there is none."""
        return self._objects[kind].version

    def count(self, kind: Kind) -> int:
        return len(self._objects[kind].names)

    def start(self, now: float) -> list[Effect]:
        return [self._ask(now)]

    def next_deadline(self) -> float | None:
        """When `tick` wants to be called; None while synced."""
        return self._ask_at

    def doubt(self, now: float) -> list[Effect]:
        """The stream has shown the past: asks for a listing, but not all the time."""
        if self._ask_at is not None or now < self._doubt_at:
            return []
        self._doubt_at = now + DOUBT_PAUSE
        return [Relist(self._asker)]

    def tick(self, now: float) -> list[Effect]:
        return [self._ask(now)] if self._ask_at is not None and now >= self._ask_at else []

    def take(self, message: Watched | WatchBeat, now: float) -> list[Effect]:
        if message.epoch < self._epoch:
            self.refused.append(ProtocolError(f"watch {message.seq} of epoch {message.epoch}, now {self._epoch}"))
            return []
        if message.epoch > self._epoch:
            self._begin_epoch(message.epoch, now)
        effects: list[Effect] = []
        if isinstance(message, WatchBeat):
            if message.kinds:
                self._listed = frozenset(kind for kind in Kind if kind.value in message.kinds)
            if message.seq > self._seq:
                self._miss(message.seq, effects, now)
            elif self.synced:
                self._rest()
            return effects
        if message.seq <= self._seq:
            return []  # doubled, or overtaken
        if message.seq > self._seq + 1:
            self._miss(message.seq - 1, effects, now)
        self._seq = message.seq
        for change in message.changes:
            self._apply(change, effects)
        if self.synced:
            self._rest()
        elif any(objects.listed is not None for objects in self._objects.values()):
            self._ask_at = now + self._patience  # a listing is under way: asking for another would not speed it up
        return effects

    # Inside

    def _rest(self) -> None:
        self._ask_at, self._patience = None, FIRST_PATIENCE

    def _begin_epoch(self, epoch: int, now: float) -> None:
        """A new watcher lists everything by itself; whoever hears it from its first message on need not ask."""
        self._epoch, self._seq, self._listed = epoch, 0, frozenset(Kind)
        self._distrust()
        if self._ask_at is None:
            self._ask_at = now + self._patience

    def _miss(self, newest: int, effects: list[Effect], now: float) -> None:
        self.refused.append(ProtocolError(f"watch {self._seq + 1} of epoch {self._epoch}: it has not come"))
        self._seq = newest
        self._distrust()
        if self._ask_at is None:
            effects.append(self._ask(now))

    def _distrust(self) -> None:
        for objects in self._objects.values():
            objects.complete = False
            objects.listed = None

    def _ask(self, now: float) -> Relist:
        self._ask_at = now + self._patience
        self._patience = min(2 * self._patience, LONGEST_PATIENCE)
        return Relist(self._asker)

    def _apply(self, change: WatchChange, effects: list[Effect]) -> None:
        match change:
            case PodChange():
                known = not (change.gone or change.finished)
                self._note(Kind.POD, change.uid, (change.namespace, change.name) if known else None)
                effects.append(change)
            case NodeChange():
                self._note(Kind.NODE, change.name, None if change.gone else ("", change.name))
                effects.append(change)
            case ObjectChange(kind=object_kind, key=key):
                self._note(Kind(object_kind.value), key, None if change.gone else ("", key))
                effects.append(change)
            case Unreadable():
                self._note(change.kind, change.key, (change.namespace, change.name))
                effects.append(change)
            case ListingBegins(kind=kind):
                self._objects[kind].listed = set()
            case ListingEnds(kind=kind, version=version):
                effects += self._sweep(kind, version)

    def _note(self, kind: Kind, key: str, name: tuple[str, str] | None) -> None:
        objects = self._objects[kind]
        if name is None:
            objects.names.pop(key, None)
            if objects.listed is not None:
                objects.listed.discard(key)
            return
        objects.names[key] = name
        if objects.listed is not None:
            objects.listed.add(key)

    def _sweep(self, kind: Kind, version: str) -> list[Effect]:
        """After a listing: what was known and is not in it is gone. Of a listing that began unseen nothing follows."""
        objects = self._objects[kind]
        listed, objects.listed = objects.listed, None
        if listed is None:
            return []
        objects.complete, objects.version = True, version
        self.listings += kind is Kind.POD
        return [_gone(kind, key, *objects.names.pop(key)) for key in list(objects.names) if key not in listed]

    def validate(self) -> None:
        """Synced means that nothing is waited for, and what was listed is known."""
        if self.synced and self._ask_at is not None:
            raise InvariantBroken("synced, and still waiting for a listing")
        for kind, objects in self._objects.items():
            if objects.listed is not None and not objects.listed <= objects.names.keys():
                raise InvariantBroken(f"{kind}: listed and not known: {objects.listed - objects.names.keys()}")


def _gone(kind: Kind, key: str, namespace: str, name: str) -> Seen:
    if kind is Kind.POD:
        return PodChange(key, namespace, name, gone=True)
    return NodeChange(name, gone=True) if kind is Kind.NODE else ObjectChange(OBJECT_KINDS[kind], key, gone=True)
