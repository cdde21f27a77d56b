"""Membership: which workers there are, which shards each of them holds, and which workers are trusted with any.

A worker is a member while it beats. The shards of a lost or leaving member go to others at once. As few shards as
possible move: a member keeps what it holds, up to its fair share. A new cycle learns from the beats which shards are
held already. Of two processes of one name only one counts.

Shards are assigned once the snapshot has confirmed the cycle's term, so the snapshot knows of every cycle whose shards
a worker can hold. A beat that names the assignment of a later cycle proves nothing: the snapshot is asked again, and if
it confirms the term, the beat was wrong.

A term may have been used before, if its Lease and Redis were both lost. Then workers hold assignments of that cycle,
and accept only higher numbers. Once the snapshot has confirmed the term, ours rise above what a beat of the same term
names, by a bounded step each time: a forged beat wins nothing by it, and the numbers do not run out.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.cycle.events import WorkerFault, Workers
from shared.bounded import BoundedDict
from shared.errors import MAX_REMEMBERED
from shared.messages.identity import NameTaken
from shared.messages.limits import BEAT_INTERVAL
from shared.messages.workers import Assign, WorkerBeat
from shared.runtime.names import Names

WORKER_PATIENCE = 10 * BEAT_INTERVAL
"""Seconds without a beat after which a worker counts as lost: longer than it takes to load what it holds."""
LOADING_PATIENCE = 30.0
"""Seconds for loading shards, while others have loaded theirs; after that the shards go to others."""
EXCLUSION = 60.0
"""Seconds for which a worker that has not loaded its shards gets none."""
REPEAT = 4.0
"""Seconds between two repetitions of an assignment: less than a worker waits for one."""
SETTLING = 0.5
"""Seconds from the first beat until shards are assigned, unless all expected workers beat before, or those that do hold
all shards: workers that start together get their shards once. Otherwise the first of many would load all shards,
without the memory for them.
"""
MAX_SETTLING = 5.0
"""The same for workers that come one after the other."""

MAX_STEP = 1 << 20
"""By how much a beat may raise the numbers of assignments each time that the snapshot has confirmed the term."""

MAX_FAULTS = 3
"""Faults after which a worker is distrusted."""
FORGIVEN = 600.0
"""Seconds without a fault after which earlier ones count no more."""
FIRST_PAUSE = 30.0
"""Seconds without shards for a worker that is distrusted for the second time; each further time twice as long."""
MAX_PAUSE = 3600.0
"""Seconds without shards for a distrusted worker, at most."""
RELAPSE = 86_400.0
"""Seconds without a fault after which earlier distrust counts no more."""
MAX_NAMES = 1 << 10
"""Names of workers that are remembered."""


@dataclass(slots=True)
class _Record:
    faults: int = 0
    last: float = 0.0
    distrusted: str = ""
    times: int = 0
    until: float = 0.0
    why: str = ""


class WorkerTrust:
    """Which workers are trusted.

        trusted --MAX_FAULTS within FORGIVEN--> distrusted --another process, and its pause is over--> trusted

    A fault is a defect or a lie. A worker with a defect loads its state again when it restarts, which may mend it. One
    that lies claims to have restarted whenever that helps it, so each pause is longer than the one before.
    """

    def __init__(self) -> None:
        self._records: BoundedDict[str, _Record] = BoundedDict(MAX_NAMES)

    def fault(self, worker: str, incarnation: str, why: str, now: float) -> bool:
        """True if that was one too many."""
        record = self._records[worker] = self._records.get(worker) or _Record()
        if now - record.last > FORGIVEN:
            record.faults = 0
        if now - record.last > RELAPSE:
            record.times = 0
        record.faults += 1
        record.last = now
        if record.faults < MAX_FAULTS:
            return False
        pause = 0.0 if not record.times else min(FIRST_PAUSE * 2.0 ** (record.times - 1), MAX_PAUSE)
        record.faults, record.times = 0, record.times + 1
        record.distrusted, record.until, record.why = incarnation, now + pause, why
        return True

    def is_distrusted(self, worker: str, incarnation: str) -> bool:
        """Whether this very process had too many faults; another one of the name may only have to wait."""
        record = self._records.get(worker)
        return record is not None and record.times > 0 and record.distrusted == incarnation

    def refusal(self, worker: str, incarnation: str, now: float) -> str:
        """Why this process gets no shards; empty if it may have some."""
        record = self._records.get(worker)
        if record is None or not record.times:
            return ""
        if self.is_distrusted(worker, incarnation):
            return f"{MAX_FAULTS} faults, the last of them: {record.why}"
        if now < record.until:
            return f"distrusted {record.times} times, waits {record.until - now:.0f} s more: {record.why}"
        return ""

    def distrusted(self, now: float) -> list[str]:
        """The workers that must restart or wait."""
        return [name for name, of in self._records.items() if of.times and self.refusal(name, of.distrusted, now)]


@dataclass(slots=True)
class _Member:
    incarnation: str
    heard_at: float
    shards: set[int] = field(default_factory=set)
    assignment: int = 0
    told_at: float = 0.0
    """When the assignment was last sent."""
    loaded_at: float = 0.0
    """When it was last heard to have loaded all its shards, or was assigned them."""
    has_loaded: bool = False
    leaving: bool = False
    signs: bool = False


class Membership:
    """The methods return what to send, by worker."""

    def __init__(self, epoch: int, shard_count: int, expected: int = 0, *, confirmed: bool = True) -> None:
        """`expected`: workers that start together, 0 if unknown; when all of them beat, no other is waited for.

        `confirmed`: whether the snapshot has confirmed this epoch; before, no shards are assigned.
        """
        self.epoch = epoch
        self.shard_count = shard_count
        self.changed = False
        """Whether `workers` has changed since it was last read."""
        self.refused: deque[NameTaken] = deque(maxlen=MAX_REMEMBERED)
        """Messages to processes whose name another one has; the caller takes them out."""
        self._expected = expected
        self._confirmed = confirmed
        self._members: dict[str, _Member] = {}
        self._excluded: dict[str, float] = {}
        self._trust = WorkerTrust()
        self._names = Names()
        self._number = 0
        self._has_assigned = False
        self._claims: dict[str, WorkerBeat] = {}
        """By worker, the beat that is not believed, until the snapshot is asked."""
        self._asked_claims: dict[str, WorkerBeat] | None = None if confirmed else {}
        """The claims about which the snapshot is being asked; None if it is not."""
        self._none_loaded_at = 0.0
        """When last no member was known to have loaded anything."""
        self._begun_at: float | None = None
        self._settled_at: float | None = None

    def beat(self, beat: WorkerBeat, now: float) -> list[tuple[str, Assign]]:
        if (beat.epoch, beat.assignment) > (self.epoch, self._number):
            if len(self._claims) < MAX_NAMES:
                self._claims[beat.worker] = beat
            return []
        of = (beat.worker, beat.incarnation, now)
        ruling = self._names.beat(*of, epoch=self.epoch, uptime=beat.uptime, leaving=beat.leaving)
        if not ruling.counts:
            if ruling.taken is not None:
                self.refused.append(ruling.taken)
            return []
        self._settle(beat, now)
        if now < self._excluded.get(beat.worker, 0.0):
            return []
        refused = self._trust.refusal(beat.worker, beat.incarnation, now)
        if refused:
            return [*self._drop(beat.worker, now), (beat.worker, self._refuse(beat.worker, beat.incarnation, refused))]
        member = self._members.get(beat.worker)
        if member is None:
            claimed = self._claim(beat)
            self._members[beat.worker] = _Member(beat.incarnation, now, claimed, leaving=beat.leaving, signs=beat.signs)
            if 0 < self._expected <= sum(not member.leaving for member in self._members.values()) or self._all_held():
                self._settled_at = now
            return self._share(now)
        member.signs = beat.signs
        member.heard_at = now
        member.has_loaded = bool(beat.seq)
        if beat.seq or not member.shards:
            member.loaded_at = now
        if member.incarnation != beat.incarnation:
            member.incarnation = beat.incarnation
            self.changed = True  # it has restarted: asks to it are lost
        if member.leaving != beat.leaving:
            member.leaving = beat.leaving
            return self._share(now)
        is_ours = beat.epoch == self.epoch
        if member.assignment and is_ours and self._is_of_another_cycle(beat, member):
            self._number += 1
            member.assignment, member.loaded_at = self._number, now
        knows = is_ours and beat.assignment == member.assignment
        if member.assignment and (not knows or now - member.told_at >= REPEAT):
            return [(beat.worker, self._assign(member, now))]
        return []

    def wants_confirmation(self) -> bool:
        """Whether the snapshot must be asked about claims now; its answer is `on_confirmed`."""
        if self._asked_claims is not None or not self._claims:
            return False
        self._asked_claims, self._claims = self._claims, {}
        return True

    def on_confirmed(self, now: float) -> tuple[list[WorkerFault], list[tuple[str, Assign]]]:
        """The snapshot accepts this cycle: beats that named a later one before it was asked were wrong.

        Their workers hear of this one, so that they leave the other, which may have been forged.
        """
        claims, self._asked_claims = self._asked_claims or {}, None
        self._confirmed = True
        claimed = max((beat.assignment for beat in claims.values() if beat.epoch == self.epoch), default=0)
        self._number = max(self._number, min(claimed, self._number + MAX_STEP))
        faults = [WorkerFault(worker, "epoch", self._wrong(beat)) for worker, beat in claims.items()]
        return faults, [*self.tick(now), *self._present(claims)]

    def _present(self, claims: Mapping[str, WorkerBeat]) -> Iterator[tuple[str, Assign]]:
        for worker, beat in claims.items():
            if (beat.epoch, beat.assignment) > (self.epoch, self._number):
                yield worker, Assign(self.epoch, self._number, [], self.shard_count)

    def fault(self, worker: str, why: str, now: float) -> list[tuple[str, Assign]]:
        """An answer was wrong. After too many faults the worker's shards go to others until it restarts."""
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
        """Called regularly: finds lost workers, and those that do not load their shards."""
        self._excluded = {name: until for name, until in self._excluded.items() if now < until}
        idle = self._never_loaded(now)
        self._excluded.update((name, now + EXCLUSION) for name in idle)
        lost = [
            name for name, member in self._members.items() if now - member.heard_at > WORKER_PATIENCE or name in idle
        ]
        for name in lost:
            del self._members[name]
        unsettled = not self._has_assigned and bool(self._members)
        return self._share(now) if lost or unsettled else []

    def workers(self) -> Workers:
        self.changed = False
        shards = {name: frozenset(m.shards) for name, m in self._members.items() if m.assignment and m.shards}
        signed = {name: member.incarnation for name, member in self._members.items() if member.signs}
        return Workers(shards, self.shard_count, signed)

    # Inside

    def _wrong(self, beat: WorkerBeat) -> str:
        said = f"its beat names assignment {beat.assignment} of epoch {beat.epoch}"
        return f"{said}, and the snapshot accepts no later cycle than that of {self.epoch}"

    @staticmethod
    def _is_of_another_cycle(beat: WorkerBeat, member: _Member) -> bool:
        """Whether the worker obeys an assignment of this term that it does not have from us."""
        if beat.assignment == member.assignment:
            return set(beat.shards) != member.shards
        return beat.assignment > member.assignment

    def _drop(self, worker: str, now: float) -> list[tuple[str, Assign]]:
        return self._share(now) if self._members.pop(worker, None) is not None else []

    def _refuse(self, worker: str, incarnation: str, why: str) -> Assign:
        ends = incarnation if self._trust.is_distrusted(worker, incarnation) else ""
        return Assign(self.epoch, self._number, [], self.shard_count, why, ends)

    def _settle(self, beat: WorkerBeat, now: float) -> None:
        """A new worker without shards may be followed by another one."""
        if self._begun_at is None or self._settled_at is None:
            self._begun_at, self._settled_at = now, now + SETTLING
        elif not (self._has_assigned or beat.shards or beat.worker in self._members):
            self._settled_at = min(now + SETTLING, self._begun_at + MAX_SETTLING)

    def _all_held(self) -> bool:
        """Whether the members hold all shards already, so that hardly any will move."""
        return sum(len(member.shards) for member in self._members.values()) == self.shard_count

    def _never_loaded(self, now: float) -> list[str]:
        """Members that do not load what others can. No time passes while no member has loaded anything."""
        if not any(member.has_loaded for member in self._members.values()):
            self._none_loaded_at = now
        waits = {name: max(m.loaded_at, self._none_loaded_at) for name, m in self._members.items() if m.assignment}
        return [name for name, since in waits.items() if now - since > LOADING_PATIENCE]

    def _claim(self, beat: WorkerBeat) -> set[int]:
        """The shards that the worker holds already, except others' and those of another shard count."""
        if beat.shard_count != self.shard_count:
            return set()
        taken = set[int]().union(*(member.shards for member in self._members.values()))
        return {shard for shard in beat.shards if 0 <= shard < self.shard_count} - taken

    def _share(self, now: float) -> list[tuple[str, Assign]]:
        if not self._confirmed or self._settled_at is None or now < self._settled_at:
            return []
        before = {name: frozenset(member.shards) for name, member in self._members.items()}
        self._balance()
        self.changed = self._has_assigned = True
        self._number += 1
        sends = []
        for name, member in self._members.items():
            if not member.assignment or before[name] != member.shards:
                member.assignment, member.loaded_at = self._number, now
                sends.append((name, self._assign(member, now)))
        return sends

    def _balance(self) -> None:
        """While a member stays, every shard is held, and no member holds more than its fair share, rounded up."""
        members = [self._members[name] for name in sorted(self._members)]
        for member in members:
            if member.leaving:
                member.shards.clear()
        members = [member for member in members if not member.leaving]
        if not members:
            return
        least, more = divmod(self.shard_count, len(members))
        members.sort(key=lambda member: -len(member.shards))
        shares = [least + (i < more) for i in range(len(members))]
        for member, share in zip(members, shares, strict=True):
            member.shards = set(sorted(member.shards)[:share])
        free = sorted(set(range(self.shard_count)).difference(*(member.shards for member in members)))
        for member, share in zip(members, shares, strict=True):
            missing = share - len(member.shards)
            member.shards.update(free[:missing])
            del free[:missing]

    def _assign(self, member: _Member, now: float) -> Assign:
        member.told_at = now
        return Assign(self.epoch, member.assignment, sorted(member.shards), self.shard_count, repeats=True)
