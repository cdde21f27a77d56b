"""The core of evictions: evicts victims for a preemptor, as the snapshot orders.

All victims but the last are evicted at the same time; the last one only once all others were told to go, so that the
preemptor is not tried in between. The calls for a victim are made one after the other:

    IDLE -> look up -+-> gone, replaced, or terminating already -------------------> over
                     +-> mark (the condition DisruptionTarget, unless it is set) -> delete -> over
                     +-> not bound yet -> withdrawn again, paused, looked up ...; not bound in the end: over

A victim is deleted only at the version at which it was marked. If the eviction fails, marked victims are cancelled: the
condition becomes False, which gives them another version. So no deletion of an eviction that has ended can succeed
later, however late the API server carries it out; if a cancellation is not answered, the failure says so.

A failed call is retried from the look-up on, after a pause that doubles, until the eviction's deadline. A call that
cannot succeed, such as one without the right for it, fails the eviction: no further step is taken for any victim,
marked ones are cancelled, and the failure is reported. The eviction also fails if it has no reason any more: the
snapshot does not know this nomination with these victims, or the preemptor is gone, bound, nominated elsewhere, may not
preempt, or is not of higher priority. The snapshot is asked each time before a victim is touched, and the API server
unless it was within the last second: an order may be minutes old, or forged, or carried out by another binder as well,
which has ended it. Without an answer no victim is touched.

A victim that is only assumed to be bound is withdrawn from the binders; the API server says whether that was too late.

Concurrent evictions, calls and waiting evictions are bounded. A repeated eviction does nothing while it is under way;
after its end, the end is reported again. Ends are reported every second until the queue acknowledges them.
"""

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Sequence

from services.binder.events import Exit, Leave, Problem, Tick
from services.binder.eviction_intake import LEAVING, MAX_FOR_GANGS, MAX_WAITING, EvictionIntake, Gang, gang_of
from services.binder.eviction_state import (
    Answered,
    ClearNomination,
    Done,
    EvictedAcknowledged,
    Eviction,
    EvictionBegan,
    EvictionCall,
    EvictionEnded,
    Failed,
    Found,
    Gone,
    Key,
    RecordPreempted,
    RecordPreemption,
    Step,
    VictimEviction,
    VictimState,
)
from shared.errors import InvariantBroken, ProtocolError
from shared.kube.events_and_conditions import DisruptionTarget, ObservedPod, preemption_condition
from shared.messages.binding import Evict, Evicted, EvictedPod, Preemption, Withdraw
from shared.messages.limits import PREEMPTION_TIMEOUT
from shared.runtime.unanswered import Unanswered

MAX_WINDOW = PREEMPTION_TIMEOUT - 10
"""Seconds that an eviction may take; the queue holds the preemptor back for longer."""
MAX_RUNNING = 64
"""Evictions at the same time."""
MAX_CALLS = 32
"""Calls to the API server at the same time."""
MAX_ENDED = MAX_FOR_GANGS
"""Evictions whose end is remembered."""
REPEAT_SECONDS = 1.0
"""An unacknowledged end is reported again after this."""
REPORT_SECONDS = PREEMPTION_TIMEOUT
"""An end is not reported for longer than this: the queue has retried the preemptor by then."""
CANCEL_SECONDS = 5.0
"""An eviction whose window has ended may cancel its marks for this long."""
FIRST_RETRY = 0.25
"""Seconds until the first retry of a victim; doubled each time."""
MAX_RETRY = 2.0
"""Seconds between two tries of a victim, at most."""
FIRST_LOOK_UP = 0.2
"""Seconds from the withdrawal of a pod until it is looked up."""
NEXT_LOOK_UP = 0.4
"""Seconds between two look-ups of a withdrawn pod."""
MAX_LOOK_UPS = 3
"""A withdrawn pod that is not bound at this many look-ups will not be bound."""

PLUGIN = "DefaultPreemption"
REASON = "preempted"
TOO_LATE = f"not all victims were told to go within {MAX_WINDOW:g} s"

Event = Evict | Answered | EvictedAcknowledged | Tick | Leave | Exit
Records = RecordPreempted | RecordPreemption | EvictionBegan | EvictionEnded
Effect = EvictionCall | Withdraw | ClearNomination | Records | Evicted | Problem


