"""Clocks that differ: seen from beats, told of, and no more than that. Who has a wrong one is not ready."""

import logging

import pytest

from shared.runtime import Context
from shared.runtime.api_clock import API_OFFSET_TTL, offset_from_date
from shared.runtime.clocks import MAX_PEERS, PEER_TTL, WINDOW, ClockOffsets
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
def test_an_offset_is_exported_and_logged_once_and_its_hearer_stays_ready(
    skew: float, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    with caplog.at_level(logging.INFO):
        listener.hear("w1", 20, 0.0)
        listener.hear("b1", 20, skew)
    assert listener.shown("b1") == pytest.approx(skew, abs=0.1)
    assert listener.reasons == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"the clock of b1 is {says} this process's")


def test_a_corrected_clock_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    with caplog.at_level(logging.INFO):
        listener.hear("b1", 5, 32.0)
        listener.hear("b1", WINDOW + 1, 0.5)
    assert caplog.records[-1].getMessage() == "the clock of b1 is right again"
    assert listener.shown("b1") == pytest.approx(0.5, abs=0.1)


def hear_all(listener: Listener, seconds: float, skews: dict[str, float]) -> None:
    """Beats of all these at a time."""
    for _ in range(int(seconds * 2)):
        listener.true += 0.5
        for name, skew in skews.items():
            listener.offsets.heard(name, START + listener.true - 0.01 + skew)


def test_a_process_that_differs_from_most_peers_is_not_ready() -> None:
    """Without a word of the API server's clock."""
    skews = {"a": 0.3, "b": 0.0, "c": 32.0, "d": -0.4}
    problems = {}
    for own in skews:
        listener = Listener()
        listener.skew = skews[own]
        hear_all(listener, 5, {name: skew for name, skew in skews.items() if name != own})
        problems[own] = listener.reasons
    assert problems == {
        "a": [],
        "b": [],
        "c": ["clocks: this process's clock differs from those of 3 of the 3 others that it hears"],
        "d": [],
    }


def test_with_two_clocks_the_api_server_decides() -> None:
    listener = Listener()
    hear_all(listener, 5, {"b1": 32.0})
    assert not listener.reasons
    listener.context.api_clock.measured(0.4, listener.true)
    assert not listener.reasons
    listener.context.api_clock.measured(31.6, listener.true)
    assert listener.reasons == ["clocks: this process's clock is 31.6 s behind the API server's"]
    listener.true += API_OFFSET_TTL + 1
    assert not listener.reasons


def test_forged_times_do_not_matter_while_the_api_servers_is_known() -> None:
    listener = Listener()
    listener.context.api_clock.measured(0.4, listener.true)
    hear_all(listener, 5, {f"w{number}": 86_400.0 for number in range(9)})
    assert not listener.reasons
    listener.true += API_OFFSET_TTL
    hear_all(listener, 5, {f"w{number}": 86_400.0 for number in range(9)})
    assert listener.reasons, "without it, they are the majority"


@pytest.mark.parametrize(
    ("own", "snapshot", "reasons"),
    [
        (0.0, 0.0, []),
        (0.0, -40.0, []),
        (-40.0, 0.0, ["clocks: this process's clock is 40.0 s behind the API server's"]),
        (40.0, 40.0, ["clocks: this process's clock is 40.0 s ahead of the API server's"]),
    ],
    ids=["all right", "the snapshot's is wrong", "ours is wrong", "one machine with a wrong clock"],
)
def test_workers_learn_the_api_servers_time_from_the_snapshot(own: float, snapshot: float, reasons: list[str]) -> None:
    listener = Listener()
    listener.skew = own
    for _ in range(20):
        listener.true += 0.5
        listener.offsets.heard("snapshot", START + listener.true + snapshot, -snapshot)
    assert listener.reasons == reasons


@pytest.mark.parametrize(
    ("date", "took", "ahead"),
    [
        ("Thu, 01 Jan 2026 00:00:50 GMT", 0.0, 0.5),
        ("Thu, 01 Jan 2026 00:01:20 GMT", 0.5, 30.25),
        ("Thu, 01 Jan 2026 00:00:50 GMT", 1.5, None),
        ("Thu, 01 Jan 2026 00:00:50 GMT", -9.0, None),
        ("yesterday", 0.0, None),
        (None, 0.0, None),
    ],
)
def test_a_date_header_of_a_quick_answer_gives_the_offset(date: str | None, took: float, ahead: float | None) -> None:
    assert offset_from_date(date, START + 50, START + 50 + took) == ahead


def test_a_jump_of_our_own_clock_shows_on_all_peers() -> None:
    listener = Listener()
    listener.hear("b1", 5, 0.0)
    listener.skew = -60.0
    listener.hear("b1", WINDOW + 1, 0.0)
    assert listener.shown("b1") == pytest.approx(60.0, abs=0.1)


def test_slow_heartbeats_are_no_offset() -> None:
    listener = Listener()
    listener.hear("b1", 30, 0.0, takes=(5.0, 9.0, 7.0, 0.3))
    assert listener.shown("b1") == pytest.approx(-0.3, abs=0.01)


def test_a_burst_after_a_pause_is_no_measurement(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    listener.hear("b1", 20, 0.0)
    listener.true += 60.0
    for ago in range(60, 5, -1):
        listener.offsets.heard("b1", START + listener.true - ago)
    assert not caplog.records


def test_a_silent_peer_stops_counting_and_is_forgotten() -> None:
    listener = Listener()
    hear_all(listener, 5, {"b1": 32.0, "b3": 32.0})
    assert listener.reasons
    listener.true += WINDOW + 1
    assert not listener.reasons
    listener.true += PEER_TTL
    listener.hear("b2", 1, 0.0)
    assert b'peer="b1"' not in listener.context.metrics.exposition()


def test_a_heartbeat_without_a_time_is_ignored() -> None:
    listener = Listener()
    for _ in range(20):
        listener.true += 0.5
        listener.offsets.heard("b1", 0.0)
    assert b"flotilla_clock_offset_seconds{" not in listener.context.metrics.exposition()


def test_the_number_of_peers_is_bounded() -> None:
    listener = Listener()
    for number in range(MAX_PEERS + 10):
        listener.hear(f"w{number}", 0.5, 0.0)
    assert len(listener.offsets._peers) <= MAX_PEERS
