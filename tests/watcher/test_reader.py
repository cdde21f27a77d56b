"""WatchReader: what a consumer of the stream gets, and when it asks for a listing."""

import msgspec
import pytest

from shared.messages.watch import (
    OBJECT_KINDS,
    AlikePods,
    Kind,
    KindListed,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    PodOnNode,
    Relist,
    Unreadable,
    WatchBeat,
    WatchChange,
    Watched,
    WatchSeen,
)
from shared.model.objects import ObjectKind
from shared.watch import DOUBT_PAUSE, FIRST_PATIENCE, LONGEST_PATIENCE, WatchReader
from shared.watch_progress import Progress

A, B = PodChange("a", "ns", "pod-a"), PodChange("b", "ns", "pod-b")
N = NodeChange("n")
ASK = Relist("queue")


def watched(seq: int, *changes: WatchChange, epoch: int = 1) -> Watched:
    return Watched(epoch, seq, list(changes))


def gone(uid: str) -> PodChange:
    """What a listing says of a pod that it does not show."""
    return PodChange(uid, "", "", gone=True)


def listing(kind: Kind, *changes: WatchChange) -> list[WatchChange]:
    return [ListingBegins(kind), *changes, ListingEnds(kind)]


OTHERS = [mark for kind in OBJECT_KINDS for mark in listing(kind)]


def whole(seq: int, *pods: WatchChange, nodes: tuple[WatchChange, ...] = (), epoch: int = 1) -> Watched:
    return watched(seq, *listing(Kind.POD, *pods), *listing(Kind.NODE, *nodes), *OTHERS, epoch=epoch)


def synced_reader() -> WatchReader:
    reader = WatchReader("queue")
    reader.start(0.0)
    reader.take(whole(1, A, B, nodes=(N,)), 0.1)
    assert reader.synced
    return reader


def test_it_requests_a_listing_at_start_and_again_with_backoff() -> None:
    reader = WatchReader("queue")
    assert reader.start(0.0) == [ASK]
    now, waits = 0.0, []
    for _ in range(7):
        due = reader.next_deadline()
        assert due is not None
        assert reader.tick(due - 0.01) == []
        assert reader.tick(due) == [ASK]
        waits.append(due - now)
        now = due
    assert waits == [FIRST_PATIENCE, 1.0, 2.0, 4.0, LONGEST_PATIENCE, LONGEST_PATIENCE, LONGEST_PATIENCE]


def test_a_listing_of_every_kind_makes_it_synced() -> None:
    reader = WatchReader("queue")
    reader.start(0.0)
    assert reader.take(watched(1, *listing(Kind.POD, A)), 0.1) == [A]
    assert not reader.synced
    assert reader.take(watched(2, *listing(Kind.NODE, N)), 0.2) == [N]
    assert not reader.synced
    assert reader.take(watched(3, *OTHERS), 0.2) == []
    assert reader.synced
    assert reader.next_deadline() is None
    assert (reader.count(Kind.POD), reader.count(Kind.NODE)) == (1, 1)


def test_a_listing_may_come_in_parts_with_another_kind_between_them() -> None:
    reader = WatchReader("queue")
    parts: list[list[WatchChange]] = [
        [ListingBegins(Kind.POD), A],
        [ListingBegins(Kind.NODE), N],
        [*OTHERS, B, ListingEnds(Kind.POD)],
    ]
    heard = [change for seq, part in enumerate(parts, 1) for change in reader.take(watched(seq, *part), 0.0)]
    assert heard == [A, N, B]
    assert not reader.synced
    reader.take(watched(4, ListingEnds(Kind.NODE)), 0.0)
    assert reader.synced


def test_it_requests_nothing_while_a_listing_is_in_progress() -> None:
    reader = WatchReader("queue")
    reader.start(0.0)
    reader.take(watched(1, ListingBegins(Kind.POD)), 0.1)
    for seq in range(2, 60):
        now = seq * FIRST_PATIENCE
        assert reader.tick(now) == []
        reader.take(watched(seq, PodChange(str(seq), "ns", str(seq))), now)


def test_a_known_object_missing_from_a_listing_is_gone() -> None:
    reader = synced_reader()
    assert reader.take(whole(2, B), 1.0) == [B, gone("a"), NodeChange("n", gone=True)]
    assert reader.synced
    assert (reader.count(Kind.POD), reader.count(Kind.NODE)) == (1, 0)


