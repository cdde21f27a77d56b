"""Clocks that differ: seen from beats, told of, and no more than that."""

import logging

import pytest

from shared.runtime import Context
from shared.runtime.clockoffsets import FORGOTTEN_AFTER, MOST_PEERS, WINDOW, ClockOffsets
from tests.bus.support import sample
from tests.runtime.contexts import a_context

START = 1_767_225_600.0


class Listener:
    """`clock` and `wall` are what it believes; `true` is what time it is."""

    def __init__(self) -> None:
        self.true = 50.0
        self.skew = 0.0
        self.context: Context = a_context(clock=lambda: self.true, wall=lambda: START + self.true + self.skew)
        self.offsets = ClockOffsets(self.context)

    def hear(self, name: str, seconds: float, skew: float, *, takes: tuple[float, ...] = (0.01,)) -> None:
        """Beats of this peer, each half a second, as long as this; they take so long, in turn."""
        for number in range(int(seconds * 2)):
            self.true += 0.5
            self.offsets.heard(name, START + self.true - takes[number % len(takes)] + skew)

    @property
    def reasons(self) -> list[str]:
        return [reason for reason in self.context.health.reasons() if reason.startswith("clocks")]

    def shown(self, name: str) -> float:
        return sample(self.context.telemetry, "flotilla_clock_offset_seconds", peer=name)


@pytest.mark.parametrize(("skew", "says"), [(32.0, "32.0 s ahead of"), (-100.0, "100.0 s behind")])
def test_a_clock_that_differs_is_shown_told_once_and_a_reason_not_to_be_ready(
    skew: float, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    with caplog.at_level(logging.INFO):
        listener.hear("w1", 20, 0.0)
        listener.hear("b1", 20, skew)
    assert listener.shown("b1") == pytest.approx(skew, abs=0.1)
    assert listener.reasons == [f"clocks: the clock of b1 is {says} this process's"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"the clock of b1 is {says} this process's")


def test_once_it_is_right_again_so_are_we() -> None:
    listener = Listener()
    listener.hear("b1", 5, 32.0)
    assert listener.reasons
    listener.hear("b1", WINDOW + 1, 0.5)
    assert not listener.reasons
    assert listener.shown("b1") == pytest.approx(0.5, abs=0.1)


def test_our_own_clock_that_is_set_shows_as_that_of_everybody_else() -> None:
    listener = Listener()
    listener.hear("b1", 5, 0.0)
    listener.skew = -60.0
    listener.hear("b1", WINDOW + 1, 0.0)
    assert listener.shown("b1") == pytest.approx(60.0, abs=0.1)


def test_beats_that_take_long_are_no_difference() -> None:
    listener = Listener()
    listener.hear("b1", 30, 0.0, takes=(5.0, 9.0, 7.0, 0.3))
    assert not listener.reasons
    assert listener.shown("b1") == pytest.approx(-0.3, abs=0.01)


def test_what_arrives_at_once_after_a_pause_says_nothing() -> None:
    listener = Listener()
    listener.hear("b1", 20, 0.0)
    listener.true += 60.0
    for ago in range(60, 5, -1):
        listener.offsets.heard("b1", START + listener.true - ago)
    assert not listener.reasons


def test_a_peer_that_is_not_heard_any_more_is_no_reason_and_in_time_forgotten() -> None:
    listener = Listener()
    listener.hear("b1", 5, 32.0)
    listener.true += WINDOW + 1
    assert not listener.reasons
    listener.true += FORGOTTEN_AFTER
    listener.hear("b2", 1, 0.0)
    assert b'peer="b1"' not in listener.context.metrics.exposition()


def test_who_does_not_say_what_time_it_is_is_not_measured() -> None:
    listener = Listener()
    for _ in range(20):
        listener.true += 0.5
        listener.offsets.heard("b1", 0.0)
    assert b"flotilla_clock_offset_seconds{" not in listener.context.metrics.exposition()


def test_no_more_peers_are_remembered_than_may() -> None:
    listener = Listener()
    for number in range(MOST_PEERS + 10):
        listener.hear(f"w{number}", 0.5, 0.0)
    assert len(listener.offsets._peers) <= MOST_PEERS
