"""The watcher refuses what goes back in time."""

from typing import Any

import pytest

from services.watcher.core import WatcherCore
from services.watcher.events import Effect, NewestShown, Publish, Received, StaleState
from services.watcher.kind_state import CLAIM_PATIENCE
from shared.kube.listwatch import ListDone, ListStarted
from shared.messages.watch import Kind, ListingBegins, ListingEnds, Watched
from tests.kube.support import raw_pod
from tests.watcher.test_core import NOW, changes, events, page


def at(version: object, name: str = "p", node: str = "") -> dict[str, Any]:
    pod = raw_pod(name, node=node)
    pod["metadata"]["resourceVersion"] = str(version)
    return pod


def listed(core: WatcherCore, version: object, *pods: dict[str, Any], since: object = None) -> list[Effect]:
    begins, ends = ListStarted(str(version)), ListDone(str(version), str(version if since is None else since))
    return [
        *core.handle(Received(Kind.POD, begins), NOW),
        *core.handle(page(Kind.POD, *pods), NOW),
        *core.handle(Received(Kind.POD, ends), NOW),
    ]


def stale(effects: list[Effect]) -> list[Kind]:
    return [effect.kind for effect in effects if isinstance(effect, StaleState)]


def test_an_old_list_is_refused_at_its_start() -> None:
    core = WatcherCore(1)
    assert stale(listed(core, 10, at(5))) == []
    core.handle(events(Kind.POD, ("MODIFIED", at(12, node="n"))), NOW)
    (refused,) = core.handle(Received(Kind.POD, ListStarted("11")), NOW)
    assert isinstance(refused, StaleState)
    assert "11" in refused.problem
    assert "12" in refused.problem
    assert stale(listed(core, 12, at(12, node="n"))) == [], "as new as what was told"


def test_a_new_watcher_refuses_what_is_older_than_what_its_followers_were_shown() -> None:
    core = WatcherCore(2)
    assert not core.is_resumed()
    core.handle(NewestShown({"pod": 20, "unknown": 99}), NOW)
    assert core.is_resumed()
    assert stale(core.handle(Received(Kind.POD, ListStarted("19")), NOW)) == [Kind.POD]
    (published,) = core.handle(Received(Kind.POD, ListStarted("21")), NOW)
    assert published == Publish(Watched(2, 1, [ListingBegins(Kind.POD)], 21))
    assert stale(core.handle(Received(Kind.NODE, ListStarted("3")), NOW)) == []


def test_a_claimed_version_that_the_server_does_not_reach_is_dropped_and_never_published() -> None:
    core = WatcherCore(2)
    core.handle(NewestShown({"pod": 1 << 62}), NOW)
    begins = Received(Kind.POD, ListStarted("20"))
    assert stale(core.handle(begins, NOW)) == [Kind.POD]
    assert stale(core.handle(begins, NOW + CLAIM_PATIENCE - 0.1)) == [Kind.POD]
    (published,) = core.handle(begins, NOW + CLAIM_PATIENCE)
    assert published == Publish(Watched(2, 1, [ListingBegins(Kind.POD)], 20))
    core.handle(NewestShown({"pod": 30}), NOW + CLAIM_PATIENCE)
    assert stale(core.handle(begins, NOW + CLAIM_PATIENCE)) == [Kind.POD], "it was claimed again"


def test_an_old_streamed_list_is_refused_at_its_end() -> None:
    """Its version is known at the end only; what is missing from it is not gone, as its end is not known."""
    core = WatcherCore(1)
    listed(core, 10, at(5))
    assert changes(core.handle(Received(Kind.POD, ListStarted()), NOW)) == [ListingBegins(Kind.POD)]
    effects = core.handle(Received(Kind.POD, ListDone("9", "9")), NOW)
    assert (stale(effects), changes(effects)) == ([Kind.POD], [])
    assert changes(core.handle(Received(Kind.POD, ListDone("10", "10")), NOW)) == [ListingEnds(Kind.POD, "10")]


def test_an_old_event_is_refused_with_all_that_follow() -> None:
    core = WatcherCore(1)
    listed(core, 10, at(5))
    effects = core.handle(
        events(Kind.POD, ("MODIFIED", at(12, "a")), ("MODIFIED", at(11, "b")), ("MODIFIED", at(13, "c"))), NOW
    )
    assert [getattr(change, "name", "") for change in changes(effects)] == ["a"]
    assert stale(effects) == [Kind.POD]
    assert stale(core.handle(events(Kind.POD, ("DELETED", at(4, "a"))), NOW)) == [Kind.POD]


def test_a_watch_that_goes_back_before_its_list_is_refused() -> None:
    core = WatcherCore(1)
    listed(core, 10, at(9, node="n"))
    assert stale(core.handle(events(Kind.POD, ("MODIFIED", at(7))), NOW)) == [Kind.POD]


def test_events_held_back_during_a_streamed_list_are_published() -> None:
    core = WatcherCore(1)
    listed(core, 10, at(5), since=8)
    effects = core.handle(events(Kind.POD, ("DELETED", at(8)), ("ADDED", at(9, "q"))), NOW)
    assert (stale(effects), len(changes(effects))) == ([], 2)
    assert stale(core.handle(events(Kind.POD, ("DELETED", at(7))), NOW)) == [Kind.POD]
    assert stale(core.handle(Received(Kind.POD, ListStarted("9")), NOW)) == [Kind.POD], "the list was of a newer state"


@pytest.mark.parametrize("version", ["", "abc", "12a", "-1", "²"])
def test_non_integer_versions_are_trusted(version: str) -> None:
    core = WatcherCore(1)
    listed(core, 10, at(5))
    assert stale(core.handle(events(Kind.POD, ("MODIFIED", at(version)), ("MODIFIED", at(11))), NOW)) == []
    assert stale(listed(core, version)) == []


def test_each_kind_has_its_own_version_order() -> None:
    core = WatcherCore(1)
    listed(core, 10)
    assert stale(core.handle(Received(Kind.NODE, ListStarted("3")), NOW)) == []
