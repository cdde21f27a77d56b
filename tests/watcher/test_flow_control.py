"""The watcher sends no more than its followers can take, and does not wait for those that are gone."""

import msgspec

from services.watcher.flow_control import MAX_UNSEEN_BYTES, SILENCE, FlowControl
from shared.messages.codec import encode
from shared.messages.watch import AlikePods, PodChange, PodOnNode, WatchBeat, Watched, WatchSeen
from shared.model.objects import encode_msgpack
from shared.watch import WatchReader
from shared.watch_progress import REPORT_BYTES, Progress, size_of_all, ungrouped_size

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


def test_progress_is_reported_every_few_bytes_and_at_heartbeats() -> None:
    progress, reader = Progress("queue"), WatchReader("queue")
    large = PodChange("uid", "default", "p", body=msgspec.Raw(bytes(REPORT_BYTES // 4)))

    def seen(message: Watched | WatchBeat) -> WatchSeen | None:
        reader.take(message, 0.0)
        return progress.due(reader, message)

    assert seen(Watched(EPOCH, 1, [])) == WatchSeen("queue", EPOCH, 1), "of a new watcher at once"
    assert [seq for seq in range(2, 12) if seen(Watched(EPOCH, seq, [large]))] == [5, 9]
    assert seen(WatchBeat(EPOCH, 11)) == WatchSeen("queue", EPOCH, 11)
    assert [seq for seq in range(12, 20) if seen(Watched(EPOCH, seq, [large]))] == [15, 19]


def test_alike_pods_are_sent_once_all_followers_read_them() -> None:
    """Until one that does not falls silent; one that says so later, as after its upgrade, counts by its last word."""
    flow = FlowControl(EPOCH)
    assert not flow.all_read_alike
    flow.seen(WatchSeen("queue", EPOCH, 0, alike=True), 0.0)
    assert flow.all_read_alike
    flow.seen(WatchSeen("snapshot", EPOCH, 0), 0.0)
    assert not flow.all_read_alike
    flow.seen(WatchSeen("snapshot", EPOCH, 1, alike=True), 1.0)
    assert flow.all_read_alike
    flow.seen(WatchSeen("old", EPOCH, 1), 2.0)
    flow.seen(WatchSeen("queue", EPOCH, 2, alike=True), SILENCE + 2.5)
    assert not flow.must_wait(SILENCE + 2.5)
    assert flow.all_read_alike


def test_pods_of_a_group_count_as_if_each_were_sent_separately() -> None:
    """A follower has as much to do for each; only in a message they take less."""
    pods = [PodOnNode(f"{number:036}", f"web-{number:012}", f"node-{number:06}") for number in range(200)]
    body = msgspec.Raw(encode_msgpack("x" * 600))
    together = Watched(EPOCH, 1, [AlikePods("default", body, pods)])
    singly = Watched(EPOCH, 1, [PodChange(each.uid, "default", each.name, node=each.node, body=body) for each in pods])
    assert 0.7 < size_of_all(together.changes) / len(encode(together)) < 1.5
    assert 0.7 < ungrouped_size(together) / ungrouped_size(singly) < 1.5
    assert ungrouped_size(singly) == size_of_all(singly.changes)
