"""WatchReader: follows the watcher's stream and knows when it has seen the whole cluster.

`TRANSITIONS` has its states. Changes are passed on in order, each at most once, and never one older than what was
passed on before. Objects that a complete listing does not contain are reported as gone; so after a listing the consumer
knows what the watcher knows, even if messages were lost.

A listing comes in the stream, for all followers, or page by page to one follower that asks (`fetch`, `take_page`),
while the stream goes on. Of each object the newer state counts: that of the page, unless the stream has shown the
object in a message of a later version than the page's.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shared.errors import MAX_REMEMBERED, InvariantBroken, ProtocolError
from shared.messages.watch import (
    OBJECT_KINDS,
    AlikePods,
    Kind,
    KindListed,
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
from shared.terms import Heard, Newest

FIRST_PATIENCE = 0.5
"""Seconds to wait for a requested listing; doubled each time until one is complete."""
LONGEST_PATIENCE = 8.0
"""Seconds between two requests for a listing, at most."""
DOUBT_PAUSE = 10.0
"""Seconds between two listings requested because the stream showed an old state."""


class ReaderState(StrEnum):
    UNSYNCED = "unsynced"
    SYNCED = "synced"


TRANSITIONS = (
    (ReaderState.UNSYNCED, ReaderState.SYNCED, "a listing of every kind is complete"),
    (
        ReaderState.SYNCED,
        ReaderState.UNSYNCED,
        "a message is missing, or the watcher is a new one that does not go on after the last message",
    ),
)
"""From, to, and why; there are no others."""

SeenOne = PodChange | NodeChange | ObjectChange | Unreadable
"""A change of one object."""
Seen = SeenOne | AlikePods
Effect = Seen | Relist
"""Apply changes in order; send a Relist to the watcher."""


_NAMES = {kind: kind.value for kind in Kind}
"""Asked of an enum each time, they would cost more than all else about `versions`, which each write asks for."""


@dataclass(slots=True)
class _Objects:
    """`known`: the objects of a kind, pods by uid, others by key, with the number of the last listing that shows them.

    `listing`: the number of the last one; `is_listing`: it is under way. `version`: of the last complete one.
    `newest`: the highest resourceVersion shown, in any epoch.
    """

    known: dict[str, int] = field(default_factory=dict)
    listing: int = 0
    is_listing: bool = False
    version: str = ""
    newest: int = 0
    touched: dict[str, int] | None = None
    """While pages are fetched: what the stream has shown since, with the version of the message."""
    fetched: int = 0
    """The version of the pages. What the stream shows up to this version is known from them."""

    def begin_listing(self) -> None:
        self.listing += 1
        self.is_listing = True

    def note(self, key: str, is_there: bool) -> None:
        """What changes during a listing counts as shown by it."""
        if is_there:
            self.known[key] = self.listing
        else:
            self.known.pop(key, None)

    def show_again(self, key: str) -> None:
        """The listing under way is to show the object, if there is any."""
        if key in self.known:
            self.known[key] = 0

    def end_listing(self) -> list[str]:
        """Forgets the objects that the listing has not shown, and returns their keys."""
        self.is_listing = False
        gone = [key for key, listing in self.known.items() if listing != self.listing]
        for key in gone:
            del self.known[key]
        return gone


class WatchReader:
    """Pure: messages and the time in, effects out. Remembers keys, never objects."""

    def __init__(self, asker: str, *, alike: bool = False) -> None:
        """`alike`: the consumer takes AlikePods."""
        self.refused: deque[ProtocolError] = deque(maxlen=MAX_REMEMBERED)
        self.listings: Counter[Kind] = Counter()
        """Complete listings, by kind."""
        self._asker = asker
        self._alike = alike
        self._newest = Newest((0, 0))
        """The watcher's epoch, and the number of its last message."""
        self._objects = {kind: _Objects() for kind in Kind}
        self._complete: set[Kind] = set()
        """The kinds that a listing was complete of, without a gap since."""
        self._listed: frozenset[Kind] = frozenset(Kind)
        """The kinds that the watcher lists; an earlier release may list fewer than are known here."""
        self._patience = FIRST_PATIENCE
        self._ask_at: float | None = None
        self._doubt_at = -math.inf
        self.is_contradicted = False
        """Whether a state was refused as older than one shown before: the server can tell which is true."""

    @property
    def synced(self) -> bool:
        """A listing of every kind is complete, and nothing was missed since."""
        return self._listed <= self._complete

    @property
    def state(self) -> ReaderState:
        return ReaderState.SYNCED if self.synced else ReaderState.UNSYNCED

    @property
    def epoch(self) -> int:
        """The watcher's; 0 before its first message."""
        return self._newest.position[0]

    @property
    def position(self) -> tuple[int, int]:
        """The watcher's epoch, and the number of its last message."""
        return self._newest.position

    def version_of(self, kind: Kind) -> str:
        """The resourceVersion of the kind's last complete listing; empty if there is none."""
        return self._objects[kind].version

    @property
    def versions(self) -> dict[str, int]:
        """The highest resourceVersion shown of each kind, in any epoch."""
        return {_NAMES[kind]: objects.newest for kind, objects in self._objects.items() if objects.newest}

    def count(self, kind: Kind) -> int:
        return len(self._objects[kind].known)

    def start(self, now: float) -> list[Effect]:
        return [self._ask(now)]

    def start_over(self, now: float) -> list[Effect]:
        """Trust nothing that was shown until now: request a listing, and be synced after that."""
        self._distrust()
        return [self._ask(now)]

    def next_deadline(self) -> float | None:
        """When to call `tick`; None while synced."""
        return self._ask_at

    def doubt(self, now: float) -> list[Effect]:
        """The stream showed an old state: request a listing, at most every DOUBT_PAUSE."""
        if self._ask_at is not None or now < self._doubt_at:
            return []
        self._doubt_at = now + DOUBT_PAUSE
        return [self._relist()]

    def tick(self, now: float) -> list[Effect]:
        return [self._ask(now)] if self._ask_at is not None and now >= self._ask_at else []

    def take(self, message: Watched | WatchBeat, now: float) -> list[Effect]:
        epoch, last = self._newest.position
        heard = self._newest.hear((message.epoch, message.seq), now)
        if message.epoch < epoch or heard is Heard.REFUTED:
            is_left = ", which has gone silent" if heard is Heard.REFUTED else ""
            what = f"watch {message.seq} of epoch {message.epoch}, now {last} of {epoch}{is_left}"
            self.refused.append(ProtocolError(what))
        if heard is Heard.OLD:
            return []
        if message.epoch != epoch or heard is Heard.REFUTED:
            if not self._goes_on((epoch, last), message):
                self._begin_epoch(now)
            last = 0
        effects: list[Effect] = []
        if isinstance(message, WatchBeat):
            if message.kinds:
                self._listed = frozenset(kind for kind in Kind if kind.value in message.kinds)
            if message.seq > last:
                self._miss(last + 1, effects, now)
            elif self.synced:
                self._rest()
            return effects
        if message.seq == last:
            return []
        if message.seq > last + 1:
            self._miss(last + 1, effects, now)
        if self._is_older(message, now):
            return effects
        for change in self._unknown(message):
            self._apply(change, effects, message.version)
        if self.synced:
            self._rest()
        elif any(objects.is_listing for objects in self._objects.values()):
            self._ask_at = now + self._patience  # a listing is in progress; requesting another would not speed it up
        return effects

    # Listings that are fetched page by page

    def fetch(self) -> list[Kind]:
        """The kinds whose pages are to be fetched: those without a complete listing; all, if there are none.

        Every page must be requested after this call. None before the watcher was heard.
        """
        if not self.epoch:
            return []
        kinds = [kind for kind in Kind if kind in self._listed and not (kind in self._complete or self.synced)]
        kinds = kinds or [kind for kind in Kind if kind in self._listed]
        for kind in kinds:
            objects = self._objects[kind]
            objects.begin_listing()
            objects.touched, objects.fetched = {}, 0
        return kinds

    def fetches(self, kind: Kind) -> bool:
        """Whether pages of this kind can still be used: nothing was missed, and the stream does not list it."""
        return self._objects[kind].touched is not None

    def take_page(self, page: KindListed) -> list[Effect]:
        """The pages of a kind come in order, and have one version."""
        kind = Kind(page.kind)
        objects = self._objects[kind]
        if objects.touched is None or not objects.is_listing:
            return []
        objects.fetched = page.version
        older = [key for key, version in objects.touched.items() if version <= page.version]
        for key in older:
            del objects.touched[key]
            objects.show_again(key)
        effects: list[Effect] = []
        for change in page.changes:
            if isinstance(change, AlikePods) and not objects.touched:
                self._apply(change, effects)
            elif isinstance(change, Seen):
                for key, one in _each(change):
                    if key not in objects.touched:
                        self._apply(one, effects)
        if not page.following:
            objects.touched = None
            effects += self._sweep(kind, str(page.version))
            if self.synced:
                self._rest()
        return effects

    def stop_fetching(self) -> None:
        """What is not complete yet will be listed otherwise."""
        for objects in self._objects.values():
            if objects.touched is not None:
                objects.touched, objects.is_listing = None, False

    def _unknown(self, message: Watched) -> Sequence[WatchChange]:
        """What pages have not shown. Of a message that goes beyond their version, the last state of each object."""
        kind = _kind_of(message)
        fetched = 0 if kind is None else self._objects[kind].fetched
        if not fetched or not message.version:
            return message.changes
        if message.version <= fetched:
            return ()
        last: dict[str, WatchChange] = {}
        for change in message.changes:
            if not isinstance(change, Seen):
                return message.changes
            for key, one in _each(change):
                last.pop(key, None)
                last[key] = one
        return list(last.values())

    # Inside

    def _is_older(self, message: Watched, now: float) -> bool:
        """Whether a watcher of a later epoch shows a state older than an earlier one did; then a listing is needed."""
        kind = _kind_of(message)
        if kind is None:
            return False
        objects = self._objects[kind]
        if not 0 < message.version < objects.newest:
            objects.newest = max(objects.newest, message.version)
            return False
        shown = f"watch {message.seq} of epoch {message.epoch}: {kind} at version {message.version}"
        self.refused.append(ProtocolError(f"{shown}, older than {objects.newest}, which was shown before"))
        self._complete.discard(kind)
        objects.is_listing = False
        self.is_contradicted = True
        if self._ask_at is None:
            self._ask_at = now + self._patience
        return True

    def correct(self, shown: Mapping[str, int], present: int, now: float) -> list[Effect]:
        """`present`: the server's version, later than `shown`, which were `versions`.

        What exceeds it was never shown: another process has named it, or the server's store was restored. From now on
        older states are taken.
        """
        self.is_contradicted = False
        wrong = [kind for kind in Kind if shown.get(kind.value, 0) > present]
        for kind in wrong:
            self._objects[kind].newest = 0
            said = f"{kind} was shown at version {shown[kind.value]}, and the server is at {present}"
            self.refused.append(ProtocolError(said))
        return [self._ask(now)] if wrong else []

    def _rest(self) -> None:
        self._ask_at, self._patience = None, FIRST_PATIENCE

    def _goes_on(self, before: tuple[int, int], message: Watched | WatchBeat) -> bool:
        """Whether a new watcher goes on after the last message that was read, so that nothing is missed."""
        if not isinstance(message, WatchBeat) or message.seq or not self.synced:
            return False
        return bool(message.after_epoch) and (message.after_epoch, message.after_seq) == before

    def _begin_epoch(self, now: float) -> None:
        """A new watcher that does not go on lists everything; a follower from its first message on need not ask."""
        self._listed = frozenset(Kind)
        self._distrust()
        if self._ask_at is None:
            self._ask_at = now + self._patience

    def _miss(self, first: int, effects: list[Effect], now: float) -> None:
        self.refused.append(ProtocolError(f"watch {first} of epoch {self.epoch}: it has not come"))
        self._distrust()
        if self._ask_at is None:
            effects.append(self._ask(now))

    def _distrust(self) -> None:
        self._complete.clear()
        for objects in self._objects.values():
            objects.is_listing = False
            objects.touched, objects.fetched = None, 0

    def _ask(self, now: float) -> Relist:
        self._ask_at = now + self._patience
        self._patience = min(2 * self._patience, LONGEST_PATIENCE)
        return self._relist()

    def _relist(self) -> Relist:
        return Relist(self._asker, self.versions, alike=self._alike)

    def _apply(self, change: WatchChange, effects: list[Effect], version: int | None = None) -> None:
        """`version`: of the message of the stream; None for a page."""
        match change:
            case ListingBegins(kind=kind):
                objects = self._objects[kind]
                objects.begin_listing()
                objects.touched, objects.fetched = None, 0
            case ListingEnds(kind=kind, version=listed):
                effects += self._sweep(kind, listed)
            case AlikePods(pods=pods):
                objects, uids = self._objects[Kind.POD], [pod.uid for pod in pods]
                if objects.touched is not None and version is not None:
                    objects.touched.update(dict.fromkeys(uids, version))
                objects.known.update(dict.fromkeys(uids, objects.listing))
                effects.append(change)
            case _:
                kind, key, is_there = _known_as(change)
                objects = self._objects[kind]
                if objects.touched is not None and version is not None:
                    objects.touched[key] = version
                objects.note(key, is_there)
                effects.append(change)

    def _sweep(self, kind: Kind, version: str) -> list[Effect]:
        """After a listing, known objects that it does not contain are gone. A listing whose start was missed proves
        nothing.
        """
        objects = self._objects[kind]
        if not objects.is_listing:
            return []
        self._complete.add(kind)
        objects.version = version
        self.listings[kind] += 1
        return [_gone(kind, key) for key in objects.end_listing()]

    def validate(self) -> None:
        """When synced, no listing is awaited, and what is known was shown by a listing that there was."""
        if self.synced and self._ask_at is not None:
            raise InvariantBroken("synced, and still waiting for a listing")
        for kind, objects in self._objects.items():
            if any(listing > objects.listing for listing in objects.known.values()):
                raise InvariantBroken(f"{kind}: known from a later listing than the last one")


