"""Of values that follow each other too quickly the latest one passes, when its time has come."""

import random
from itertools import pairwise

import pytest

from shared.runtime.rate_limited import RateLimited

SECONDS = 5.0


class Script:
    """`written`: what has passed, with the times."""

    def __init__(self, most: int = 100) -> None:
        self.limited: RateLimited[str, tuple[str, str, int]] = RateLimited(SECONDS, most)
        self.now = 100.0
        self.written: list[tuple[float, tuple[str, str, int]]] = []

    def offer(self, key: str, kind: str, number: int) -> None:
        value = (key, kind, number)
        if self.limited.offer(key, kind, value, self.now):
            self.written.append((self.now, value))
        self.limited.validate()

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.limited.next_deadline()) is not None and due <= end:
            self.now = max(due, self.now)
            self.written += [(self.now, value) for value in self.limited.due(self.now)]
            self.limited.validate()
        self.now = end

    def of(self, key: str) -> list[tuple[float, str, int]]:
        return [(at, kind, number) for at, (name, kind, number) in self.written if name == key]


def test_the_latest_value_passes_after_the_time() -> None:
    script = Script()
    for number in range(4):
        script.offer("a", "x", number)
        script.wait(1.0)
    script.wait(10.0)
    assert script.of("a") == [(100.0, "x", 0), (105.0, "x", 3)]
    script.offer("a", "x", 4)
    assert script.of("a")[-1] == (114.0, "x", 4)


def test_another_kind_passes_at_once_and_replaces_what_is_delayed() -> None:
    script = Script()
    for kind in ("x", "x", "y", "y", "x"):
        script.offer("a", kind, 0)
        script.wait(1.0)
    script.wait(20.0)
    assert [(at, kind) for at, kind, _ in script.of("a")] == [(100.0, "x"), (102.0, "y"), (104.0, "x")]


def test_what_is_dropped_never_passes() -> None:
    script = Script()
    script.offer("a", "x", 1)
    script.offer("a", "x", 2)
    script.limited.drop("a")
    assert script.limited.next_deadline() is None
    script.wait(20.0)
    assert script.of("a") == [(100.0, "x", 1)]


def test_a_value_that_passes_elsewhere_counts() -> None:
    script = Script()
    script.limited.record("a", "x", script.now)
    script.offer("a", "x", 1)
    script.wait(3.0)
    script.limited.record("a", "x", script.now)
    script.offer("a", "x", 2)
    script.wait(20.0)
    assert script.of("a") == [(108.0, "x", 2)]


def test_all_that_is_delayed_can_be_had_at_the_end() -> None:
    script = Script()
    for number in range(3):
        script.offer("a", "x", number)
        script.offer("b", "x", number)
    assert script.limited.flush() == [("a", "x", 2), ("b", "x", 2)]
    assert len(script.limited) == 0


def test_a_clock_that_was_set_back_delays_nothing_for_longer() -> None:
    script = Script()
    script.offer("a", "x", 1)
    script.now -= 50.0
    script.offer("a", "x", 2)
    assert script.of("a")[-1] == (50.0, "x", 2)


def test_beyond_what_can_be_remembered_values_pass() -> None:
    script = Script(most=2)
    for number in range(2):
        for key in ("a", "b", "c"):
            script.offer(key, "x", number)
    assert [len(script.of(key)) for key in ("a", "b", "c")] == [1, 1, 2]
    script.wait(20.0)
    script.offer("c", "x", 2)
    script.offer("c", "x", 3)
    assert len(script.of("c")) == 3, "what has passed long ago is forgotten"


@pytest.mark.parametrize("seed", range(50))
def test_random_values_pass_rarely_and_the_last_one_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    script = Script()
    offered: dict[str, list[tuple[float, str, int]]] = {key: [] for key in "abc"}
    for number in range(200):
        key, kind = rng.choice("abc"), rng.choice("xxxxxy")
        before = script.of(key)[-1] if script.of(key) else None
        script.offer(key, kind, number)
        offered[key].append((script.now, kind, number))
        if before is None or before[1] != kind or before[0] + SECONDS <= script.now:
            assert script.of(key)[-1] == (script.now, kind, number), f"seed {seed}: it passes at once"
        script.wait(rng.choice([0.0, 0.125, 0.5, 2.0, 7.0]))
    script.wait(SECONDS)
    for key, values in offered.items():
        passed = script.of(key)
        assert passed[-1][1:] == values[-1][1:], f"seed {seed}: the last one passes"
        for (at, kind, _), (later, next_kind, _) in pairwise(passed):
            assert kind != next_kind or later - at >= SECONDS, f"seed {seed}: {key} at {at} and {later}"
