"""Evicting: has pods make way for a pod of higher priority, as the snapshot asks.

All victims but the last go at the same time; the last one only once all others have been told to go, so that the pod
they make way for cannot be tried in between. Each victim goes through the same steps, made one after the other:

    IDLE -> look -+-> gone, replaced, or going already -------------------> over
                  +-> mark (the condition DisruptionTarget, if it does not stand there) -> delete -> over
                  +-> not bound yet -> withdrawn once more, paused, look ...; not bound in the end: over

What goes wrong is tried again from the look on, after a pause that doubles, until the eviction's deadline. What cannot
go right, as missing rights, fails the eviction: what was begun is finished, nothing more is begun, and the failure is
told. So it ends where there is no reason for it any more: the snapshot does not know of this nomination with these
victims, or the pod that they make way for is gone, bound, nominated elsewhere, may not preempt, or is not of higher
priority than the victim. Snapshot and API server are asked before a victim is touched, unless that was within the last
second: an order may have lain somewhere for minutes, or be forged. Without an answer nobody is touched.

A victim that is only assumed to be bound is withdrawn from the binders; whether it was too late for that, the API
server knows.

How much is done at a time, and how much may wait, is bounded. An eviction that comes again does nothing while it is
under way; after its end, it is told again how it ended. That is told every second until the queue has heard it.
"""

import heapq
import math
from collections import OrderedDict, deque

from services.binder.events import Leave, Problem, Tick
from services.binder.eviction.eviction_state import (
    Answered,
    Ask,
    Began,
    Done,
    Eviction,
    Failed,
    Found,
    Gone,
    Heard,
    Key,
    Over,
    Preempted,
    Stage,
    Step,
    Unnominate,
    Victim,
)
from shared.errors import InvariantBroken, ProtocolError
from shared.kube.notes import PodStanding, marked
from shared.messages.binding import Evict, Evicted, Withdraw

PATIENCE = 20.0
"""Seconds that an eviction may take; the queue holds the pod back for longer."""
MOST_AT_ONCE = 64
"""Evictions under way."""
MOST_WAITING = 1024
"""Evictions that wait for their turn."""
MOST_ASKED = 32
"""Calls to the API server at the same time."""
MOST_TOLD = 8192
"""Evictions whose end is remembered."""
REPEAT = 1.0
"""Seconds after which the end of an eviction is told again."""
TELLING = 30.0
"""Seconds after which it is not told any more: the queue does not wait for it any longer."""
RETRY = 0.25
LONGEST_RETRY = 2.0
FIRST_LOOK = 0.2
"""Seconds from the withdrawal of a pod until it is looked up."""
LOOK_AGAIN = 0.4
LOOKS = 3
"""A pod that is not bound at so many looks has been withdrawn, and will not be bound."""

PLUGIN = "DefaultPreemption"
REASON = "preempted"
LEAVING = "the binder is leaving"

Event = Evict | Answered | Heard | Tick | Leave
Effect = Ask | Withdraw | Unnominate | Preempted | Evicted | Began | Over | Problem