class EvictionCore:
    def __init__(self) -> None:
        self._epoch = 0
        self._intake = EvictionIntake()
        self._waiting: dict[Key, Evict] = {}
        self._deadlines: dict[Key, float] = {}
        """Of waiting evictions."""
        self._lines: tuple[OrderedDict[Key, None], OrderedDict[Key, None]] = OrderedDict(), OrderedDict()
        """Waiting evictions for single pods, and for gangs. They begin in turn, so that neither waits for the other."""
        self._turn = 0
        self._running: dict[Key, Eviction] = {}
        self._ends: list[tuple[float, Key]] = []
        """A heap of the deadlines of waiting and running evictions, and of some that have ended or got another one."""
        self._ended: OrderedDict[Key, Evicted] = OrderedDict()
        self._unacknowledged: Unanswered[Key, tuple[Key, float]] = Unanswered((REPEAT_SECONDS,))
        """Ends that are reported again, by key: the key, and until when."""
        self._ready: deque[tuple[Eviction, VictimEviction]] = deque()
        self._paused: list[tuple[float, int, Eviction, VictimEviction]] = []
        self._pauses = 0
        self._calls: set[tuple[Key, str, int]] = set()
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._effects = []
        match event:
            case Answered():
                self._on_answered(event, now)
            case Evict():
                self._on_evict(event, now)
            case EvictedAcknowledged(uid=uid, attempt=attempt):
                self._unacknowledged.answered((uid, attempt))
            case Tick():
                self._on_tick(now)
            case Leave():
                self._on_leave(now)
            case Exit():
                self._on_exit(now)
        self._begin_waiting(now)
        self._make_calls()
        return self._effects

    def next_deadline(self) -> float:
        deadline = self._next_end()
        again = self._unacknowledged.next_deadline()
        if again is not None:
            deadline = min(deadline, again)
        return min(deadline, self._paused[0][0]) if self._paused else deadline

    @property
    def held(self) -> int:
        """Evictions that have not ended."""
        return len(self._running) + len(self._waiting)

    @property
    def unacknowledged(self) -> int:
        """Ends that the queue has not acknowledged."""
        return len(self._unacknowledged)

    # Evictions

    def _on_evict(self, evict: Evict, now: float) -> None:
        key = (evict.uid, evict.attempt)
        if evict.epoch < self._epoch:
            self._effects.append(Problem(ProtocolError(f"eviction of epoch {evict.epoch}, now {self._epoch}")))
            return
        self._epoch = evict.epoch
        if key in self._ended:
            self._report(key, now + REPORT_SECONDS, now)
        elif key in self._running or key in self._waiting:
            return
        elif why := self._intake.refusal(evict):
            self._report_end(evict, why, now)
        else:
            self._waiting[key] = evict
            self._lines[bool(evict.gang)][key] = None
            self._deadlines[key] = now + (evict.window if 0 < evict.window < MAX_WINDOW else MAX_WINDOW)
            heapq.heappush(self._ends, (self._deadlines[key], key))

    def _begin_waiting(self, now: float) -> None:
        while self._waiting and len(self._running) < MAX_RUNNING:
            key = self._next_in_turn()
            evict = self._waiting.pop(key)
            self._intake.begins(evict)
            victims = {pod.uid: VictimEviction(pod, FIRST_RETRY) for pod in evict.victims}
            eviction = Eviction(evict, self._deadlines.pop(key), now, victims)
            self._running[key] = eviction
            self._effects.append(EvictionBegan(len(eviction.victims)))
            self._effects.extend(ClearNomination(pod, evict.node) for pod in evict.denominated)
            for victim in eviction.idle()[:-1]:
                self._begin(eviction, victim, now)
            self._advance(eviction, now)

    def _next_in_turn(self) -> Key:
        """Takes it out of its line; one must wait."""
        self._turn = 1 - self._turn
        line = self._lines[self._turn] or self._lines[1 - self._turn]
        key, _ = line.popitem(last=False)
        return key

    def _advance(self, eviction: Eviction, now: float) -> None:
        """Begins the last victim, or ends the eviction, once no victim is under way."""
        if eviction.under_way:
            return
        idle = eviction.idle()
        if idle and not eviction.failure:
            self._begin(eviction, idle[0], now)
        else:
            self._end(eviction, now)

    def _end(self, eviction: Eviction, now: float) -> None:
        del self._running[eviction.key]
        self._calls = {call for call in self._calls if call[0] != eviction.key}
        if eviction.evicted:
            self._effects.append(RecordPreemption(eviction.evict, eviction.evicted))
        self._effects.append(EvictionEnded(now - eviction.began, bool(eviction.failure)))
        self._report_end(eviction.evict, eviction.failure, now, eviction.evicted)
        gang = gang_of(eviction.evict)
        if eviction.failure and gang is not None:
            self._give_up_gang(gang, f"another eviction for the gang failed: {eviction.failure}", now)

    def _report_end(self, evict: Evict, failure: str, now: float, victims: Sequence[EvictedPod] = ()) -> None:
        key = (evict.uid, evict.attempt)
        preemption = Preemption(evict.namespace, evict.name, evict.node, tuple(victims), evict.gang)
        self._ended[key] = Evicted(*key, failure, preemption)
        self._report(key, now + REPORT_SECONDS, now)
        if len(self._ended) > MAX_ENDED:
            oldest, _ = self._ended.popitem(last=False)
            self._unacknowledged.answered(oldest)

    def _report(self, key: Key, until: float, now: float) -> None:
        self._effects.append(self._ended[key])
        self._unacknowledged.sent(key, (key, until), now)

    # Victims

    def _begin(self, eviction: Eviction, victim: VictimEviction, now: float) -> None:
        if victim.assumed:
            self._withdraw(eviction, victim, FIRST_LOOK_UP, now)
        else:
            self._ready_for(eviction, victim, Step.LOOK_UP)

    def _ready_for(self, eviction: Eviction, victim: VictimEviction, step: Step) -> None:
        """A victim that was looked up goes before one that was not."""
        victim.move(VictimState.READY)
        victim.step = step
        if step is Step.LOOK_UP:
            self._ready.append((eviction, victim))
        else:
            self._ready.appendleft((eviction, victim))

    def _make_calls(self) -> None:
        while self._ready and len(self._calls) < MAX_CALLS:
            eviction, victim = self._ready.popleft()
            if victim.state is not VictimState.READY or eviction.key not in self._running:
                continue
            victim.move(VictimState.CALLING)
            victim.number += 1
            condition = victim.condition if victim.step in (Step.MARK, Step.CANCEL) else None
            self._calls.add((eviction.key, victim.pod.uid, victim.number))
            of = (eviction.evict, victim.pod, victim.number, victim.step, eviction.deadline)
            self._effects.append(EvictionCall(*of, condition, victim.priority, victim.version))

    def _on_answered(self, answered: Answered, now: float) -> None:
        call = answered.call
        made = (call.key, call.victim.uid, call.number)
        if made not in self._calls:
            return
        self._calls.remove(made)
        eviction = self._running.get(call.key)
        if eviction is None:
            return
        if eviction.deadline <= now:
            self._time_out(eviction, now)
        if eviction.key not in self._running:
            return
        victim = eviction.victims[call.victim.uid]
        match answered.reply:
            case Found(pod=pod) if pod.uid == victim.pod.uid:
                self._on_found(eviction, victim, pod, now)
            case Found() | Gone():
                self._over(eviction, victim, now, evicted=victim.deleting)
            case Done(version=version) if call.step is Step.MARK:
                victim.marked, victim.version = True, version
                self._go_on(eviction, victim, Step.DELETE, now)
            case Done():
                self._over(eviction, victim, now, evicted=call.step is Step.DELETE)
            case Failed() as failed:
                victim.deleting |= failed.maybe_done and call.step is Step.DELETE
                self._on_failed(eviction, victim, failed, now)

    def _on_found(self, eviction: Eviction, victim: VictimEviction, pod: ObservedPod, now: float) -> None:
        victim.priority, victim.owner, victim.group = pod.priority, pod.owner, pod.group
        victim.node = pod.node if pod.node != eviction.evict.node else ""
        if pod.terminating:
            self._over(eviction, victim, now, evicted=victim.deleting)
        elif victim.assumed and not pod.node:
            victim.looks += 1
            if victim.looks < MAX_LOOK_UPS:
                self._withdraw(eviction, victim, NEXT_LOOK_UP, now)
            else:
                self._over(eviction, victim, now, evicted=True, in_memory=True)
        else:
            victim.version = pod.version
            victim.condition = preemption_condition(pod, eviction.message, now)
            victim.marked |= victim.condition is None
            self._go_on(eviction, victim, Step.DELETE if victim.condition is None else Step.MARK, now)

    def _go_on(self, eviction: Eviction, victim: VictimEviction, step: Step, now: float) -> None:
        if eviction.failure:
            self._give_up(eviction, victim, now)
            self._advance(eviction, now)
        else:
            self._ready_for(eviction, victim, step)

    def _give_up(self, eviction: Eviction, victim: VictimEviction, now: float) -> None:
        """Of a failed eviction. What was not marked is not being deleted."""
        if victim.marked:
            victim.cancelling = True
            victim.condition = DisruptionTarget(f"{eviction.message}: cancelled", now, cancelled=True)
            self._ready_for(eviction, victim, Step.CANCEL)
        else:
            victim.move(VictimState.OVER)

    def _withdraw(self, eviction: Eviction, victim: VictimEviction, pause: float, now: float) -> None:
        """Repeated at each look-up: it may have been lost."""
        self._effects.append(Withdraw(victim.pod.uid, victim.pod.attempt, PLUGIN, REASON, eviction.evict.epoch))
        self._pause(eviction, victim, pause, now)

    def _pause(self, eviction: Eviction, victim: VictimEviction, seconds: float, now: float) -> None:
        victim.move(VictimState.PAUSED)
        victim.resume_at = now + seconds
        self._pauses += 1
        heapq.heappush(self._paused, (victim.resume_at, self._pauses, eviction, victim))

    def _on_failed(self, eviction: Eviction, victim: VictimEviction, failed: Failed, now: float) -> None:
        if not failed.final and (victim.cancelling or not eviction.failure):
            self._pause(eviction, victim, victim.pause, now)
            victim.pause = min(2 * victim.pause, MAX_RETRY)
            return
        pod = victim.pod
        why = f"victim {pod.namespace}/{pod.name}: {failed.message}"
        if victim.cancelling:
            eviction.failure += f"; {why}; it may still be deleted"
            victim.move(VictimState.OVER)
        else:
            self._fail(eviction, why, now)
            self._give_up(eviction, victim, now)
        self._advance(eviction, now)

    def _fail(self, eviction: Eviction, why: str, now: float) -> None:
        """No further victim is touched."""
        if eviction.failure:
            return
        eviction.failure = why
        for victim in eviction.victims.values():
            if victim.state is VictimState.PAUSED or (victim.state is VictimState.READY and not victim.number):
                self._give_up(eviction, victim, now)

    def _over(
        self, eviction: Eviction, victim: VictimEviction, now: float, *, evicted: bool, in_memory: bool = False
    ) -> None:
        victim.move(VictimState.OVER)
        if evicted:
            eviction.evicted.append(victim.evicted(in_memory=in_memory))
            self._effects.append(RecordPreempted(eviction.evict, victim.pod, in_memory, victim.node))
        self._advance(eviction, now)

    # Time

    def _on_tick(self, now: float) -> None:
        while self._next_end() <= now:
            _, key = heapq.heappop(self._ends)
            if key in self._waiting:
                self._give_up_waiting(key, f"it did not begin within {MAX_WINDOW:g} s", now)
            else:
                self._time_out(self._running[key], now)
        for key, until in self._unacknowledged.due(now):
            if now < until:
                self._effects.append(self._ended[key])
            else:
                self._unacknowledged.answered(key)
        while self._paused and self._paused[0][0] <= now:
            when, _, eviction, victim = heapq.heappop(self._paused)
            if victim.state is VictimState.PAUSED and victim.resume_at == when and eviction.key in self._running:
                self._ready_for(eviction, victim, Step.LOOK_UP)

    def _next_end(self) -> float:
        while self._ends and not self._is_end(*self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def _is_end(self, deadline: float, key: Key) -> bool:
        eviction = self._running.get(key)
        return deadline == (self._deadlines.get(key) if eviction is None else eviction.deadline)

    def _time_out(self, eviction: Eviction, now: float, why: str = TOO_LATE) -> None:
        """Ends the eviction; marked victims are cancelled first, for which there is a little more time."""
        late = [each for each in eviction.victims.values() if each.marked and each.state is not VictimState.OVER]
        if not eviction.timed_out and late:
            eviction.timed_out, eviction.deadline = True, now + CANCEL_SECONDS
            heapq.heappush(self._ends, (eviction.deadline, eviction.key))
            self._fail(eviction, why, now)
            return
        eviction.failure = eviction.failure or why
        if late:
            eviction.failure += f"; {len(late)} victims may still be deleted"
        self._end(eviction, now)

    def _on_leave(self, now: float) -> None:
        """Evictions under way are finished, as far as there is time; for a gang, all of them or none."""
        self._intake.leave()
        for key, evict in list(self._waiting.items()):
            if key in self._waiting and not self._intake.has_begun(evict):
                self._give_up_waiting(key, LEAVING, now)

    def _on_exit(self, now: float) -> None:
        """All that has not ended ends, so that the queue learns of it, and does not wait in vain."""
        while self._waiting:
            self._give_up_waiting(next(iter(self._waiting)), LEAVING, now)
        for eviction in list(self._running.values()):
            eviction.timed_out = True
            self._time_out(eviction, now, LEAVING)

    def _give_up_waiting(self, key: Key, why: str, now: float) -> None:
        """For a gang, all that waits: without one of them the others would be for nothing."""
        gang = gang_of(self._waiting[key])
        if gang is None:
            self._remove_waiting(key, why, now)
        else:
            self._give_up_gang(gang, why, now)

    def _give_up_gang(self, gang: Gang, why: str, now: float) -> None:
        self._intake.refuse(gang, why)
        for key in [key for key in self._lines[True] if gang_of(self._waiting[key]) == gang]:
            self._remove_waiting(key, why, now)

    def _remove_waiting(self, key: Key, why: str, now: float) -> None:
        del self._deadlines[key]
        evict = self._waiting.pop(key)
        del self._lines[bool(evict.gang)][key]
        self._intake.gives_up(evict)
        self._report_end(evict, why, now)

    def validate(self) -> None:
        if self._deadlines.keys() != self._waiting.keys() or (self._waiting and len(self._running) < MAX_RUNNING):
            raise InvariantBroken("evictions wait without need, or without a deadline")
        waiting = self._intake.waiting, self._intake.waiting_for_gangs
        if sum(waiting) != len(self._waiting) or waiting[0] > MAX_WAITING or waiting[1] > MAX_FOR_GANGS:
            raise InvariantBroken(f"{len(self._waiting)} evictions wait, counted as {waiting}")
        if {key: bool(evict.gang) for key, evict in self._waiting.items()} != {
            key: bool(number) for number, line in enumerate(self._lines) for key in line
        }:
            raise InvariantBroken("an eviction waits in no line, or in the wrong one")
        if len(self._running) > MAX_RUNNING or len(self._calls) > MAX_CALLS:
            raise InvariantBroken(f"{self.held} evictions are held, {len(self._calls)} calls made")
        running = ((each.deadline, key) for key, each in self._running.items())
        waiting_until = ((deadline, key) for key, deadline in self._deadlines.items())
        if not {*running, *waiting_until} <= set(self._ends):
            raise InvariantBroken("an eviction's deadline is not waited for")
        self._unacknowledged.validate()
        if not self._ended.keys() >= set(self._unacknowledged):
            raise InvariantBroken("ends to report are unknown")
        ready = {id(victim) for _, victim in self._ready}
        paused = {id(victim) for _, _, _, victim in self._paused}
        for eviction in self._running.values():
            if not eviction.under_way:
                raise InvariantBroken(f"the eviction {eviction.key} is stuck")
            for uid, victim in eviction.victims.items():
                there = {
                    VictimState.READY: id(victim) in ready,
                    VictimState.PAUSED: id(victim) in paused,
                    VictimState.CALLING: (eviction.key, uid, victim.number) in self._calls,
                }
                if not there.get(victim.state, True):
                    raise InvariantBroken(f"victim {uid} of {eviction.key} is stuck: {victim.state}")
