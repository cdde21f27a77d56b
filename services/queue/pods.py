"""All pods that the queue knows, each in one place, and the rules by which they move."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from services.queue.backoff import Backoff, rests, wakes_at
from services.queue.entry import Entry
from services.queue.heap import PodHeap
from services.queue.places import TRANSITIONS, Place
from services.queue.rejected import Rejected
from services.queue.tally import Tally
from services.queue.timed import Timed
from services.queue.waking import ChangeKind, Happened
from shared.errors import MOST_REMEMBERED, FlotillaError, InvariantBroken, UserError
from shared.framework.profile import Framework
from shared.messages.queue import QueueContents
from shared.model.objects import Pod

FLIGHT_PATIENCE = 60.0
"""Seconds that cycle may take for a pod before it is handed out again."""
BINDING_PATIENCE = 60.0
"""Seconds until a decided pod that nobody has seen bound is handed out again; cycle then finds its place taken."""
UNSCHEDULABLE_PATIENCE = 300.0
"""Seconds after which an unschedulable pod is tried again though nothing has happened; looked at every so often:"""
FLUSH_INTERVAL = 30.0

ADDED = "UnschedulablePodAdd"
UPDATED = "UnschedulablePodUpdate"
ATTEMPT_FAILED = "ScheduleAttemptFailure"
REST_OVER = "BackoffComplete"
TAKEN_FROM_BACKOFF = "PopFromBackoffQ"
OVERDUE = "Overdue"
CYCLE_CHANGED = "CycleChanged"
DECISION_LOST = "DecisionLost"


class Holding(Protocol):
    """What keeps the pods of one place, in the order in which they leave it."""

    def add(self, entry: Entry) -> None: ...
    def discard(self, entry: Entry) -> None: ...
    def first(self) -> Entry | None: ...
    def validate(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Entry]: ...


class Pods:
    def __init__(self, backoff: Backoff) -> None:
        self.tally = Tally()
        self.problems: deque[FlotillaError] = deque(maxlen=MOST_REMEMBERED)
        """What went wrong with plugins, for whoever clears them."""
        self._backoff_rule = backoff
        self._entries: dict[str, Entry] = {}
        self._active = PodHeap(lambda entry: entry.rank)
        self._backoff = PodHeap(lambda entry: (entry.backoff_until, entry.rank))
        self._error_backoff = PodHeap(lambda entry: (entry.backoff_until, entry.rank))
        self._unschedulable = Rejected()
        self._gated = Rejected()
        self._in_flight = Timed(FLIGHT_PATIENCE)
        self._binding = Timed(BINDING_PATIENCE)
        self._heaps = {
            Place.ACTIVE: self._active,
            Place.BACKOFF: self._backoff,
            Place.ERROR_BACKOFF: self._error_backoff,
        }
        self._holdings: dict[Place, Holding] = {
            **self._heaps,
            Place.UNSCHEDULABLE: self._unschedulable,
            Place.GATED: self._gated,
            Place.IN_FLIGHT: self._in_flight,
            Place.BINDING: self._binding,
        }
        self._happened = Happened()
        self._orders = 0

    def get(self, uid: str) -> Entry | None:
        return self._entries.get(uid)

    # Coming and going

    def add(self, pod: Pod, framework: Framework, seen_at: float, size: int, now: float) -> None:
        entry = Entry(pod.uid, pod, framework, seen_at, size)
        self._line_up(entry, seen_at)
        self._entries[pod.uid] = entry
        self._enter(entry, Place.ACTIVE, now, ADDED)

    def update(self, entry: Entry, pod: Pod, size: int, now: float) -> None:
        """The new version counts from now on, wherever the pod is; if it may help, it is another attempt's reason."""
        old, entry.pod, entry.size = entry.pod, pod, size
        if old.spec == pod.spec and old.metadata.labels == pod.metadata.labels:
            return
        entry.rank = self._rank(entry)
        if (heap := self._heaps.get(entry.place)) is not None:
            heap.resort(entry)
        elif entry.place in (Place.UNSCHEDULABLE, Place.GATED):
            self._requeue(entry, now, UPDATED)
        else:
            entry.changed = True

    def drop(self, entry: Entry, now: float, why: str) -> None:
        self._move(entry, Place.DONE, now, why)
        self._clear_plugins(entry)
        del self._entries[entry.uid]

    # Attempts

    def next_up(self) -> Entry | None:
        """The first active pod; when there is none, the first that rests after a rejection."""
        return self._active.first() or self._backoff.first()

    def hand_out(self, entry: Entry, now: float) -> None:
        if entry.place is Place.BACKOFF:
            self.tally.incoming[Place.ACTIVE, TAKEN_FROM_BACKOFF] += 1
        self._in_flight.start(entry, now)
        self._move(entry, Place.IN_FLIGHT, now, "taken")
        self._clear_plugins(entry)
        entry.attempts += 1
        entry.mark = self._happened.now
        entry.changed = entry.forgotten = False

    def take_back_all(self, now: float) -> None:
        """What was in flight is active again, where it was in the order."""
        for entry in list(self._in_flight):
            self._enter(entry, Place.ACTIVE, now, CYCLE_CHANGED)

    def take_back(self, entry: Entry, now: float) -> None:
        """Whether its decision is lost is not known; if it holds a place, that is found out when it is decided anew."""
        self._enter(entry, Place.ACTIVE, now, DECISION_LOST)

    def take_back_bindings(self, but: frozenset[str], now: float) -> None:
        """What was decided, but for these, is active again, where it was in the order."""
        for entry in [entry for entry in self._binding if entry.uid not in but]:
            self.take_back(entry, now)

    def decide(self, entry: Entry, now: float, why: str) -> None:
        self._binding.start(entry, now)
        self._move(entry, Place.BINDING, now, why)

    def reject(self, entry: Entry, plugins: tuple[str, ...], now: float) -> None:
        """An attempt has ended with plugins that would not have it. What happened meanwhile may have helped already."""
        entry.rejections += 1
        entry.errors = 0
        entry.plugins = plugins
        self.tally.reject(plugins, entry.framework.name)
        self._start_rest(entry, now)
        if entry.changed or self._happened.helps(plugins, entry.mark):
            self._requeue(entry, now, ATTEMPT_FAILED)
        else:
            self._move(entry, Place.UNSCHEDULABLE, now, ATTEMPT_FAILED)

    def fail(self, entry: Entry, now: float) -> None:
        """An attempt, or the binding after it, has ended with an error."""
        entry.errors += 1
        self._clear_plugins(entry)
        self._start_rest(entry, now)
        self._enter(entry, Place.ERROR_BACKOFF, now, ATTEMPT_FAILED)

    def wake(self, kind: ChangeKind, now: float) -> None:
        """Whoever is away hears of it when it comes back."""
        self._happened.note(kind)
        for entry in (*self._unschedulable.concerned(kind), *self._gated.concerned(kind)):
            self._requeue(entry, now, kind)

    # Time

    def pass_time(self, now: float) -> None:
        for heap in (self._backoff, self._error_backoff):
            while (entry := heap.first()) is not None and not rests(entry, now):
                self._move(entry, Place.ACTIVE, now, REST_OVER)
        while (entry := self._unschedulable.first()) is not None and _flushed_at(entry) <= now:
            self._requeue(entry, now, ChangeKind.TIME_LIMIT)
            self._happened.note(ChangeKind.TIME_LIMIT)
        for timed in (self._in_flight, self._binding):
            while (entry := timed.first()) is not None and entry.deadline <= now:
                self._enter(entry, Place.ACTIVE, now, OVERDUE)

    def next_deadline(self) -> float | None:
        times = [wakes_at(entry) for entry in (self._backoff.first(), self._error_backoff.first()) if entry]
        times += [entry.deadline for entry in (self._in_flight.first(), self._binding.first()) if entry]
        if (oldest := self._unschedulable.first()) is not None:
            times.append(_flushed_at(oldest))
        return min(times, default=None)

    # Inside

    def _requeue(self, entry: Entry, now: float, why: str) -> None:
        """It is worth another attempt, when it has rested."""
        self._enter(entry, Place.BACKOFF if rests(entry, now) else Place.ACTIVE, now, why)

    def _enter(self, entry: Entry, place: Place, now: float, why: str) -> None:
        """To active or a back-off, if its gates are open; they are not asked again when its rest is over."""
        gate = self._gate(entry) if entry.framework.pre_enqueue else None
        if gate is None:
            self._move(entry, place, now, why)
        elif entry.place is not Place.GATED:
            self._move(entry, Place.GATED, now, why, gate)
        elif entry.gate != gate:
            self._gated.discard(entry)
            self._shut(entry, gate)
            self._gated.add(entry)

    def _gate(self, entry: Entry) -> str | None:
        """The plugin that keeps it out; one that breaks down does, too, and has no name."""
        try:
            status = entry.framework.run_pre_enqueue(entry.pod)
        except Exception as cause:
            self.problems.append(_gate_broken(entry.pod, cause))
            return ""
        return None if status.ok else status.plugin

    def _shut(self, entry: Entry, gate: str | None) -> None:
        entry.gate = gate
        if gate and gate not in entry.plugins:
            entry.plugins = (*entry.plugins, gate)
            self.tally.reject((gate,), entry.framework.name)

    def _clear_plugins(self, entry: Entry) -> None:
        if entry.plugins:
            self.tally.clear(entry.plugins, entry.framework.name)
            entry.plugins = ()

    def _move(self, entry: Entry, place: Place, now: float, why: str, gate: str | None = None) -> None:
        """The one way from place to place. What a holding sorts or finds by changes only while it does not have it."""
        before = entry.place
        if place not in TRANSITIONS[before]:
            raise InvariantBroken(f"pod {entry.pod.key}: {before} to {place} ({why}); before: {entry.told()}")
        if before is not Place.NEW:
            self._holdings[before].discard(entry)
        if gate is not None or entry.gate is not None:
            self._shut(entry, gate)
        entry.place = place
        entry.tell(now, place, why)
        if place is Place.DONE:
            return
        if place is Place.ACTIVE and entry.active_at is None:
            entry.active_at = now
        self.tally.incoming[place, why] += 1
        self._holdings[place].add(entry)

    def _start_rest(self, entry: Entry, now: float) -> None:
        self._line_up(entry, now)
        entry.backoff_until = self._backoff_rule.until(entry)

    def _line_up(self, entry: Entry, at: float) -> None:
        """Behind all of its priority that are queued already."""
        self._orders += 1
        entry.queued_at, entry.order = at, self._orders
        entry.rank = self._rank(entry)

    def _rank(self, entry: Entry) -> tuple[object, int]:
        return entry.framework.queue_sort.sort_key(entry.pod, entry.queued_at), entry.order

    # To look at

    def counts(self) -> dict[Place, int]:
        return {place: len(holding) for place, holding in self._holdings.items()}

    def contents(self) -> QueueContents:
        def uids(*places: Place) -> list[str]:
            return [entry.uid for place in places for entry in self._holdings[place]]

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
        for place, holding in self._holdings.items():
            holding.validate()
            entries = list(holding)
            if len(entries) != len(holding):
                raise InvariantBroken(f"{len(entries)} pods are {place}, counted as {len(holding)}")
            for entry in entries:
                if entry.place is not place or self._entries.get(entry.uid) is not entry:
                    raise InvariantBroken(f"pod {entry.pod.key} is kept as {place}: {entry.told()}")
                if (entry.gate is not None) != (place is Place.GATED):
                    raise InvariantBroken(f"pod {entry.pod.key} is {place}, its gate {entry.gate}: {entry.told()}")
        if sum(self.counts().values()) != len(self._entries):
            raise InvariantBroken(f"{len(self._entries)} pods, and in the places {self.counts()}")
        self.tally.validate((p, entry.framework.name) for entry in self._entries.values() for p in entry.plugins)


def _flushed_at(entry: Entry) -> float:
    """The first look at the unschedulable pods at which it has been there for longer than it may."""
    return ((entry.queued_at + UNSCHEDULABLE_PATIENCE) // FLUSH_INTERVAL + 1) * FLUSH_INTERVAL


def _gate_broken(pod: Pod, cause: Exception) -> FlotillaError:
    if isinstance(cause, FlotillaError):
        return cause
    problem = UserError(f"Pod {pod.key}: a PreEnqueue plugin broke down: {type(cause).__name__}: {cause}")
    problem.__cause__ = cause
    return problem