class Evicting:
    def __init__(self) -> None:
        self._epoch = 0
        self._waiting: OrderedDict[Key, Evict] = OrderedDict()
        self._due: dict[Key, float] = {}
        """By when those that wait are to have ended."""
        self._running: dict[Key, Eviction] = {}
        self._told: OrderedDict[Key, Evicted] = OrderedDict()
        self._unheard: OrderedDict[Key, tuple[float, float]] = OrderedDict()
        """Of what was told, when it is to be told again, and until when; the first to be told first."""
        self._ready: deque[tuple[Eviction, Victim]] = deque()
        self._paused: list[tuple[float, int, Eviction, Victim]] = []
        self._pauses = 0
        self._asked: set[tuple[Key, str, int]] = set()
        self._leaving = False
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._effects = []
        match event:
            case Answered():
                self._on_answered(event, now)
            case Evict():
                self._on_evict(event, now)
            case Heard(uid=uid, attempt=attempt):
                self._unheard.pop((uid, attempt), None)
            case Tick():
                self._on_tick(now)
            case Leave():
                self._on_leave(now)
        self._begin_waiting(now)
        self._ask_ready()
        return self._effects

    def next_deadline(self) -> float:
        again, _ = next(iter(self._unheard.values()), (math.inf, 0.0))
        deadline = min((eviction.deadline for eviction in self._running.values()), default=math.inf)
        deadline = min(deadline, again)
        return min(deadline, self._paused[0][0]) if self._paused else deadline

    @property
    def held(self) -> int:
        """Evictions that have not ended."""
        return len(self._running) + len(self._waiting)

    @property
    def untold(self) -> int:
        """Those whose end the queue is not known to have heard of."""
        return len(self._unheard)

    # Evictions

    def _on_evict(self, evict: Evict, now: float) -> None:
        key = (evict.uid, evict.attempt)
        if evict.epoch < self._epoch:
            self._effects.append(Problem(ProtocolError(f"an eviction of epoch {evict.epoch}, now {self._epoch}")))
            return
        self._epoch = evict.epoch
        if key in self._told:
            self._say(key, now + TELLING, now)
        elif key in self._running or key in self._waiting:
            return
        elif self._leaving:
            self._tell(key, LEAVING, now)
        elif len(self._waiting) >= MOST_WAITING:
            self._tell(key, f"{len(self._waiting)} other evictions wait already", now)
        else:
            self._waiting[key] = evict
            self._due[key] = now + (evict.window if 0 < evict.window < PATIENCE else PATIENCE)

    def _begin_waiting(self, now: float) -> None:
        while self._waiting and len(self._running) < MOST_AT_ONCE:
            key, evict = self._waiting.popitem(last=False)
            eviction = Eviction(evict, self._due.pop(key), RETRY)
            eviction.began = now
            self._running[key] = eviction
            self._effects.append(Began(len(eviction.victims)))
            self._effects.extend(Unnominate(pod, evict.node) for pod in evict.denominated)
            victims = eviction.idle()
            for victim in victims[:-1]:
                self._begin(eviction, victim, now)
            self._go_on(eviction, now)

    def _go_on(self, eviction: Eviction, now: float) -> None:
        """Some victim is over, or none has begun."""
        if eviction.under_way():
            return
        idle = eviction.idle()
        if idle and not eviction.failure:
            self._begin(eviction, idle[0], now)
        else:
            self._end(eviction, now)

    def _end(self, eviction: Eviction, now: float) -> None:
        """Calls that are still out end with their deadline, which has passed."""
        del self._running[eviction.key]
        self._asked = {asked for asked in self._asked if asked[0] != eviction.key}
        self._effects.append(Over(now - eviction.began, bool(eviction.failure)))
        self._tell(eviction.key, eviction.failure, now)

    def _tell(self, key: Key, failure: str, now: float) -> None:
        uid, attempt = key
        self._told[key] = Evicted(uid, attempt, failure)
        self._say(key, now + TELLING, now)
        if len(self._told) > MOST_TOLD:
            oldest, _ = self._told.popitem(last=False)
            self._unheard.pop(oldest, None)

    def _say(self, key: Key, until: float, now: float) -> None:
        """Until the queue has heard it, or it is too late for that."""
        self._effects.append(self._told[key])
        self._unheard[key] = now + REPEAT, until
        self._unheard.move_to_end(key)

    # Victims

    def _begin(self, eviction: Eviction, victim: Victim, now: float) -> None:
        if victim.assumed:
            self._withdraw(eviction, victim, FIRST_LOOK, now)
        else:
            self._next(eviction, victim, Step.LOOK)

    def _next(self, eviction: Eviction, victim: Victim, step: Step) -> None:
        """What has been begun goes before what has not."""
        victim.stage, victim.step = Stage.READY, step
        if step is Step.LOOK:
            self._ready.append((eviction, victim))
        else:
            self._ready.appendleft((eviction, victim))

    def _ask_ready(self) -> None:
        while self._ready and len(self._asked) < MOST_ASKED:
            eviction, victim = self._ready.popleft()
            if victim.stage is not Stage.READY or eviction.key not in self._running:
                continue
            victim.stage = Stage.ASKED
            victim.number += 1
            condition = victim.condition if victim.step is Step.MARK else None
            self._asked.add((eviction.key, victim.pod.uid, victim.number))
            of = (eviction.evict, victim.pod, victim.number, victim.step, eviction.deadline)
            self._effects.append(Ask(*of, condition, victim.priority))

    def _on_answered(self, answered: Answered, now: float) -> None:
        ask = answered.ask
        asked = (ask.key, ask.victim.uid, ask.number)
        if asked not in self._asked:
            return
        self._asked.remove(asked)
        eviction = self._running.get(ask.key)
        if eviction is None:
            return
        if eviction.deadline <= now:
            self._time_out(eviction, now)
            return
        victim = eviction.victims[ask.victim.uid]
        match answered.reply:
            case Found(pod=pod) if pod.uid == victim.pod.uid:
                self._on_found(eviction, victim, pod, now)
            case Found() | Gone():
                self._over(eviction, victim, now, told=victim.deleting)
            case Done() if ask.step is Step.MARK:
                self._next(eviction, victim, Step.DELETE)
            case Done():
                self._over(eviction, victim, now, told=True)
            case Failed() as failed:
                victim.deleting |= failed.maybe_done and ask.step is Step.DELETE
                self._on_failed(eviction, victim, failed, now)

    def _on_found(self, eviction: Eviction, victim: Victim, pod: PodStanding, now: float) -> None:
        if pod.terminating:
            self._over(eviction, victim, now, told=victim.deleting)
        elif victim.assumed and not pod.node:
            victim.looks += 1
            if victim.looks < LOOKS:
                self._withdraw(eviction, victim, LOOK_AGAIN, now)
            else:
                self._over(eviction, victim, now, told=True, in_memory=True)
        else:
            victim.priority = pod.priority
            victim.condition = marked(pod, eviction.message, now)
            self._next(eviction, victim, Step.DELETE if victim.condition is None else Step.MARK)

    def _withdraw(self, eviction: Eviction, victim: Victim, pause: float, now: float) -> None:
        """Said again each time: it may have been lost."""
        self._effects.append(Withdraw(victim.pod.uid, victim.pod.attempt, PLUGIN, REASON, eviction.evict.epoch))
        self._pause(eviction, victim, pause, now)

    def _pause(self, eviction: Eviction, victim: Victim, seconds: float, now: float) -> None:
        victim.stage, victim.resume_at = Stage.PAUSED, now + seconds
        self._pauses += 1
        heapq.heappush(self._paused, (victim.resume_at, self._pauses, eviction, victim))

    def _on_failed(self, eviction: Eviction, victim: Victim, failed: Failed, now: float) -> None:
        if not failed.final and not eviction.failure:
            self._pause(eviction, victim, victim.pause, now)
            victim.pause = min(2 * victim.pause, LONGEST_RETRY)
            return
        pod = victim.pod
        eviction.failure = eviction.failure or f"victim {pod.namespace}/{pod.name}: {failed.message}"
        for other in eviction.victims.values():
            if other.stage is Stage.PAUSED or (other.stage is Stage.READY and not other.number):
                other.stage = Stage.OVER
        self._over(eviction, victim, now, told=False)

    def _over(self, eviction: Eviction, victim: Victim, now: float, *, told: bool, in_memory: bool = False) -> None:
        victim.stage = Stage.OVER
        if told:
            self._effects.append(Preempted(eviction.evict, victim.pod, in_memory))
        self._go_on(eviction, now)

    # Time

    def _on_tick(self, now: float) -> None:
        for eviction in [each for each in self._running.values() if each.deadline <= now]:
            self._time_out(eviction, now)
        for key in [key for key, due in self._due.items() if due <= now]:
            del self._waiting[key], self._due[key]
            self._tell(key, f"it did not have its turn within {PATIENCE:g} s", now)
        while self._unheard and next(iter(self._unheard.values()))[0] <= now:
            key, (_, until) = self._unheard.popitem(last=False)
            if now < until:
                self._say(key, until, now)
        while self._paused and self._paused[0][0] <= now:
            when, _, eviction, victim = heapq.heappop(self._paused)
            if victim.stage is Stage.PAUSED and victim.resume_at == when and eviction.key in self._running:
                self._next(eviction, victim, Step.LOOK)

    def _time_out(self, eviction: Eviction, now: float) -> None:
        eviction.failure = f"the victims have not all been told to go within {PATIENCE:g} s"
        self._end(eviction, now)

    def _on_leave(self, now: float) -> None:
        """What is under way is finished, as far as there is time."""
        self._leaving = True
        for key in self._waiting:
            self._tell(key, LEAVING, now)
        self._waiting.clear()
        self._due.clear()

    def validate(self) -> None:
        """Nothing is stuck, nothing waits without need, and no bound is exceeded."""
        if self._due.keys() != self._waiting.keys() or (self._waiting and len(self._running) < MOST_AT_ONCE):
            raise InvariantBroken("evictions wait without need, or nobody knows for how long")
        if len(self._running) > MOST_AT_ONCE or len(self._waiting) > MOST_WAITING or len(self._asked) > MOST_ASKED:
            raise InvariantBroken(f"{self.held} evictions are held, {len(self._asked)} calls made")
        again = [at for at, _ in self._unheard.values()]
        if again != sorted(again) or not self._told.keys() >= self._unheard.keys():
            raise InvariantBroken("what is to be told again is in the wrong order, or not known")
        ready = {id(victim) for _, victim in self._ready}
        paused = {id(victim) for _, _, _, victim in self._paused}
        for eviction in self._running.values():
            if not eviction.under_way():
                raise InvariantBroken(f"the eviction {eviction.key} is stuck")
            for uid, victim in eviction.victims.items():
                there = {
                    Stage.READY: id(victim) in ready,
                    Stage.PAUSED: id(victim) in paused,
                    Stage.ASKED: (eviction.key, uid, victim.number) in self._asked,
                }
                if not there.get(victim.stage, True):
                    raise InvariantBroken(f"nobody will go on with victim {uid} of {eviction.key}: {victim.stage}")
