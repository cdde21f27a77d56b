"""Of two processes of one name one continues and the other is refused, in any order of starts, pauses and stops."""

from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.names import MAX_NAMES, SILENCE, Names, Ruling

BEAT = 0.5


class Play:
    def __init__(self) -> None:
        self.names = Names()

    def beat(self, incarnation: str, now: float, *, uptime: float = 0.0, leaving: bool = False) -> str:
        ruling = self.names.beat("w1", incarnation, now, epoch=3, uptime=uptime, leaving=leaving)
        if ruling.taken is not None:
            assert (ruling.taken.epoch, ruling.taken.name, ruling.taken.incarnation) == (3, "w1", incarnation)
            return f"{ruling.taken.holder} has it"
        return "counts" if ruling.counts else "waits"


def test_of_two_live_processes_the_second_is_refused() -> None:
    play = Play()
    assert play.beat("first", 0.0) == "counts"
    assert play.beat("second", 0.2) == "waits"
    assert play.beat("first", 0.5) == "counts"
    assert play.beat("second", 0.7) == "first has it"
    assert play.beat("first", 1.0) == "counts"


def test_a_restarted_process_takes_over_after_the_silence() -> None:
    play = Play()
    play.beat("first", 0.0)
    assert play.beat("second", 1.0) == "waits"
    assert play.beat("second", SILENCE + 0.1) == "counts"


def test_a_leaving_process_is_replaced_at_once() -> None:
    play = Play()
    play.beat("first", 0.0)
    assert play.beat("first", 0.1, leaving=True) == "counts"
    assert play.beat("second", 0.2) == "counts"
    assert play.beat("first", 0.3, leaving=True) == "waits", "it ends by itself"


def test_a_superseded_process_is_refused_for_good() -> None:
    play = Play()
    play.beat("first", 0.0)
    play.beat("second", 60.0)
    assert play.beat("first", 60.1) == "second has it"
    assert play.beat("second", 60.5) == "counts"
    assert play.beat("first", 600.0) == "second has it"


def test_a_short_pause_keeps_the_name() -> None:
    play = Play()
    play.beat("first", 0.0)
    play.beat("second", 0.4)
    play.beat("second", 0.9)
    assert play.beat("first", 1.2) == "counts"
    assert play.beat("second", 1.4) == "first has it"


def test_a_new_leader_gives_the_name_to_the_older_process() -> None:
    play = Play()
    assert play.beat("newcomer", 0.0, uptime=1.0) == "counts"
    assert play.beat("elder", 0.3, uptime=100.0) == "counts"
    assert play.beat("newcomer", 0.5, uptime=1.5) == "waits"
    assert play.beat("elder", 0.8, uptime=100.5) == "counts"
    assert play.beat("newcomer", 1.0, uptime=2.0) == "elder has it"


def test_a_process_that_started_later_does_not_count_as_older() -> None:
    """It has been running for longer than the holder had when that was first heard, and for less than it has by now."""
    play = Play()
    assert play.beat("holder", 0.0, uptime=0.3) == "counts"
    assert play.beat("newcomer", 1.0, uptime=0.6) == "waits"
    assert play.beat("holder", 1.2, uptime=1.5) == "counts"
    assert play.beat("newcomer", 1.4, uptime=1.0) == "holder has it"


def test_later_the_age_does_not_matter() -> None:
    play = Play()
    for number in range(20):
        play.beat("first", number * BEAT, uptime=1.0)
    assert play.beat("liar", 9.7, uptime=1e6) == "waits"
    assert play.beat("first", 10.0, uptime=1.0) == "counts"


def test_the_refusal_says_since_when_the_holder_runs() -> None:
    names = Names()
    names.beat("w1", "first", 100.0, epoch=1, uptime=50.0)
    names.beat("w1", "second", 110.0 + SILENCE, epoch=1, uptime=5.0)
    names.beat("w1", "third", 112.0, epoch=1)
    names.beat("w1", "second", 112.1, epoch=1)
    ruling = names.beat("w1", "third", 112.2, epoch=1)
    assert ruling.taken is not None
    assert round(ruling.taken.age, 3) == round(5.0 + 112.2 - 110.0 - SILENCE, 3)


def test_memory_is_bounded() -> None:
    names = Names()
    for number in range(4 * MAX_NAMES):
        names.beat(f"w{number}", "a", 0.0, epoch=1)
        names.beat(f"w{number}", "b", 10.0, epoch=1)
    assert len(names._holders) == len(names._superseded) == MAX_NAMES
    for number in range(1000):
        names.beat("w", f"i{number}", 20.0, epoch=1)
    assert len(names._holders["w"].rivals) <= 16


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 2.0), st.booleans()), max_size=40))
def test_heartbeats_of_one_process_count_at_a_time(steps: list[tuple[str, float, bool]]) -> None:
    """And never again those of one whose name has gone to another, after the first moments."""
    names, now, holder, over = Names(), 0.0, "", set[str]()
    for incarnation, pause, leaving in steps:
        now += pause
        ruling = names.beat("w", incarnation, now, epoch=1, leaving=leaving)
        assert ruling.taken is None or not ruling.counts
        if ruling == Ruling(True) and holder != incarnation:
            assert incarnation not in over
            over.add(holder)
            holder = incarnation
