"""Which connection carries the next request."""

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers

from shared.http.pool import Pool

MOST, IDLE = 3, 10.0


def pool() -> Pool[str, str]:
    return Pool(MOST, IDLE)


def test_the_last_used_connection_is_used_first() -> None:
    it = pool()
    assert it.take() is None
    assert it.reserve() and it.reserve()
    it.give_back("a", 1.0)
    it.give_back("b", 2.0)
    assert (it.take(), it.take(), it.take()) == ("b", "a", None)


def test_the_number_of_connections_is_bounded() -> None:
    it = pool()
    assert [it.reserve() for _ in range(4)] == [True, True, True, False]
    it.wait("first")
    it.wait("second")
    assert it.give_back("a", 1.0) == "first"
    assert it.lost() == "second"
    assert it.lost() is None
    assert it.reserve()


def test_a_waiter_may_leave() -> None:
    it = pool()
    for _ in range(MOST):
        it.reserve()
    it.wait("first")
    it.wait("second")
    assert it.stop_waiting("first")
    assert not it.stop_waiting("first")
    assert it.give_back("a", 1.0) == "second"


def test_idle_connections_expire() -> None:
    it = pool()
    for name, at in (("a", 1.0), ("b", 5.0)):
        it.reserve()
        it.give_back(name, at)
    assert it.expires_at() == 11.0
    assert list(it.expired(10.9)) == []
    assert list(it.expired(11.0)) == ["a"]
    assert it.expires_at() == 15.0
    assert it.drop("b")
    assert not it.drop("b")
    assert (len(it), it.expires_at()) == (0, None)


class PoolMachine(RuleBasedStateMachine):
    """Requests come, end and give up in any order: no connection serves two, none is forgotten, none waits in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: Pool[int, int] = Pool(MOST, IDLE)
        self.now = 0.0
        self.made = 0
        self.using: dict[int, int] = {}
        """The connection of each request; 0 while it is being opened."""
        self.waiting: list[int] = []
        self.requests = 0

    @rule()
    def ask(self) -> None:
        self.requests += 1
        connection = self.pool.take()
        if connection is not None:
            assert connection not in self.using.values()
            self.using[self.requests] = connection
        elif self.pool.reserve():
            self.using[self.requests] = 0
        else:
            self.pool.wait(self.requests)
            self.waiting.append(self.requests)

    @precondition(lambda self: self.using)
    @rule(pick=integers(0, 99))
    def finish(self, pick: int) -> None:
        request = sorted(self.using)[pick % len(self.using)]
        connection = self.using.pop(request)
        if not connection:
            self.made += 1
            connection = self.made
        self.serve(self.pool.give_back(connection, self.now), connection)

    @precondition(lambda self: self.using)
    @rule(pick=integers(0, 99))
    def fail(self, pick: int) -> None:
        del self.using[sorted(self.using)[pick % len(self.using)]]
        self.serve(self.pool.lost(), 0)

    def serve(self, waiter: int | None, connection: int) -> None:
        assert waiter == (self.waiting[0] if self.waiting else None)
        if waiter is not None:
            self.using[self.waiting.pop(0)] = connection

    @precondition(lambda self: self.waiting)
    @rule(pick=integers(0, 99))
    def give_up(self, pick: int) -> None:
        assert self.pool.stop_waiting(self.waiting.pop(pick % len(self.waiting)))

    @rule(seconds=integers(1, 12))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        for connection in self.pool.expired(self.now):
            assert connection not in self.using.values()

    @invariant()
    def valid(self) -> None:
        self.pool.validate()
        assert len(self.using) <= len(self.pool) <= MOST


PoolMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestPool = PoolMachine.TestCase