def test_unreadable_objects_are_known() -> None:
    reader = synced_reader()
    bad = Unreadable(Kind.POD, "c", "ns", "pod-c", "spec: what is that?")
    assert reader.take(watched(2, bad), 1.0) == [bad]
    assert gone("c") in reader.take(whole(3, A, B, nodes=(N,)), 2.0)


def test_objects_of_other_kinds_are_known_by_key() -> None:
    reader = synced_reader()
    claim = ObjectChange(ObjectKind.PERSISTENT_VOLUME_CLAIM, "ns/c")
    bad = Unreadable(Kind.PERSISTENT_VOLUME_CLAIM, "u", "ns", "d", "spec: what is that?")
    assert reader.take(watched(2, claim, ObjectChange(ObjectKind.SERVICE, "ns/c"), bad), 1.0)[0] == claim
    assert reader.count(Kind.PERSISTENT_VOLUME_CLAIM) == 2
    assert reader.take(watched(3, *listing(Kind.PERSISTENT_VOLUME_CLAIM)), 2.0) == [
        ObjectChange(ObjectKind.PERSISTENT_VOLUME_CLAIM, "ns/c", gone=True),
        ObjectChange(ObjectKind.PERSISTENT_VOLUME_CLAIM, "ns/d", gone=True),
    ]
    assert (reader.count(Kind.PERSISTENT_VOLUME_CLAIM), reader.count(Kind.SERVICE)) == (0, 1)


@pytest.mark.parametrize(
    "change", [PodChange("a", "ns", "pod-a", gone=True), PodChange("a", "ns", "pod-a", finished=True)]
)
def test_gone_and_finished_objects_are_passed_on_once(change: PodChange) -> None:
    reader = synced_reader()
    assert reader.take(watched(2, change), 1.0) == [change]
    assert reader.take(whole(3, B, nodes=(N,)), 2.0) == [B, N]


def test_duplicate_and_out_of_order_messages_are_ignored() -> None:
    reader = synced_reader()
    assert reader.take(watched(2, A), 1.0) == [A]
    assert reader.take(watched(2, A), 1.0) == []
    assert reader.take(whole(1), 1.0) == []
    assert reader.synced


def test_a_gap_requests_a_listing_and_only_a_complete_one_repairs_it() -> None:
    reader = synced_reader()
    assert reader.take(watched(3, B), 1.0) == [ASK, B]
    assert not reader.synced
    assert reader.take(watched(4, ListingEnds(Kind.POD)), 1.1) == []
    assert reader.take(watched(5, *listing(Kind.POD, A)), 1.2)[-1] == gone("b")
    assert not reader.synced
    reader.take(watched(6, *listing(Kind.NODE, N), *OTHERS), 1.3)
    assert reader.synced


def test_a_listing_with_a_gap_in_it_sweeps_nothing() -> None:
    reader = synced_reader()
    reader.take(watched(2, ListingBegins(Kind.POD), A), 1.0)
    assert reader.take(watched(4, ListingEnds(Kind.POD)), 1.1) == [ASK]
    assert reader.count(Kind.POD) == 2


def test_a_restarted_listing_counts_from_its_start() -> None:
    reader = synced_reader()
    reader.take(watched(2, ListingBegins(Kind.POD), A), 1.0)
    heard = reader.take(watched(3, *listing(Kind.POD, B)), 1.1)
    assert heard == [B, gone("a")]


def test_a_heartbeat_shows_that_the_last_message_was_lost() -> None:
    reader = synced_reader()
    assert reader.take(WatchBeat(1, 1), 1.0) == []
    assert reader.take(WatchBeat(1, 2), 1.0) == [ASK]
    assert not reader.synced


def test_an_older_watcher_is_refused() -> None:
    reader = synced_reader()
    reader.take(whole(1, A, epoch=2), 1.0)
    assert reader.take(watched(2, B, epoch=1), 1.1) == []
    assert reader.take(WatchBeat(1, 9), 1.1) == []
    assert reader.synced
    assert [str(refusal) for refusal in reader.refused] == [
        "watch 2 of epoch 1, now 1 of 2",
        "watch 9 of epoch 1, now 1 of 2",
    ]


def test_no_request_to_a_new_watcher_heard_from_its_start() -> None:
    reader = synced_reader()
    assert reader.take(watched(1, ListingBegins(Kind.POD), A, epoch=2), 1.0) == [A]
    assert not reader.synced
    rest = watched(2, ListingEnds(Kind.POD), *listing(Kind.NODE, N), *OTHERS, epoch=2)
    assert reader.take(rest, 1.1) == [gone("b"), N]
    assert reader.synced


