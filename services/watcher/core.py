"""The watcher's core: turns what the API server says into one numbered stream of changes.

It keeps no objects: each change is passed on as it comes, unless it goes back in time. The objects of a listing stand
between ListingBegins and ListingEnds; events of a kind never do, because the API server sends them after the list.

A kind that the server does not serve counts as one without objects: the stream has an empty listing of it.

Updates of pods that Flotilla has placed are read and published with the next change of a pod, or a moment later:
snapshot and queue know where these pods are, and nothing waits for the rest. Of several updates of a pod, the last one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from services.watcher.alike_pods import AlikePodReader
from services.watcher.bodies import MAX_BODY_BYTES
from services.watcher.events import (
    Beat,
    Effect,
    Event,
    FollowersRead,
    KindMissing,
    KindUnavailable,
    ListAgain,
    NewestShown,
    ObjectSkipped,
    Publish,
    Received,
    RelistRequested,
    ReportProblem,
    StaleState,
    Tick,
)
from services.watcher.kind_state import MAX_REPORTED, KindState
from services.watcher.partial_objects import Outline, outline, rescue
from services.watcher.resources import RESOURCES, Change, describe, unreadable
from shared.deadlines import earliest
from shared.errors import InvariantBroken
from shared.kube.listwatch import ListDone, ListPage, ListStarted, ObjectEvents, WatchStarted
from shared.kube.wire import WatchEvent, version_of
from shared.messages.watch import (
    AlikePods,
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
from shared.model.base import version_number

MAX_CHANGES = 256
"""Per message."""
MAX_MESSAGE_BYTES = MAX_BODY_BYTES
"""Of the bodies in one message; with the names, that stays below the limit of every NATS server (1 MiB)."""
UPDATE_PATIENCE = 0.05
"""Seconds that updates of placed pods wait for a change to go with: each message costs every follower."""
RELIST_PAUSE = 1.0
"""The least seconds between two requested listings."""

Shown = tuple[WatchChange, int]
"""A change, and the version of its kind up to which the stream shows everything with it."""


class _Unread(NamedTuple):
    """An event that is accepted; `version`: as of what is Shown. `at`: when it was received."""

    event: WatchEvent
    version: int
    at: float


class WatcherCore:
    def __init__(self, epoch: int, schedulers: frozenset[str] = frozenset(), last: WatchBeat | None = None) -> None:
        """`schedulers`: the scheduler names of pods that Flotilla places.

        `last`: the last message of the watcher before, if it says how to resume: then the stream goes on after it.
        """
        self.epoch = epoch
        self._last = last
        self._schedulers = schedulers
        self._seq = 0
        self._alike = AlikePodReader()
        self._publishes_alike = False
        """Whether pods are published as AlikePods."""
        self._updates: dict[str, _Unread] = {}
        """Of placed pods by uid, not published yet."""
        self._updates_due: float | None = None
        self._kinds = {kind: KindState() for kind in RESOURCES}
        for kind in self.resumed:
            assert last is not None
            self._kinds[kind].resume(last.resume[kind.value])
        self._list_at: float | None = None
        self._to_list: set[Kind] = set()
        self._listed_at: float | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(kind=Kind.POD, what=ObjectEvents(events=events), at=at):
                return self._on_events(Kind.POD, events, at, now)
            case Received(kind=Kind.POD, what=what, at=at):
                return [*self._publish_updates(), *self._on_heard(Kind.POD, what, at, now)]
            case Received(kind=kind, what=what, at=at):
                return self._on_heard(kind, what, at, now)
            case KindUnavailable(kind=kind, problem=problem):
                return self._on_denied(kind, problem, now)
            case NewestShown(versions=shown):
                for kind in RESOURCES.keys() & shown.keys():
                    self._kinds[kind].versions.claim(shown[kind])
                return []
            case FollowersRead(alike=alike):
                self._publishes_alike = alike
                return []
            case RelistRequested(kinds=kinds):
                return self._on_asked(kinds or frozenset(RESOURCES), now)
            case Tick():
                is_due = self._updates_due is not None and now >= self._updates_due
                return [*(self._publish_updates() if is_due else ()), *self._on_tick(now)]
            case Beat():
                return [*self._publish_updates(), Publish(self._beat())]

    def next_deadline(self) -> float | None:
        return earliest(self._list_at, self._updates_due)

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def resumed(self) -> dict[Kind, int]:
        """The kinds that are watched from a version on, without a listing."""
        if self._last is None:
            return {}
        return {kind: self._last.resume[kind.value] for kind in RESOURCES if kind.value in self._last.resume}

    def is_missing(self, kind: Kind) -> bool:
        """Whether the server does not serve this kind, so that the stream says that it has no objects."""
        return self._kinds[kind].availability.missing

    def newest(self, kind: Kind) -> int:
        """The newest version that followers may know of."""
        versions = self._kinds[kind].versions
        return max(versions.newest, versions.claimed)

    def refusal(self, kind: Kind, version: int | None = None, shown: int = 0) -> str:
        """Why a listing of this kind, of this version, cannot be merged into what the stream shows; empty if it can.

        `shown`: the newest version when the listing was requested. The follower notes what the stream shows after that.
        """
        state = self._kinds[kind]
        if not (state.is_complete or state.availability.missing):
            return f"{kind} is being listed for all followers"
        if version is not None and not (version and version >= shown):
            return f"{kind}: the server lists version {version}, and had shown {shown} before"
        return ""

    def read_page(self, kind: Kind, objects: Sequence[msgspec.Raw], at: float, *, alike: bool) -> list[WatchChange]:
        """The objects of a page for one follower: nothing is remembered of them, and no problem reported.

        `alike`: it reads AlikePods.
        """
        changes: list[Shown] = []
        for raw in objects:
            try:
                change: WatchChange | None = self._decode(kind, raw, at, alike=alike)
            except Exception as cause:  # one bad object must not hide the others
                found = outline(raw)
                change = None if found is None else _readable_part(kind, found, raw, unreadable(kind, found, cause), at)
            if change is not None and not (isinstance(change, PodChange) and change.finished):
                _append(changes, change, 0)
        return [change for change, _ in changes]

    def is_resumed(self) -> bool:
        """Whether followers know a state of the cluster that no list may go back behind."""
        return any(state.versions.claimed for state in self._kinds.values())

    # What the API server says

    def _on_heard(
        self, kind: Kind, what: ListStarted | ListPage | ListDone | WatchStarted | ObjectEvents, at: float, now: float
    ) -> list[Effect]:
        match what:
            case WatchStarted():
                return self._shown(kind)
            case ObjectEvents(events=events):
                return self._on_events(kind, events, at, now)
            case ListPage(objects=objects):
                return [*self._shown(kind), *self._on_page(kind, objects, at)]
            case ListStarted(version=version):
                self._kinds[kind].is_complete = False
                if self._kinds[kind].versions.is_old_list(version, now):
                    return [self._stale(kind, version)]
                self._kinds[kind].versions.reach(version_number(version))
                self._kinds[kind].problems.begin_listing()
                return [] if self.is_missing(kind) else [self._publish(kind, [ListingBegins(kind)])]
            case ListDone(version=version, since=since):
                if not self._kinds[kind].versions.accept_list(version, since, now):
                    return [self._stale(kind, version)]
                self._kinds[kind].problems.end_listing()
                effects = [*self._shown(kind), self._publish(kind, [ListingEnds(kind, version)])]
                self._kinds[kind].availability.listed = self._kinds[kind].is_complete = True
                return effects

    # Kinds that the server does not serve

    def _shown(self, kind: Kind) -> list[Effect]:
        """A missing kind gets its ListingBegins only with its first objects, because most likely none will come."""
        was_missing = self._kinds[kind].availability.served()
        return [self._publish(kind, [ListingBegins(kind)])] if was_missing else []

    def _on_denied(self, kind: Kind, problem: str, now: float) -> list[Effect]:
        if not self._kinds[kind].availability.refused(now):
            return []
        return [self._publish(kind, [ListingBegins(kind), ListingEnds(kind)]), KindMissing(kind, problem)]

    def _on_page(self, kind: Kind, objects: Sequence[msgspec.Raw], at: float) -> list[Effect]:
        """Finished pods are left out: followers that know them as unfinished learn at the end of the listing that they
        are gone.
        """
        effects: list[Effect] = []
        changes: list[Shown] = []
        version = self._kinds[kind].versions.newest
        for raw in objects:
            change = self._read(kind, raw, at, effects)
            if change is not None and not (isinstance(change, PodChange) and change.finished):
                _append(changes, change, version)
        return [*self._publish_all(kind, changes), *effects]

    def _on_events(self, kind: Kind, events: Iterable[WatchEvent], at: float, now: float) -> list[Effect]:
        stale: list[Effect] = []
        came: list[_Unread] = []
        versions, can_wait = self._kinds[kind].versions, kind is Kind.POD
        for event in events:
            update = outline(event.object) if can_wait and event.type == "MODIFIED" else None
            version = version_of(event.object) if update is None else update.metadata.resource_version
            if not versions.accept_event(version):
                self._kinds[kind].is_complete = False
                stale.append(self._stale(kind, version))
                break
            came.append(_Unread(event, versions.newest, at))
            can_wait = update is not None and self._can_wait(update)
            if update is not None and can_wait:
                self._updates.pop(update.pod_uid, None)
                self._updates[update.pod_uid] = came.pop()
        if came or stale or len(self._updates) >= MAX_CHANGES:
            return [*self._read_all(kind, self._take_updates() + came if kind is Kind.POD else came), *stale]
        if self._updates and self._updates_due is None:
            self._updates_due = now + UPDATE_PATIENCE
        return []

    def _can_wait(self, update: Outline) -> bool:
        """Whether it is of a pod that Flotilla has placed, and that occupies its node as before."""
        is_placed = update.spec.node_name and update.spec.scheduler_name in self._schedulers
        return bool(is_placed) and not update.finished

    def _take_updates(self) -> list[_Unread]:
        updates, self._updates, self._updates_due = self._updates, {}, None
        return [*updates.values()]

    def _publish_updates(self) -> Iterable[Effect]:
        return self._read_all(Kind.POD, self._take_updates())

    def _read_all(self, kind: Kind, events: Iterable[_Unread]) -> list[Effect]:
        """Publishes what these events show, and what is wrong with it."""
        problems: list[Effect] = []
        changes: list[Shown] = []
        for event, version, at in events:
            read = self._gone if event.type == "DELETED" else self._read
            change = read(kind, event.object, at, problems)
            if change is not None:
                _append(changes, change, version)
        return [*self._publish_all(kind, changes), *problems]

    def _read(self, kind: Kind, raw: msgspec.Raw, at: float, effects: list[Effect]) -> WatchChange | None:
        try:
            change = self._decode(kind, raw, at, alike=self._publishes_alike)
        except Exception as cause:  # one bad object must not hide the others that came with it
            return self._refuse(kind, raw, cause, at, effects)
        if isinstance(change, PodChange | NodeChange) and change.problem:
            self._report(kind, raw, ValueError(change.problem), effects)
        elif len(problems := self._kinds[kind].problems):
            problems.settle(_key(change))
        return change

    def _decode(self, kind: Kind, raw: msgspec.Raw, at: float, *, alike: bool) -> Change:
        found = self._alike.read(raw) if alike and kind is Kind.POD else None
        return RESOURCES[kind].read(raw, at) if found is None else found

    def _gone(self, kind: Kind, raw: msgspec.Raw, at: float, effects: list[Effect]) -> WatchChange | None:
        found = outline(raw)
        if found is None:
            effects.append(ObjectSkipped(kind, "an object without a readable name was deleted"))
            return None
        change = RESOURCES[kind].gone(found, at)
        self._kinds[kind].problems.settle(_key(change))
        return change

    def _refuse(
        self, kind: Kind, raw: msgspec.Raw, cause: Exception, at: float, effects: list[Effect]
    ) -> WatchChange | None:
        """Publish what can be read of an object that does not decode, so that it still counts; else report it as
        unreadable.
        """
        unreadable_change = self._report(kind, raw, cause, effects)
        found = outline(raw)
        if unreadable_change is None or found is None:
            return None
        return _readable_part(kind, found, raw, unreadable_change, at)

    def _report(self, kind: Kind, raw: msgspec.Raw, cause: Exception, effects: list[Effect]) -> Unreadable | None:
        """None if the object has no name."""
        found = outline(raw)
        if found is None:
            effects.append(ObjectSkipped(kind, describe(cause)))
            return None
        change = unreadable(kind, found, cause)
        if self._kinds[kind].problems.is_new(change.key, change.problem):
            effects.append(ReportProblem(change, found.metadata.generation, found.said_unscheduled))
        return change

    def _stale(self, kind: Kind, version: str) -> StaleState:
        newest = self.newest(kind)
        return StaleState(kind, f"the server shows version {version}, older than {newest}, which it showed before")

    # Requested listings

    def _on_asked(self, kinds: frozenset[Kind], now: float) -> list[Effect]:
        """A request that comes before the first message needs no listing: its sender will hear everything, unless this
        watcher resumes.
        """
        if not self._seq and self._last is None:
            return []
        self._to_list |= kinds & RESOURCES.keys()
        if self._list_at is None:
            earliest = now if self._listed_at is None else self._listed_at + RELIST_PAUSE
            self._list_at = min(max(now, earliest), now + RELIST_PAUSE)
        return self._on_tick(now)

    def _on_tick(self, now: float) -> list[Effect]:
        if self._list_at is None or now < self._list_at:
            return []
        self._list_at, self._listed_at = None, now
        kinds, self._to_list = frozenset(self._to_list), set()
        missing = [kind for kind in RESOURCES if kind in kinds and self.is_missing(kind)]
        empty = (self._publish(kind, [ListingBegins(kind), ListingEnds(kind)]) for kind in missing)
        return [ListAgain(kinds), *empty]

    # Messages

    def _beat(self) -> WatchBeat:
        beat = WatchBeat(self.epoch, self._seq, [kind.value for kind in RESOURCES], resume=self._resume_points())
        if self._last is None or self._seq:
            return beat
        return replace(beat, after_epoch=self._last.epoch, after_seq=self._last.seq)

    def _resume_points(self) -> dict[str, int]:
        """Without kinds that the server does not serve; empty if another one is not published up to a version."""
        served = {kind: state for kind, state in self._kinds.items() if not state.availability.missing}
        if not all(state.is_complete and state.versions.newest for state in served.values()):
            return {}
        return {kind.value: state.versions.newest for kind, state in served.items()}

    def _publish_all(self, kind: Kind, changes: Sequence[Shown]) -> Iterable[Effect]:
        """A follower that fetches a listing skips messages up to its version, so each one names no later version than
        it shows.
        """
        part: list[WatchChange] = []
        count = size = shown = 0
        for change, version in changes:
            more = len(change.body) if isinstance(change, Change) else 0
            objects = len(change.pods) if isinstance(change, AlikePods) else 1
            if part and (count + objects > MAX_CHANGES or size + more > MAX_MESSAGE_BYTES):
                yield self._publish(kind, part, shown)
                part, count, size = [], 0, 0
            part.append(change)
            count, size, shown = count + objects, size + more, version
        if part:
            yield self._publish(kind, part, shown)

    def _publish(self, kind: Kind, changes: list[WatchChange], version: int | None = None) -> Publish:
        """`version`: up to which the stream shows the kind with these changes; by default the newest."""
        self._seq += 1
        version = self._kinds[kind].versions.newest if version is None else version
        return Publish(Watched(self.epoch, self._seq, changes, version))

    def validate(self) -> None:
        """What is remembered is bounded, and what waits is published some time."""
        if len(self._updates) >= MAX_CHANGES or bool(self._updates) != (self._updates_due is not None):
            raise InvariantBroken(f"{len(self._updates)} updates wait until {self._updates_due}")
        for kind, state in self._kinds.items():
            if len(state.problems) > 2 * MAX_REPORTED:
                raise InvariantBroken(f"{kind}: {len(state.problems)} reported problems are remembered")


def _readable_part(
    kind: Kind, found: Outline, raw: msgspec.Raw, unreadable_change: Unreadable, at: float
) -> WatchChange:
    try:
        rescued = rescue(kind, found, raw, at)
    except Exception:  # on any failure, still report the object as present but unreadable
        return unreadable_change
    match rescued:
        case PodChange():
            return replace(rescued, scheduler=unreadable_change.scheduler, problem=unreadable_change.problem)
        case NodeChange():
            return replace(rescued, problem=unreadable_change.problem if rescued.problem else "")
    return rescued or unreadable_change


def _append(changes: list[Shown], change: WatchChange, version: int) -> None:
    """Pods that are alike and follow each other are one change."""
    if changes and isinstance(change, AlikePods):
        last, _ = changes[-1]
        if isinstance(last, AlikePods) and last.body is change.body and len(last.pods) < MAX_CHANGES:
            last.pods.extend(change.pods)
            changes[-1] = last, version
            return
    changes.append((change, version))


def _key(change: Change) -> str:
    match change:
        case AlikePods(pods=pods):
            return pods[0].uid
        case PodChange(uid=uid):
            return uid
        case NodeChange(name=name):
            return name
        case ObjectChange(key=key):
            return key
