"""Membership: which workers there are, and which shards each of them holds.

Whoever beats is a member; whoever does not for a while is none, and its shards go to others. So do at once those of a
member that says that it leaves. Shards move as little as can be: a member keeps what it holds, up to its fair share. A
new cycle learns from the beats what is held already. Of two processes of one name the beats of one count.
"""

from collections import deque
from dataclasses import dataclass, field

from services.cycle.events import Workers
from services.cycle.trust import Trust
from shared.errors import MOST_REMEMBERED
from shared.messages.identity import NameTaken
from shared.messages.workers import Assign, WorkerBeat
from shared.runtime.names import Names

WORKER_PATIENCE = 5.0
"""Seconds without a beat after which a worker counts as lost: longer than it takes to load what it holds."""
LOADING_PATIENCE = 30.0
"""Seconds that a worker may take to load its shards, while others have loaded theirs: then these get them."""
REPEAT = 4.0
"""Seconds after which a worker is told again which shards it holds: less than it waits for that."""
BENCH = 60.0
"""Seconds for which such a worker gets none."""
SETTLING = 0.5
"""Seconds after the first beat until shards are given out, unless all expected workers beat before: workers that start
together get their shards once. The first of many would otherwise load all shards, without the memory for them.
"""
LONGEST_SETTLING = 5.0
"""Of a fleet of which one after the other comes."""


@dataclass(slots=True)
class _Member:
    incarnation: str
    heard_at: float
    shards: set[int] = field(default_factory=set)
    assignment: int = 0
    told_at: float = 0.0
    """When it was last told its assignment."""
    loaded_at: float = 0.0
    """When it was last heard to have all it holds, or was given it."""
    has_loaded: bool = False
    leaving: bool = False
    signs: bool = False