def test_a_listing_is_requested_from_a_new_watcher_heard_late() -> None:
    reader = synced_reader()
    assert reader.take(WatchBeat(2, 5), 1.0) == []
    assert not reader.synced
    assert reader.tick(1.0 + FIRST_PATIENCE) == [ASK]


def shown(seq: int, version: int, *changes: WatchChange, epoch: int = 1) -> Watched:
    return Watched(epoch, seq, list(changes), version)


def test_a_new_watcher_cannot_show_an_older_state_than_the_one_before() -> None:
    reader = synced_reader()
    assert reader.take(shown(2, 20, PodChange("c", "ns", "pod-c")), 0.2) == [PodChange("c", "ns", "pod-c")]
    assert reader.versions == {"pod": 20}
    old: list[WatchChange] = [ListingBegins(Kind.POD), A, ListingEnds(Kind.POD, "12")]
    assert [reader.take(shown(seq, 12, part, epoch=2), 1.0) for seq, part in enumerate(old, 1)] == [[], [], []]
    reader.take(watched(4, *listing(Kind.NODE, N), *OTHERS, epoch=2), 1.0)
    assert not reader.synced
    assert reader.count(Kind.POD) == 3
    assert reader.tick(1.0 + FIRST_PATIENCE) == [Relist("queue", {"pod": 20})]
    new = listing(Kind.POD, PodChange("c", "ns", "pod-c"))
    assert reader.take(shown(5, 21, *new, epoch=2), 2.0) == [PodChange("c", "ns", "pod-c"), gone("a"), gone("b")]
    assert reader.synced
    assert "pod at version 12, older than 20" in str(reader.refused[0])


def test_a_listing_that_shows_its_age_only_at_its_end_sweeps_nothing() -> None:
    reader = synced_reader()
    reader.take(shown(2, 20, B), 0.2)
    assert reader.take(watched(1, ListingBegins(Kind.POD), B, epoch=2), 1.0) == [B]
    assert reader.take(shown(2, 12, ListingEnds(Kind.POD, "12"), epoch=2), 1.0) == []
    assert reader.count(Kind.POD) == 2


def test_the_first_report_to_a_watcher_names_the_versions_shown() -> None:
    reader, progress = synced_reader(), Progress("queue")
    reader.take(shown(2, 20, B), 0.2)
    assert progress.due(reader, WatchBeat(1, 2)) == WatchSeen("queue", 1, 2, {"pod": 20})
    assert progress.due(reader, WatchBeat(1, 2)) == WatchSeen("queue", 1, 2)
    reader.take(WatchBeat(2, 0), 1.0)
    assert progress.due(reader, WatchBeat(2, 0)) == WatchSeen("queue", 2, 0, {"pod": 20})


def test_kinds_that_an_older_watcher_lacks_are_not_awaited() -> None:
    listed = [kind for kind in Kind if kind is not Kind.DEVICE_CLASS]
    reader = WatchReader("queue")
    reader.start(0.0)
    reader.take(watched(1, *(mark for kind in listed for mark in listing(kind))), 1.0)
    assert not reader.synced
    assert reader.take(WatchBeat(1, 1, [*map(str, listed), "of a later release"]), 1.1) == []
    assert reader.synced
    assert reader.next_deadline() is None
    reader.take(watched(1, ListingBegins(Kind.POD), epoch=2), 2.0)
    assert not reader.synced, "the next watcher may list everything"


def test_doubt_requests_listings_at_a_limited_rate() -> None:
    reader = synced_reader()
    assert reader.doubt(1.0) == [ASK]
    assert reader.doubt(1.0 + DOUBT_PAUSE - 0.1) == []
    assert reader.doubt(1.0 + DOUBT_PAUSE) == [ASK]
    assert reader.synced, "nothing was missed"
    waiting = WatchReader("queue")
    waiting.start(0.0)
    assert waiting.doubt(0.1) == [], "a listing is asked for already"


