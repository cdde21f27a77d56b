"""Who waits in vain for a word is not ready, and says for what."""

from shared.runtime.awaited import PATIENCE, Awaited
from shared.runtime.health import Health


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def an_awaited() -> tuple[Awaited, Health, Clock]:
    health, clock = Health(), Clock()
    health.ready()
    return Awaited(health, clock, "cycle", "no cycle is heard"), health, clock


def test_a_word_that_does_not_come_is_named_after_a_while() -> None:
    awaited, health, clock = an_awaited()
    clock.now = PATIENCE
    assert health.reasons() == []
    clock.now = PATIENCE + 1
    assert health.reasons() == ["cycle: no cycle is heard for 11 s"]
    awaited.heard()
    assert health.reasons() == []
    clock.now += PATIENCE + 1
    assert health.reasons() != []


def test_a_word_that_is_owed_no_longer_is_not_missed() -> None:
    awaited, health, clock = an_awaited()
    awaited.settled()
    clock.now = 100.0
    assert health.reasons() == []
    awaited.awaits()
    clock.now += PATIENCE / 2
    awaited.awaits()
    clock.now += PATIENCE / 2 + 1
    assert health.reasons() == ["cycle: no cycle is heard for 11 s"]
