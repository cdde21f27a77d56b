"""The rules by which pods move from place to place."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from services.queue.backoff import Backoff, rests, wakes_at
from services.queue.happenings import Happening, anything, room
from services.queue.holdings import AWAY, Holdings
from services.queue.kept import Kept, Memory
from services.queue.places import Place
from services.queue.preempting import PREEMPTION, Preempting
from services.queue.scheduling.cluster_event import pod_events
from services.queue.scheduling.in_flight_pods import Away
from services.queue.scheduling.nominator import Nominations
from services.queue.scheduling.pod_groups import RELEASED
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.queueing_hints import Hints, Worth
from services.queue.tally import Tally
from services.queue.untold import Untold
from shared.errors import FlotillaError, UserError
from shared.framework.profile import Framework
from shared.model.objects import Pod

FLUSH_INTERVAL = 30.0
"""Seconds between two looks at whether pods are unschedulable for too long."""

ADDED = "UnschedulablePodAdd"
UPDATED = "UnschedulablePodUpdate"
ATTEMPT_FAILED = "ScheduleAttemptFailure"
REST_OVER = "BackoffComplete"
TAKEN_FROM_BACKOFF = "PopFromBackoffQ"
TIME_LIMIT = "UnschedulableTimeout"
ACTIVATED = "ForceActivate"
OVERDUE = "Overdue"
CYCLE_CHANGED = "CycleChanged"
DECISION_LOST = "DecisionLost"
PREEMPTION_OVER = "PreemptionOver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds.

    `unschedulable`: after which a pod is tried again though nothing has happened. `away`: that cycle may take for a
    pod, or that may pass until a decided pod is seen bound, before it is handed out again.
    """

    unschedulable: float = 300.0
    away: float = 60.0


