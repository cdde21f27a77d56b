"""What a standby remembers of heartbeats."""

from shared.runtime.last_beats import LastBeats


def test_the_last_beat_of_each_process_counts_unless_it_is_too_old() -> None:
    beats = LastBeats[str]()
    beats.heard("w0", "first", 1.0)
    beats.heard("w1", "first", 2.0)
    beats.heard("w0", "second", 3.0)
    assert beats.since(2.0) == [("first", 2.0), ("second", 3.0)]
    assert beats.since(2.5) == [("second", 3.0)]
