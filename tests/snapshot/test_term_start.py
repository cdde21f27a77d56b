"""A listing counts once it is as new as the term; that this cannot be told is found out in a bounded time."""

import logging

import pytest

from services.snapshot.store.term_start import (
    LIST_PAUSE,
    LIST_TIMEOUT,
    MAX_LISTINGS,
    MAX_SECONDS,
    ListFreshness,
    StartStep,
    has_read,
)
from shared.messages.watch import Kind, ListingBegins, ListingEnds, WatchBeat, Watched
from shared.store.schema import ReadPosition
from shared.watch import WatchReader

LOG = logging.getLogger("freshness")


class Following:
    """A reader that has seen every kind listed."""

    def __init__(self, version: str, others: str = "") -> None:
        self.reader = WatchReader("snapshot")
        self._seq = 0
        for kind in Kind:
            self.list(kind, version if kind is Kind.POD else others)

    def list(self, kind: Kind, version: str) -> None:
        self._seq += 1
        self.reader.take(Watched(1, self._seq, [ListingBegins(kind), ListingEnds(kind, version)]), 0.0)

    def begin(self, kind: Kind) -> None:
        self._seq += 1
        self.reader.take(Watched(1, self._seq, [ListingBegins(kind)]), 0.0)


@pytest.mark.parametrize(
    ("floor", "pods", "others", "step"),
    [
        ("12", "12", "12", StartStep.FRESH),
        ("12", "13", "", StartStep.FRESH),
        ("12", "11", "12", StartStep.LIST_AGAIN),
        ("12", "12", "11", StartStep.LIST_AGAIN),
        ("9", "10", "10", StartStep.FRESH),
        ("12", "", "", StartStep.UNKNOWN),
        ("12", "a7", "", StartStep.UNKNOWN),
        ("", "12", "", StartStep.UNKNOWN),
        ("a7", "12", "", StartStep.UNKNOWN),
    ],
)
def test_versions_are_compared_where_they_are_numbers(floor: str, pods: str, others: str, step: StartStep) -> None:
    assert ListFreshness(floor, LOG).step(Following(pods, others).reader, 0.0) is step


def test_a_reader_that_has_missed_something_is_waited_for() -> None:
    assert ListFreshness("12", LOG).step(WatchReader("snapshot"), 0.0) is StartStep.WAIT


def test_a_listing_is_asked_for_after_the_one_before_and_after_a_pause() -> None:
    freshness, following = ListFreshness("12", LOG), Following("10")
    assert freshness.step(following.reader, 100.0) is StartStep.LIST_AGAIN
    assert freshness.step(following.reader, 100.0 + LIST_PAUSE) is StartStep.WAIT, "none has come yet"
    following.begin(Kind.POD)
    assert freshness.step(following.reader, 100.0 + LIST_PAUSE) is StartStep.WAIT, "it is under way"
    following.list(Kind.POD, "11")
    assert freshness.step(following.reader, 100.0 + LIST_PAUSE / 2) is StartStep.WAIT
    assert freshness.step(following.reader, 100.0 + LIST_PAUSE) is StartStep.LIST_AGAIN
    assert "version 11, older than this term (12): listing again, 2 of 10" in freshness.problem
    assert freshness.step(following.reader, 100.0 + LIST_PAUSE + LIST_TIMEOUT) is StartStep.LIST_AGAIN, "it was lost"
    following.list(Kind.POD, "12")
    assert freshness.step(following.reader, 100.0 + LIST_PAUSE) is StartStep.FRESH


def test_listings_that_are_all_older_are_given_up_after_a_number_of_them() -> None:
    freshness, following, now = ListFreshness("12", LOG), Following("10"), 50.0
    for _ in range(MAX_LISTINGS):
        assert freshness.step(following.reader, now) is StartStep.LIST_AGAIN
        following.list(Kind.POD, "10")
        now += LIST_PAUSE
    assert freshness.step(following.reader, now) is StartStep.UNKNOWN


def test_slow_listings_are_given_up_after_a_time() -> None:
    freshness, following = ListFreshness("12", LOG), Following("10")
    assert freshness.step(following.reader, 50.0) is StartStep.LIST_AGAIN
    following.list(Kind.POD, "11")
    assert freshness.step(following.reader, 50.0 + MAX_SECONDS) is StartStep.UNKNOWN


# A standby


@pytest.mark.parametrize(
    ("last", "known"),
    [
        ((1, len(Kind), 12), True),
        ((1, len(Kind) + 1, 12), False),
        ((1, len(Kind) - 1, 99), True),
        ((0, 500, 0), True),
        ((0, 500, 1), False),
        ((2, 1, 0), False),
    ],
    ids=["as far", "further", "less far", "in an earlier stream", "a later state there", "in a later stream"],
)
def test_a_standby_must_have_read_as_far_as_the_last_leader(last: tuple[int, int, int], known: bool) -> None:
    assert has_read(Following("12").reader, ReadPosition(5, *last)) is known


def test_a_standby_that_has_missed_something_knows_too_little() -> None:
    following = Following("12")
    following.reader.take(WatchBeat(1, len(Kind) + 1), 0.0)
    assert not following.reader.synced
    assert not has_read(following.reader, ReadPosition(5, 1, 1, 0))