class Pods:
    def __init__(
        self,
        hints: Hints,
        problems: deque[FlotillaError],
        tally: Tally,
        backoff: Backoff,
        patience: Patience,
        kept: Mapping[str, Kept],
    ) -> None:
        """`kept`: what was known of pods before a restart."""
        self.memory = Memory(kept)
        self.nominations = Nominations()
        self.preempting = Preempting()
        self.untold = Untold()
        self._hints = hints
        self._problems = problems
        self.away = Away(hints)
        self.held = Holdings(self.away, tally, patience.away)
        self._backoff_rule = backoff
        self._patience = patience.unschedulable
        self._orders = 0
        self._flushed_at: float | None = None

    def get(self, uid: str) -> Entry | None:
        return self.held.entries.get(uid)

    # Coming and going

    def add(self, pod: Pod, framework: Framework, seen_at: float, size: int, now: float) -> None:
        entry = Entry(pod.uid, pod, framework, seen_at, size)
        self.untold.drop(pod.uid)
        kept = self.memory.of(pod.uid)
        self._line_up(entry, seen_at if kept is None else kept.queued_at)
        self.held.entries[pod.uid] = entry
        if kept is not None:
            self.nominations.read(pod)
            entry.attempts, entry.rejections, entry.errors = kept.attempts, kept.rejections, kept.errors
            entry.backoff_until = self._backoff_rule.resumed(kept.backoff_until, now)
        resting = Place.ERROR_BACKOFF if entry.errors else Place.BACKOFF
        self._enter(entry, resting if rests(entry, now) else Place.ACTIVE, now, ADDED)

    def update(self, entry: Entry, pod: Pod, size: int, now: float) -> Happening | None:
        """The new version counts from now on, wherever the pod is; what has changed may help it.

        And others, if it has lost a nomination.
        """
        old = entry.pod
        rank = self._rank(entry, pod)
        if entry.place in (Place.UNSCHEDULABLE, Place.GATED):
            self._update_waiting(entry, pod, size, rank, now)
        else:
            entry.renew(pod, size)
            entry.rank = rank
            self.held.gangs.moved(entry, now)
            if (heap := self.held.heaps.get(entry.place)) is not None:
                heap.resort(entry)
        if entry.place is Place.BINDING:
            return None
        nominated = old.status.nominated_node_name
        is_news = nominated != pod.status.nominated_node_name
        if entry.place is not Place.IN_FLIGHT:
            self.nominations.update(old, pod)
        else:
            if is_news:  # it counts unless the attempt comes to another one
                self.nominations.read(pod)
            for event in pod_events(old, pod):
                if self._hints.awaits(event):
                    self._touch(entry, Happening(event, old, pod))
        return room(old, at_most=old.priority) if nominated and is_news else None

    def _update_waiting(self, entry: Entry, pod: Pod, size: int, rank: tuple[object, int], now: float) -> None:
        """It is tried again if it is worth it, and for the first of the changes that makes it so."""
        old = entry.pod
        waiting = self.held.unschedulable if entry.place is Place.UNSCHEDULABLE else self.held.gated
        waiting.discard(entry)
        entry.renew(pod, size)
        entry.rank = rank
        waiting.add(entry)
        self.held.gangs.moved(entry, now)
        self.nominations.update(old, pod)
        for event in pod_events(old, pod):
            happening = Happening(event, old, pod)
            worth = self._hints.worth(entry, happening)
            if worth:
                self._requeue(entry, worth, now, happening.label)
            if entry.place not in (Place.UNSCHEDULABLE, Place.GATED):
                return

    def drop(self, entry: Entry, now: float, why: str) -> None:
        self.held.move(entry, Place.DONE, now, why)
        self.held.blame(entry, (), ())
        del self.held.entries[entry.uid]
        self.nominations.end(entry.uid)
        self.preempting.end(entry.uid)
        self.untold.drop(entry.uid)
        self.memory.lapse(entry.uid)

    # Attempts

    def next_up(self) -> Entry | None:
        """The first active pod; when there is none, the first that rests after a rejection."""
        return self.held.active.first() or self.held.backoff.first()

    def hand_out(self, entry: Entry, now: float) -> None:
        if entry.place is not Place.ACTIVE:
            why = TAKEN_FROM_BACKOFF if entry.place is Place.BACKOFF else ACTIVATED
            self.held.tally.incoming[Place.ACTIVE, why] += 1
        self.held.in_flight.start(entry, now)
        self.held.move(entry, Place.IN_FLIGHT, now, "taken")
        self.held.blame(entry, (), ())
        self.preempting.end(entry.uid)
        self.untold.drop(entry.uid)
        entry.attempts += 1
        entry.active_at = now if entry.active_at is None else entry.active_at
        entry.taken, entry.node = entry.pod, ""
        entry.touched, entry.forgotten = False, None

    def hold(self, entry: Entry, plugin: str, now: float) -> None:
        """It was about to be taken, and cannot go without others."""
        self.held.move(entry, Place.GATED, now, plugin, plugin)

    def release(self, now: float) -> None:
        """Who was held for the sake of others that are there by now."""
        while released := self.held.gangs.released():
            for entry in released:
                self._requeue(entry, Worth.AFTER_REST, now, RELEASED)

    def take_back_all(self, now: float) -> None:
        """What was in flight is active again, where it was in the order."""
        for entry in list(self.held.in_flight):
            self._enter(entry, Place.ACTIVE, now, CYCLE_CHANGED)

    def take_back(self, entry: Entry, now: float, why: str = DECISION_LOST) -> None:
        """Whether its decision is lost is not known; if it holds a place, that is found out when it is decided anew."""
        if entry.place is Place.BINDING:
            self.nominations.read(entry.pod)
        self._enter(entry, Place.ACTIVE, now, why)

    def take_back_bindings(self, but: frozenset[str], now: float) -> None:
        """What was decided, but for these, is active again, where it was in the order."""
        for entry in [entry for entry in self.held.binding if entry.uid not in but]:
            self.take_back(entry, now)

    def decide(self, entry: Entry, node: str, now: float, why: str) -> None:
        self.held.binding.start(entry, now)
        self.held.move(entry, Place.BINDING, now, why)
        self.nominations.end(entry.uid)
        self.untold.drop(entry.uid)
        entry.node = node

    def reject(self, entry: Entry, plugins: tuple[str, ...], pending: tuple[str, ...], now: float) -> None:
        """An attempt has ended with plugins that would not have it. What happened meanwhile may have helped already."""
        entry.rejections += 1
        entry.errors = 0
        self.held.blame(entry, plugins, pending)
        self._start_rest(entry, now)
        worth = self.away.worth(entry)
        if worth:
            self._requeue(entry, worth, now, ATTEMPT_FAILED)
        else:
            self.held.move(entry, Place.UNSCHEDULABLE, now, ATTEMPT_FAILED)

    def fail(self, entry: Entry, now: float) -> None:
        """An attempt, or the binding after it, has ended with an error."""
        entry.errors += 1
        self.held.blame(entry, (), ())
        self._start_rest(entry, now)
        self._requeue(entry, Worth.AFTER_REST, now, ATTEMPT_FAILED)

    # What may help

    def wake(self, happening: Happening, now: float) -> None:
        """Whoever is away hears of it when it comes back."""
        if not self._hints.awaits(happening.event):
            return
        for waiting in (self.held.unschedulable, self.held.gated):
            for entry, worth in waiting.woken(happening, self._hints) if len(waiting) else ():
                was = entry.place
                self._requeue(entry, worth, now, happening.label)
                if was is entry.place is Place.GATED:
                    self.held.tally.incoming[Place.GATED, happening.label] += 1
        self.away.note(happening)

    def activate(self, entry: Entry, now: float) -> None:
        """Whatever it waits for; if it is in flight, it is tried again when it comes back and has rested."""
        if entry.place in AWAY:
            self._touch(entry, Happening(anything().event, why=ACTIVATED, only=entry.uid))
        elif entry.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            self.held.move(entry, Place.ACTIVE, now, ACTIVATED)
        elif entry.place is not Place.ACTIVE:
            self._enter(entry, Place.ACTIVE, now, ACTIVATED)

    def preempted(self, uid: str, now: float) -> None:
        """Its victims have been told to go. It is gated if something has helped meanwhile."""
        entry = self.get(uid)
        if entry is not None and entry.gate == PREEMPTION:
            self._requeue(entry, Worth.AFTER_REST, now, PREEMPTION_OVER)

    # Time

    def pass_time(self, now: float) -> None:
        for heap in (self.held.backoff, self.held.error_backoff):
            while (entry := heap.first()) is not None and not rests(entry, now):
                self.held.move(entry, Place.ACTIVE, now, REST_OVER)
        self._flush(now)
        while (uid := self.preempting.overdue(now)) is not None:
            if (overdue := self.get(uid)) is not None:
                self.activate(overdue, now)  # perhaps nobody was told, and then nothing would wake it
        while (entry := self.held.in_flight.first()) is not None and entry.deadline <= now:
            self._enter(entry, Place.ACTIVE, now, OVERDUE)
        while (entry := self.held.binding.first()) is not None and entry.deadline <= now:
            self.take_back(entry, now, OVERDUE)

    def _flush(self, now: float) -> None:
        """Gated pods stay, but that there are some is reason enough for those in flight to be tried again."""
        look = floor(now / FLUSH_INTERVAL) * FLUSH_INTERVAL
        moved = False
        while (entry := self.held.unschedulable.first()) is not None and self._limit_of(entry) <= look:
            moved = entry.flushed = True
            self._requeue(entry, Worth.AFTER_REST, now, TIME_LIMIT)
        if len(self.away) and self._flushed_at is not None and self._flushed_at < look:
            stuck = [entry for entry in self.held.gated if self._limit_of(entry) <= look]
            moved = moved or bool(stuck)
            for entry in stuck:
                entry.flushed = True
        self._flushed_at = look
        if moved:
            self.away.note(anything(TIME_LIMIT))

    def _limit_of(self, entry: Entry) -> float:
        """The first look at the unschedulable pods at which it has been there for longer than it may."""
        return ((entry.queued_at + self._patience) // FLUSH_INTERVAL + 1) * FLUSH_INTERVAL

    def next_deadline(self) -> float | None:
        held = self.held
        times = [wakes_at(entry) for entry in (held.backoff.first(), held.error_backoff.first()) if entry]
        times += [entry.deadline for entry in (held.in_flight.first(), held.binding.first()) if entry]
        if (oldest := held.unschedulable.first()) is not None:
            times.append(self._limit_of(oldest))
        if len(self.away) and len(held.gated) and self._flushed_at is not None:
            times.append(self._flushed_at + FLUSH_INTERVAL)
        if (preempting := self.preempting.next_deadline()) is not None:
            times.append(preempting)
        if (reminder := held.gangs.next_deadline()) is not None:
            times.append(reminder)
        if (again := self.untold.next_deadline()) is not None:
            times.append(again)
        return min(times, default=None)

    def forget_hints(self) -> None:
        """What plugins said holds for a cluster that may have changed."""
        self._hints.forget()
        self.away.forget()

    # Inside

    def _requeue(self, entry: Entry, worth: Worth, now: float, why: str) -> None:
        """It is worth another attempt, and need not rest if somebody only waited for this."""
        if worth is Worth.AT_ONCE or not rests(entry, now):
            self._enter(entry, Place.ACTIVE, now, why)
        else:
            rejected = entry.plugins or entry.pending
            self._enter(entry, Place.BACKOFF if rejected else Place.ERROR_BACKOFF, now, why)

    def _enter(self, entry: Entry, place: Place, now: float, why: str) -> None:
        """To active or a back-off, if its gates are open; they are not asked again when its rest is over."""
        gate = self._gate(entry)
        if gate is None:
            self.held.move(entry, place, now, why)
            if place is Place.ACTIVE and why in (ADDED, UPDATED):
                self.nominations.read(entry.pod)
        elif entry.place is not Place.GATED:
            self.held.move(entry, Place.GATED, now, why, gate)
        elif entry.gate != gate:
            self.held.gated.discard(entry)
            self.held.shut(entry, gate)
            self.held.gated.add(entry)
            self.held.gangs.moved(entry, now)

    def _gate(self, entry: Entry) -> str | None:
        """The plugin that keeps it out; one that breaks down does, too, and has no name."""
        if entry.uid in self.preempting:
            return PREEMPTION
        if entry.framework.pre_enqueue:
            try:
                status = entry.framework.run_pre_enqueue(entry.pod)
            except Exception as cause:
                self._problems.append(_gate_broken(entry.pod, cause))
                return ""
            if not status.ok:
                return status.plugin
        status = self.held.gangs.gate(entry)
        return None if status.ok else status.plugin

    def _touch(self, entry: Entry, happening: Happening) -> None:
        """It has happened to a pod that is away."""
        entry.touched = True
        self.away.note(happening)

    def _start_rest(self, entry: Entry, now: float) -> None:
        entry.flushed = False
        self._line_up(entry, now)
        entry.backoff_until = self._backoff_rule.until(entry)
        counts = (entry.attempts, entry.rejections, entry.errors)
        self.memory.keep(entry.uid, Kept(*counts, entry.queued_at, entry.backoff_until))

    def _line_up(self, entry: Entry, at: float) -> None:
        """Behind all of its priority that are queued already."""
        self._orders += 1
        entry.queued_at, entry.order = at, self._orders
        entry.rank = self._rank(entry, entry.pod)

    def _rank(self, entry: Entry, pod: Pod) -> tuple[object, int]:
        return entry.framework.queue_sort.sort_key(pod, entry.queued_at), entry.order

    def validate(self) -> None:
        self.held.validate()
        self.nominations.validate(self.held.entries)
        self.preempting.validate(self.held.entries)
        self.untold.validate()


def _gate_broken(pod: Pod, cause: Exception) -> FlotillaError:
    if isinstance(cause, FlotillaError):
        return cause
    problem = UserError(f"Pod {pod.key}: a PreEnqueue plugin broke down: {type(cause).__name__}: {cause}")
    problem.__cause__ = cause
    return problem