def test_a_version_that_the_server_has_not_reached_is_dropped() -> None:
    reader = synced_reader()
    reader.take(shown(2, 1 << 62, B), 0.2)
    reader.take(Watched(1, 3, [NodeChange("m")], 30), 0.3)
    assert not reader.is_contradicted
    relisted: list[WatchChange] = listing(Kind.POD, A)
    assert reader.take(shown(4, 40, *relisted), 1.0) == []
    assert reader.is_contradicted and not reader.synced
    assert reader.correct(reader.versions, 41, 1.1) == [Relist("queue", {"node": 30})]
    assert not reader.is_contradicted
    assert reader.take(shown(5, 40, *relisted), 1.2) == [A, gone("b")]


def test_a_version_that_the_server_has_reached_stays() -> None:
    reader = synced_reader()
    reader.take(shown(2, 20, B), 0.2)
    reader.take(shown(3, 12, *listing(Kind.POD, A)), 0.3)
    assert reader.is_contradicted
    assert reader.correct({"pod": 20}, 20, 0.4) == []
    assert not reader.is_contradicted
    assert reader.take(shown(4, 12, *listing(Kind.POD, A)), 0.5) == []


# A watcher that goes on


def synced_at(epoch: int) -> tuple[WatchReader, int]:
    reader, seq = WatchReader("x"), 0
    for kind in Kind:
        seq += 1
        reader.take(Watched(epoch, seq, [ListingBegins(kind), ListingEnds(kind, "7")]), 0.0)
    return reader, seq


def test_a_reader_of_the_last_message_has_missed_nothing_where_the_next_watcher_goes_on_after_it() -> None:
    reader, seq = synced_at(1)
    assert reader.take(WatchBeat(2, 0, after_epoch=1, after_seq=seq), 1.0) == []
    assert reader.synced and reader.position == (2, 0) and reader.next_deadline() is None
    change = PodChange("u", "ns", "p")
    assert reader.take(Watched(2, 1, [change]), 1.0) == [change]
    assert reader.synced


@pytest.mark.parametrize(
    ("epoch", "behind", "seq"),
    [(1, -1, 0), (1, 1, 0), (0, 0, 0), (3, 0, 0), (1, 0, 1)],
    ids=["it has read more", "it has read less", "it lists", "another watcher's", "something came since"],
)
def test_any_other_reader_needs_a_listing(epoch: int, behind: int, seq: int) -> None:
    reader, last = synced_at(1)
    reader.take(WatchBeat(2, seq, after_epoch=epoch, after_seq=last + behind), 1.0)
    assert not reader.synced and reader.next_deadline() is not None


def test_one_that_had_missed_something_before_does_too() -> None:
    reader, last = synced_at(1)
    reader.take(Watched(1, last + 2, []), 0.5)
    reader.take(WatchBeat(2, 0, after_epoch=1, after_seq=last + 2), 1.0)
    assert not reader.synced


# Pods that are alike


def alike(*uids: str) -> AlikePods:
    return AlikePods("ns", msgspec.Raw(b"\x80"), [PodOnNode(uid, f"pod-{uid}", "n") for uid in uids])


def test_pods_that_are_alike_are_passed_on_together_and_known_each() -> None:
    reader = WatchReader("queue", alike=True)
    assert reader.start(0.0) == [Relist("queue", alike=True)]
    assert reader.take(whole(1, alike("a", "b"), A), 0.1) == [alike("a", "b"), A]
    assert (reader.synced, reader.count(Kind.POD)) == (True, 2)
    again = reader.take(watched(2, *listing(Kind.POD, alike("b", "c"))), 0.2)
    assert again == [alike("b", "c"), gone("a")]
    reader.validate()


def test_of_a_message_that_pages_have_shown_in_part_the_last_state_of_each_counts() -> None:
    reader = synced_reader()
    reader.fetch()
    for kind in Kind:
        while reader.fetches(kind):
            reader.take_page(KindListed(kind.value, 10, [alike("a", "b")] if kind is Kind.POD else []))
    last = [alike("a"), B, alike("c")]
    assert reader.take(Watched(1, 2, [alike("a", "b"), B, alike("c", "c")], 12), 0.2) == last
    assert reader.take(Watched(1, 3, [alike("a", "b")], 9), 0.3) == []


def test_a_page_does_not_take_back_what_the_stream_has_shown_since() -> None:
    reader = synced_reader()
    reader.fetch()
    shown = Watched(1, 2, [alike("a")], 20)
    assert reader.take(shown, 0.2) == [alike("a")]
    page = KindListed(Kind.POD.value, 10, [alike("a", "b", "c")])
    assert reader.take_page(page) == [alike("b"), alike("c")]
    assert reader.count(Kind.POD) == 3
