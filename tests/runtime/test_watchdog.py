"""A watchdog makes a process not ready while an expected message does not come."""

from shared.runtime.context import PATIENCE, Health, Watchdog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_watchdog() -> tuple[Watchdog, Health, Clock]:
    health, clock = Health(), Clock()
    health.ready()
    return Watchdog(health, clock, "cycle", "no cycle is heard"), health, clock


def test_a_missing_message_is_reported_after_the_patience() -> None:
    watchdog, health, clock = a_watchdog()
    clock.now = PATIENCE
    assert health.reasons() == []
    clock.now = PATIENCE + 1
    assert health.reasons() == ["cycle: no cycle is heard for 11 s"]
    watchdog.reset()
    assert health.reasons() == []
    clock.now += PATIENCE + 1
    assert health.reasons() != []


def test_a_stopped_watchdog_reports_nothing_until_it_starts_again() -> None:
    watchdog, health, clock = a_watchdog()
    watchdog.stop()
    clock.now = 100.0
    assert health.reasons() == []
    watchdog.start()
    clock.now += PATIENCE / 2
    watchdog.start()
    clock.now += PATIENCE / 2 + 1
    assert health.reasons() == ["cycle: no cycle is heard for 11 s"]
