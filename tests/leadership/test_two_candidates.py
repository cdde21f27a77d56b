"""Candidates on virtual time, with calls that are lost, late, or answered too late: never do two of them lead.

The server is a Lease with a version. Each call has a moment when it reaches the server, if it does, and one when the
answer is back, if it is; a candidate that has lost patience does not hear it any more, but it is done all the same.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from shared.kube.election import (
    TRANSITIONS,
    Election,
    Event,
    Failed,
    Follow,
    Lead,
    Look,
    Looked,
    Lose,
    Overtaken,
    Raise,
    Record,
    SaidReleased,
    Tick,
    Timings,
    Write,
    Written,
)
from shared.terms import TERMS_BEGIN

TIMINGS = Timings(lease_duration=15.0, renew_deadline=10.0, retry_period=2.0)
LASTS = 300.0
NAMES = ("a", "b", "c")
WAYS = {(before, after) for before, after, _ in TRANSITIONS}

Fate = tuple[float, float]
"""Seconds until a call reaches the server, and until its answer is back; negative: never."""


@dataclass
class Server:
    record: Record | None = None
    version: int = 0

    def write(self, record: Record, based_on: int) -> bool:
        if based_on != self.version:
            return False
        self.record, self.version = record, self.version + 1
        return True


@dataclass
class World:
    fates: list[Fate]
    server: Server = field(default_factory=Server)
    now: float = 0.0
    agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    number: "itertools.count[int]" = field(default_factory=itertools.count)
    terms: list[int] = field(default_factory=list)

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (when, next(self.number), do))

    def fate(self) -> Fate:
        self.fates.append(self.fates.pop(0))
        return self.fates[-1]

    def run(self, until: float) -> None:
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, do = heapq.heappop(self.agenda)
            do()
        self.now = until


class Candidate:
    """Its process may stop and go on: then it hears of nothing meanwhile. When it has lost it starts again."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.asleep_until = 0.0
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.election = Election(f"{self.name}-{self.lives}", TIMINGS, lambda: 0.3)
        self.seen_version = 0
        self.call = 0
        self.wake()

    @property
    def believes(self) -> bool:
        """While it is asleep it says nothing; it may believe so the moment it wakes, and finds out at once."""
        return bool(self.election.term) and self.world.now < self.election.leads_until

    def wake(self) -> None:
        life = self.lives
        self.world.at(max(self.world.now, self.asleep_until), lambda: self.feed(Tick()) if life == self.lives else None)

    def feed(self, event: Event) -> None:
        world = self.world
        if world.now < self.asleep_until:
            life = self.lives
            world.at(self.asleep_until, lambda: self.feed(event) if life == self.lives else None)
            return
        before = self.election.state
        effects = self.election.handle(event, world.now, TERMS_BEGIN + world.now)
        assert self.election.state is before or (before, self.election.state) in WAYS
        for effect in effects:
            match effect:
                case Look() | Write():
                    self.ask(effect)
                case Lead(term=term):
                    world.terms.append(term)
                case Lose():
                    self.begin()
                    return
                case Follow():
                    pass
        deadline = self.election.next_deadline()
        if deadline < LASTS * 2:
            life = self.lives
            world.at(max(deadline, world.now), lambda: self.tick(life, deadline))

    def tick(self, life: int, deadline: float) -> None:
        if life == self.lives and self.election.next_deadline() == deadline:
            self.feed(Tick())

    def ask(self, effect: Look | Write) -> None:
        world, life = self.world, self.lives
        self.call += 1
        call = self.call
        there, back = world.fate()
        based_on, began = self.seen_version, world.now

        def answer(event: Event, version: int) -> None:
            if (life, call) == (self.lives, self.call):
                self.call += 1
                self.seen_version = version
                self.feed(event)

        def reach() -> None:
            server = world.server
            if isinstance(effect, Look):
                event: Event = Looked(server.record)
            else:
                identity = f"{self.name}-{life}"
                written = server.write(Record(identity, effect.term, f"{began}", TIMINGS.lease_duration), based_on)
                event = Written() if written else Overtaken()
            version = server.version
            if back >= 0:
                world.at(world.now + back, lambda: answer(event, version))

        if there >= 0:
            world.at(world.now + there, reach)
        world.at(world.now + effect.patience, lambda: answer(Failed(), based_on))


DELAYS = st.sampled_from([0.0, 0.01, 0.3, 2.0, 4.9, 7.0, 12.0, 20.0, -1.0])
FATES = st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=30)
SLEEPS = st.lists(st.tuples(st.floats(0.0, LASTS), st.sampled_from(NAMES), st.floats(0.1, 40.0)), max_size=8)

TIMES = st.lists(st.tuples(st.floats(0.0, LASTS), st.sampled_from(NAMES)), max_size=4)


def play(world: World, sleeps: list[tuple[float, str, float]], raises: list[tuple[float, str]]) -> list[Candidate]:
    candidates = [Candidate(name, world) for name in NAMES]
    by_name = {candidate.name: candidate for candidate in candidates}
    for at, name, seconds in sleeps:
        world.at(at, lambda name=name, until=at + seconds: setattr(by_name[name], "asleep_until", until))  # type: ignore[misc]
    for at, name in raises:
        world.at(at, lambda name=name: raise_term(by_name[name]))  # type: ignore[misc]
    return candidates


def raise_term(candidate: Candidate) -> None:
    if candidate.election.term:
        candidate.feed(Raise(0))


@given(FATES, SLEEPS, TIMES, TIMES)
def test_no_two_lead_at_once_and_terms_rise(
    fates: list[Fate],
    sleeps: list[tuple[float, str, float]],
    raises: list[tuple[float, str]],
    hints: list[tuple[float, str]],
) -> None:
    world = World(fates)
    candidates = play(world, sleeps, raises)
    for at, name in hints:
        candidate = candidates[NAMES.index(name)]
        world.at(at, lambda candidate=candidate: candidate.feed(SaidReleased()))  # type: ignore[misc]
    for moment in itertools.accumulate(itertools.repeat(0.5, int(LASTS / 0.5))):
        world.run(moment)
        leaders = [candidate.name for candidate in candidates if candidate.believes]
        assert len(leaders) <= 1, f"{leaders} at {moment}"
    assert world.terms == sorted(set(world.terms)), "each term is had once, and they rise"


@given(SLEEPS)
def test_with_a_healthy_server_there_is_mostly_a_leader(sleeps: list[tuple[float, str, float]]) -> None:
    world = World([(0.01, 0.01)])
    candidates = play(world, sleeps, [])
    headless = 0.0
    for moment in itertools.accumulate(itertools.repeat(0.5, int(LASTS / 0.5))):
        world.run(moment)
        headless += 0.0 if any(candidate.believes for candidate in candidates) else 0.5
    assert headless <= 1.0 + sum(min(40.0, seconds) + TIMINGS.lease_duration + 5.0 for _, _, seconds in sleeps)
