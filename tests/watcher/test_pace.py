"""The watcher says no more than those who follow can take, and waits for nobody who is gone."""

from services.watcher.pace import MOST_BYTES, PATIENCE, Pace
from shared.messages.watch import WatchSeen
from shared.watch.progress import EVERY, Progress

EPOCH = 7
HALF = MOST_BYTES // 2 + 1


def far_ahead(*followers: str) -> Pace:
    """Two messages that are too much together are on their way to all of them."""
    pace = Pace(EPOCH)
    for name in followers:
        pace.heard(WatchSeen(name, EPOCH, 0), 0.0)
    pace.said(1, HALF)
    assert not pace.is_ahead(0.0)
    pace.said(2, HALF)
    assert pace.is_ahead(0.0) == bool(followers)
    return pace


def test_nobody_is_waited_for_where_nobody_follows() -> None:
    far_ahead()


def test_the_slowest_counts() -> None:
    pace = far_ahead("queue", "snapshot")
    pace.heard(WatchSeen("queue", EPOCH, 2), 1.0)
    assert pace.is_ahead(1.0)
    pace.heard(WatchSeen("snapshot", EPOCH, 1), 2.0)
    assert not pace.is_ahead(2.0)


def test_who_is_silent_is_waited_for_no_longer() -> None:
    pace = far_ahead("queue", "snapshot")
    pace.heard(WatchSeen("queue", EPOCH, 2), PATIENCE)
    assert pace.is_ahead(PATIENCE)
    assert not pace.is_ahead(PATIENCE + 0.1)


def test_a_word_that_is_late_takes_nothing_back() -> None:
    pace = far_ahead("queue")
    pace.heard(WatchSeen("queue", EPOCH, 2), 1.0)
    pace.heard(WatchSeen("queue", EPOCH, 1), 1.0)
    pace.said(3, HALF)
    assert not pace.is_ahead(1.0)


def test_who_has_heard_an_earlier_watcher_only_has_seen_nothing_of_this_one() -> None:
    pace = far_ahead("queue")
    pace.heard(WatchSeen("queue", EPOCH - 1, 900), 1.0)
    assert pace.is_ahead(1.0)


def test_progress_is_told_now_and_then_and_when_the_watcher_beats() -> None:
    progress = Progress("queue")
    assert progress.due((EPOCH, 1), beat=False) == WatchSeen("queue", EPOCH, 1), "of a new watcher at once"
    told = [seq for seq in range(2, 3 * EVERY) if progress.due((EPOCH, seq), beat=False)]
    assert told == [1 + EVERY, 1 + 2 * EVERY]
    assert progress.due((EPOCH, told[-1]), beat=True) == WatchSeen("queue", EPOCH, told[-1])
