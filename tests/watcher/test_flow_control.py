"""The watcher sends no more than its followers can take, and does not wait for those that are gone."""

from services.watcher.flow_control import MAX_UNSEEN_BYTES, SILENCE, FlowControl
from shared.messages.watch import Watched, WatchSeen
from shared.watch import REPORT_EVERY, Progress, WatchReader

EPOCH = 7
HALF = MAX_UNSEEN_BYTES // 2 + 1


def far_ahead(*followers: str) -> FlowControl:
    """Two messages that are too much together are on their way to all of them."""
    flow = FlowControl(EPOCH)
    for name in followers:
        flow.seen(WatchSeen(name, EPOCH, 0), 0.0)
    flow.sent(1, HALF)
    assert not flow.must_wait(0.0)
    flow.sent(2, HALF)
    assert flow.must_wait(0.0) == bool(followers)
    return flow


def test_without_followers_nothing_waits() -> None:
    far_ahead()


def test_the_slowest_follower_counts() -> None:
    flow = far_ahead("queue", "snapshot")
    flow.seen(WatchSeen("queue", EPOCH, 2), 1.0)
    assert flow.must_wait(1.0)
    flow.seen(WatchSeen("snapshot", EPOCH, 1), 2.0)
    assert not flow.must_wait(2.0)


def test_a_silent_follower_stops_counting() -> None:
    flow = far_ahead("queue", "snapshot")
    flow.seen(WatchSeen("queue", EPOCH, 2), SILENCE)
    assert flow.must_wait(SILENCE)
    assert not flow.must_wait(SILENCE + 0.1)


def test_a_late_report_takes_nothing_back() -> None:
    flow = far_ahead("queue")
    flow.seen(WatchSeen("queue", EPOCH, 2), 1.0)
    flow.seen(WatchSeen("queue", EPOCH, 1), 1.0)
    flow.sent(3, HALF)
    assert not flow.must_wait(1.0)


def test_a_report_about_an_earlier_watcher_counts_as_nothing_seen() -> None:
    flow = far_ahead("queue")
    flow.seen(WatchSeen("queue", EPOCH - 1, 900), 1.0)
    assert flow.must_wait(1.0)


def test_progress_is_reported_every_few_messages_and_at_heartbeats() -> None:
    progress, reader = Progress("queue"), WatchReader("queue")

    def seen(seq: int, *, beat: bool = False) -> WatchSeen | None:
        reader.take(Watched(EPOCH, seq, []), 0.0)
        return progress.due(reader, beat=beat)

    assert seen(1) == WatchSeen("queue", EPOCH, 1), "of a new watcher at once"
    told = [seq for seq in range(2, 3 * REPORT_EVERY) if seen(seq)]
    assert told == [1 + REPORT_EVERY, 1 + 2 * REPORT_EVERY]
    newest = 3 * REPORT_EVERY - 1
    assert seen(newest, beat=True) == WatchSeen("queue", EPOCH, newest)