def _kind_of(message: Watched) -> Kind | None:
    """A message has changes of one kind; None if it has none that is known here."""
    for change in message.changes:
        match change:
            case PodChange() | AlikePods():
                return Kind.POD
            case NodeChange():
                return Kind.NODE
            case ObjectChange(kind=object_kind):
                return Kind(object_kind.value)
            case ListingBegins(kind=kind) | ListingEnds(kind=kind) | Unreadable(kind=kind):
                return kind
    return None


def _known_as(change: SeenOne) -> tuple[Kind, str, bool]:
    """The object's kind and key, and whether it is there."""
    match change:
        case PodChange(uid=uid):
            return Kind.POD, uid, not (change.gone or change.finished)
        case NodeChange(name=name):
            return Kind.NODE, name, not change.gone
        case ObjectChange(kind=object_kind, key=key):
            return Kind(object_kind.value), key, not change.gone
        case Unreadable():
            return change.kind, change.key, True


def _each(change: Seen) -> Iterator[tuple[str, Seen]]:
    """What it says of each object, by key."""
    if isinstance(change, AlikePods):
        for pod in change.pods:
            yield pod.uid, AlikePods(change.namespace, change.body, [pod])
    else:
        yield _known_as(change)[1], change


def _gone(kind: Kind, key: str) -> Seen:
    """Nobody needs the name of a pod that is gone."""
    if kind is Kind.POD:
        return PodChange(key, "", "", gone=True)
    return NodeChange(key, gone=True) if kind is Kind.NODE else ObjectChange(OBJECT_KINDS[kind], key, gone=True)