class Membership:
    """The methods answer with what is to be sent, by worker; `changed`: `workers` is to be looked at again.

    `refused`: who is to be told that another process has its name; the caller takes them out.
    """

    def __init__(self, epoch: int, shard_count: int, expected: int = 0) -> None:
        """`expected`: workers that start together; once all of them beat, no other is waited for. 0: unknown."""
        self.epoch = epoch
        self.shard_count = shard_count
        self.expected = expected
        self.changed = False
        self.refused: deque[NameTaken] = deque(maxlen=MOST_REMEMBERED)
        self._members: dict[str, _Member] = {}
        self._benched: dict[str, float] = {}
        self._trust = Trust()
        self._names = Names()
        self._number = 0
        self._nothing_at = 0.0
        """When nobody was last known to have loaded anything."""
        self._begun_at: float | None = None
        self._settled_at: float | None = None

    def beat(self, beat: WorkerBeat, now: float) -> list[tuple[str, Assign]]:
        of = (beat.worker, beat.incarnation, now)
        ruling = self._names.beat(*of, epoch=self.epoch, uptime=beat.uptime, leaving=beat.leaving)
        if not ruling.counts:
            if ruling.taken is not None:
                self.refused.append(ruling.taken)
            return []
        self._settle(beat, now)
        if now < self._benched.get(beat.worker, 0.0):
            return []
        refused = self._trust.refusal(beat.worker, beat.incarnation, now)
        if refused:
            return [*self._drop(beat.worker, now), (beat.worker, self._refuse(beat.worker, beat.incarnation, refused))]
        member = self._members.get(beat.worker)
        if member is None:
            claimed = self._claim(beat)
            self._members[beat.worker] = _Member(beat.incarnation, now, claimed, leaving=beat.leaving, signs=beat.signs)
            if self._is_complete():
                self._settled_at = now
            return self._share(now)
        member.signs = beat.signs
        member.heard_at = now
        member.has_loaded = bool(beat.seq)
        if beat.seq or not member.shards:
            member.loaded_at = now
        if member.incarnation != beat.incarnation:
            member.incarnation = beat.incarnation
            self.changed = True  # it has begun anew: what it was asked is lost
        if member.leaving != beat.leaving:
            member.leaving = beat.leaving
            return self._share(now)
        knows = (beat.epoch, beat.assignment) == (self.epoch, member.assignment)
        if member.assignment and (not knows or now - member.told_at >= REPEAT):
            return [(beat.worker, self._assign(member, now))]
        return []

    def outdated_by(self, beat: WorkerBeat) -> bool:
        """Whether another cycle has given the worker its shards, in no earlier term: it refuses what this one says."""
        return (beat.epoch, beat.assignment) > (self.epoch, self._number)

    def fault(self, worker: str, why: str, now: float) -> list[tuple[str, Assign]]:
        """Its answers cannot have been right. After too many of them its shards go to others until it starts again."""
        member = self._members.get(worker)
        if member is None or not self._trust.fault(worker, member.incarnation, why, now):
            return []
        self._names.told_to_end(worker)
        refused = self._trust.refusal(worker, member.incarnation, now)
        return [*self._drop(worker, now), (worker, self._refuse(worker, member.incarnation, refused))]

    def distrusted(self, now: float) -> list[str]:
        """The workers that get no shards because of their faults."""
        return self._trust.distrusted(now)

    def tick(self, now: float) -> list[tuple[str, Assign]]:
        """To be called now and then: notices who is lost."""
        self._benched = {name: until for name, until in self._benched.items() if now < until}
        idle = self._never_load(now)
        self._benched.update((name, now + BENCH) for name in idle)
        lost = [
            name for name, member in self._members.items() if now - member.heard_at > WORKER_PATIENCE or name in idle
        ]
        for name in lost:
            del self._members[name]
        unsettled = not self._number and bool(self._members)
        return self._share(now) if lost or unsettled else []

    def workers(self) -> Workers:
        """Who is to be asked."""
        self.changed = False
        shards = {name: frozenset(m.shards) for name, m in self._members.items() if m.assignment and m.shards}
        signed = {name: member.incarnation for name, member in self._members.items() if member.signs}
        return Workers(shards, self.shard_count, signed)

    # Inside

    def _drop(self, worker: str, now: float) -> list[tuple[str, Assign]]:
        return self._share(now) if self._members.pop(worker, None) is not None else []

    def _refuse(self, worker: str, incarnation: str, why: str) -> Assign:
        ends = incarnation if self._trust.is_distrusted(worker, incarnation) else ""
        return Assign(self.epoch, self._number, [], self.shard_count, why, ends)

    def _settle(self, beat: WorkerBeat, now: float) -> None:
        """Each that is new and holds nothing may be followed by another."""
        if self._begun_at is None or self._settled_at is None:
            self._begun_at, self._settled_at = now, now + SETTLING
        elif not (self._number or beat.shards or beat.worker in self._members):
            self._settled_at = min(now + SETTLING, self._begun_at + LONGEST_SETTLING)

    def _is_complete(self) -> bool:
        staying = sum(not member.leaving for member in self._members.values())
        return 0 < self.expected <= staying

    def _never_load(self, now: float) -> list[str]:
        """Who cannot load what others can. While nobody can, there is nothing to be loaded, and no time passes."""
        if not any(member.has_loaded for member in self._members.values()):
            self._nothing_at = now
        waits = {name: max(m.loaded_at, self._nothing_at) for name, m in self._members.items() if m.assignment}
        return [name for name, since in waits.items() if now - since > LOADING_PATIENCE]

    def _claim(self, beat: WorkerBeat) -> set[int]:
        """What it holds already, unless others do, or it was divided otherwise."""
        if beat.shard_count != self.shard_count:
            return set()
        taken = set[int]().union(*(member.shards for member in self._members.values()))
        return {shard for shard in beat.shards if 0 <= shard < self.shard_count} - taken

    def _share(self, now: float) -> list[tuple[str, Assign]]:
        if self._settled_at is None or now < self._settled_at:
            return []
        before = {name: frozenset(member.shards) for name, member in self._members.items()}
        self._balance()
        self.changed = True
        self._number += 1
        sends = []
        for name, member in self._members.items():
            if not member.assignment or before[name] != member.shards:
                member.assignment, member.loaded_at = self._number, now
                sends.append((name, self._assign(member, now)))
        return sends

    def _balance(self) -> None:
        """Nobody holds more than its fair share, rounded up, and everything is held, as long as somebody stays."""
        members = [self._members[name] for name in sorted(self._members)]
        for member in members:
            if member.leaving:
                member.shards.clear()
        members = [member for member in members if not member.leaving]
        if not members:
            return
        least, more = divmod(self.shard_count, len(members))
        members.sort(key=lambda member: -len(member.shards))
        free = set(range(self.shard_count)).difference(*(member.shards for member in members))
        for place, member in enumerate(members):
            share = least + (place < more)
            for shard in sorted(member.shards, reverse=True)[: max(0, len(member.shards) - share)]:
                member.shards.discard(shard)
                free.add(shard)
        for place, member in enumerate(members):
            for shard in sorted(free)[: least + (place < more) - len(member.shards)]:
                member.shards.add(shard)
                free.discard(shard)

    def _assign(self, member: _Member, now: float) -> Assign:
        member.told_at = now
        return Assign(self.epoch, member.assignment, sorted(member.shards), self.shard_count, repeats=True)
