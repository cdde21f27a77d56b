"""WatcherCore: what the API server says becomes one numbered stream."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from services.watcher.bodies import MAX_BODY_BYTES
from services.watcher.core import MAX_CHANGES, RELIST_PAUSE, UPDATE_PATIENCE, WatcherCore
from services.watcher.events import (
    Beat,
    Effect,
    ListAgain,
    ObjectSkipped,
    Publish,
    Received,
    RelistRequested,
    ReportProblem,
    StaleState,
    Tick,
)
from services.watcher.resources import RESOURCES
from shared.kube.listwatch import ListDone, ListPage, ListStarted, ObjectEvents
from shared.kube.wire import WatchEvent
from shared.messages.codec import copy, encode
from shared.messages.watch import (
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    PodChange,
    Unreadable,
    WatchBeat,
    WatchChange,
    Watched,
)
from shared.model.objects import Node, Pod, dec_hook
from tests.kube.support import raw_node, raw_pod

NOW = 1000.0
WALL = 1_767_225_600.0


def raw(obj: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))


def page(kind: Kind, *objects: Any) -> Received:
    return Received(kind, ListPage([raw(obj) for obj in objects]))


def events(kind: Kind, *said: tuple[str, Any]) -> Received:
    return Received(kind, ObjectEvents([WatchEvent(type_, raw(obj)) for type_, obj in said]), WALL)


def published(effects: Iterable[Effect]) -> list[Watched]:
    return [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, Watched)]


def changes(effects: Iterable[Effect]) -> list[WatchChange]:
    return [change for message in published(effects) for change in message.changes]


def complaints(effects: Iterable[Effect]) -> list[ReportProblem]:
    return [effect for effect in effects if isinstance(effect, ReportProblem)]


def finished(name: str) -> dict[str, Any]:
    return raw_pod(name, node="n") | {"status": {"phase": "Succeeded"}}


def test_a_pod_change_has_common_fields_and_the_rest_in_its_body() -> None:
    core = WatcherCore(3)
    message = published(core.handle(events(Kind.POD, ("ADDED", raw_pod("p", node="n"))), NOW))[0]
    assert (message.epoch, message.seq) == (3, 1)
    change = copy(message).changes[0]
    assert isinstance(change, PodChange)
    told = (change.uid, change.namespace, change.name, change.scheduler, change.node, change.finished, change.gone)
    assert told == ("uid-p", "default", "p", "default-scheduler", "n", False, False)
    assert change.seen_at == WALL
    pod = msgspec.msgpack.decode(change.body, type=Pod, dec_hook=dec_hook)
    assert pod.spec.containers[0].resources.requests["cpu"] == 100_000_000


def test_a_node_change_has_its_name() -> None:
    core = WatcherCore(1)
    change = copy(published(core.handle(events(Kind.NODE, ("ADDED", raw_node("n"))), NOW))[0]).changes[0]
    assert isinstance(change, NodeChange)
    assert change.name == "n"
    assert msgspec.msgpack.decode(change.body, type=Node, dec_hook=dec_hook).status.allocatable["pods"] == 110 * 10**9


def test_a_deleted_object_is_gone() -> None:
    core = WatcherCore(1)
    effects = [
        *core.handle(events(Kind.POD, ("DELETED", raw_pod("p", node="n", cpu="what?"))), NOW),
        *core.handle(events(Kind.NODE, ("DELETED", raw_node("n"))), NOW),
    ]
    pod, node = changes(effects)
    assert pod == PodChange("uid-p", "default", "p", "default-scheduler", "n", gone=True, seen_at=WALL)
    assert node == NodeChange("n", gone=True)


def test_a_finished_pod_is_marked_as_finished() -> None:
    change = changes(WatcherCore(1).handle(events(Kind.POD, ("MODIFIED", finished("p"))), NOW))[0]
    assert isinstance(change, PodChange)
    assert change.finished
    assert not change.gone


def test_a_listing_has_marks_and_messages_are_numbered_without_gaps() -> None:
    core = WatcherCore(1)
    effects = [
        *core.handle(Received(Kind.POD, ListStarted()), NOW),
        *core.handle(page(Kind.POD, raw_pod("a"), finished("f"), raw_pod("b")), NOW),
        *core.handle(events(Kind.NODE, ("ADDED", raw_node("n"))), NOW),
        *core.handle(Received(Kind.POD, ListDone()), NOW),
    ]
    said = [getattr(change, "name", change) for change in changes(effects)]
    assert said == [ListingBegins(Kind.POD), "a", "b", "n", ListingEnds(Kind.POD)]
    assert [message.seq for message in published(effects)] == [1, 2, 3, 4]
    assert core.handle(Beat(), NOW) == [Publish(WatchBeat(1, 4, [kind.value for kind in RESOURCES]))]


def test_messages_are_limited_in_changes_and_bytes() -> None:
    core = WatcherCore(1)
    many = published(core.handle(page(Kind.NODE, *[raw_node(f"n{i}") for i in range(2 * MAX_CHANGES + 1)]), NOW))
    assert [len(message.changes) for message in many] == [MAX_CHANGES, MAX_CHANGES, 1]
    heavy = [raw_node(f"n{i}") for i in range(4)]
    for node in heavy:
        node["metadata"]["annotations"] = {"a": "x" * (MAX_BODY_BYTES // 2 - 1000)}
    assert [len(message.changes) for message in published(core.handle(page(Kind.NODE, *heavy), NOW))] == [2, 2]


def test_an_object_too_large_for_a_message_is_reported() -> None:
    node = raw_node("n")
    node["metadata"]["annotations"] = {"a": "x" * MAX_BODY_BYTES}
    change = changes(WatcherCore(1).handle(page(Kind.NODE, node), NOW))[0]
    assert isinstance(change, NodeChange)
    assert change.problem == "", "no follower reads such annotations"
    waiting = raw_pod("p", schedulerName="default-scheduler")
    waiting["metadata"]["annotations"] = {"a": "x" * MAX_BODY_BYTES}
    change = changes(WatcherCore(1).handle(page(Kind.POD, waiting), NOW))[0]
    assert isinstance(change, Unreadable)
    assert "more than" in change.problem


@pytest.mark.parametrize("cpu", ["1", "💾" * 1000])
def test_a_name_that_is_too_long_for_a_message_is_cut(cpu: str) -> None:
    """A pod may name a scheduler of any length."""
    core = WatcherCore(1)
    long_names = [raw_pod(f"p{i}", cpu=cpu, schedulerName="🦑" * 60_000) for i in range(MAX_CHANGES)]
    effects = [
        *core.handle(page(Kind.POD, *long_names), NOW),
        *core.handle(page(Kind.POD, raw_pod("p", schedulerName="x" * (2 * MAX_BODY_BYTES))), NOW),
        *core.handle(events(Kind.POD, ("DELETED", raw_pod("p", schedulerName="x" * (2 * MAX_BODY_BYTES)))), NOW),
    ]
    assert len(changes(effects)) == MAX_CHANGES + 2
    assert max(len(encode(message)) for message in published(effects)) < 1 << 20


def test_an_unreadable_object_is_reported_and_affects_no_other() -> None:
    core = WatcherCore(1)
    bad = raw_pod("bad", cpu="much")
    bad["metadata"]["generation"] = 4
    effects = core.handle(page(Kind.POD, raw_pod("a"), bad, raw_pod("b")), NOW)
    first, unreadable, last = changes(effects)
    assert isinstance(unreadable, Unreadable)
    assert unreadable.uid == "uid-bad"
    assert unreadable.problem.startswith("spec.containers[0].resources.requests.cpu: 'much' is not a quantity")
    assert complaints(effects) == [ReportProblem(unreadable, 4, said_unscheduled=False)]
    assert [getattr(change, "name", "") for change in (first, last)] == ["a", "b"]


def test_a_number_out_of_range_affects_no_other_object() -> None:
    core = WatcherCore(1)
    told = changes(core.handle(page(Kind.POD, raw_pod("a"), raw_pod("bad", priority=2**70), raw_pod("b")), NOW))
    assert [type(change) for change in told] == [PodChange, Unreadable, PodChange]


def test_each_problem_is_reported_once() -> None:
    """1. A bad pod is seen. 2. Telling its owner makes a new version of it. 3. Everything is listed again. 4. Its owner
    makes it worse. 5. Its owner mends it. 6. Its owner breaks it as before."""
    core = WatcherCore(1)

    def told(pod: dict[str, Any], listed: bool = False) -> int:
        effects: list[Effect] = []
        if listed:
            effects += core.handle(Received(Kind.POD, ListStarted()), NOW)
            effects += core.handle(page(Kind.POD, pod), NOW)
            effects += core.handle(Received(Kind.POD, ListDone()), NOW)
        else:
            effects += core.handle(events(Kind.POD, ("MODIFIED", pod)), NOW)
        core.validate()
        return len(complaints(effects))

    bad, worse, good = raw_pod("p", cpu="much"), raw_pod("p", cpu="more"), raw_pod("p")
    assert [told(bad), told(bad), told(bad, listed=True), told(bad)] == [1, 0, 0, 0]
    assert [told(worse), told(good), told(bad)] == [1, 0, 1]


def test_a_bad_pod_that_is_deleted_is_forgotten() -> None:
    core = WatcherCore(1)
    bad = raw_pod("p", cpu="much")
    core.handle(events(Kind.POD, ("ADDED", bad), ("DELETED", bad)), NOW)
    assert len(complaints(core.handle(events(Kind.POD, ("ADDED", bad)), NOW))) == 1
    core.handle(Received(Kind.POD, ListStarted()), NOW)
    core.handle(Received(Kind.POD, ListDone()), NOW)
    assert len(complaints(core.handle(events(Kind.POD, ("ADDED", bad)), NOW))) == 1


def test_a_pod_whose_condition_is_false_already() -> None:
    bad = raw_pod("p", cpu="much") | {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
    assert complaints(WatcherCore(1).handle(events(Kind.POD, ("ADDED", bad)), NOW))[0].said_unscheduled


@pytest.mark.parametrize("spec", [{"nodeName": 5}, {"containers": "none"}, {"priority": "high"}, []])
def test_every_report_names_the_object(spec: Any) -> None:
    text = msgspec.json.encode({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}})[:-1] + b',"spec":'
    heard = Received(
        Kind.POD, ObjectEvents([WatchEvent("ADDED", msgspec.Raw(text + json.dumps(spec).encode() + b"}"))])
    )
    message = published(WatcherCore(1).handle(heard, NOW))[0]
    change = copy(message).changes[0]
    assert isinstance(change, Unreadable)
    assert (change.uid, change.namespace, change.name) == ("u", "ns", "p")
    assert change.problem


@pytest.mark.parametrize("obj", [{}, [], 5, {"metadata": {"name": ""}}, {"metadata": None}])
@pytest.mark.parametrize("type_", ["ADDED", "DELETED"])
@pytest.mark.parametrize("kind", Kind)
def test_an_object_without_a_name_is_left_out(kind: Kind, type_: str, obj: Any) -> None:
    effects = WatcherCore(1).handle(events(kind, (type_, obj)), NOW)
    assert [type(effect) for effect in effects] == [ObjectSkipped]


def test_a_request_before_the_first_message_needs_no_listing() -> None:
    core = WatcherCore(1)
    assert core.handle(RelistRequested(), NOW) == []
    core.handle(Received(Kind.NODE, ListStarted("1"), NOW), NOW)
    assert core.handle(RelistRequested(), NOW) == [ListAgain(frozenset(RESOURCES))]


def test_requested_listings_are_rate_limited() -> None:
    core = WatcherCore(1)
    core.handle(Received(Kind.NODE, ListStarted("1"), NOW), NOW)
    assert core.handle(RelistRequested(), NOW) == [ListAgain(frozenset(RESOURCES))]
    assert core.handle(RelistRequested(), NOW + 0.1) == core.handle(RelistRequested(), NOW + 0.2) == []
    assert core.next_deadline() == NOW + RELIST_PAUSE
    assert core.handle(Tick(), NOW + RELIST_PAUSE - 0.1) == []
    assert core.handle(Tick(), NOW + RELIST_PAUSE) == [ListAgain(frozenset(RESOURCES))]
    assert core.next_deadline() is None
    assert core.handle(RelistRequested(), NOW + 3 * RELIST_PAUSE) == [ListAgain(frozenset(RESOURCES))]


# Updates of placed pods


def of_ours() -> WatcherCore:
    return WatcherCore(1, frozenset({"ours"}))


def seen(name: str, version: int, *, node: str = "n1", scheduler: str = "ours", phase: str = "Pending") -> Any:
    obj = raw_pod(name, node=node, schedulerName=scheduler)
    obj["metadata"]["resourceVersion"] = str(version)
    return {**obj, "status": {"phase": phase}}


def update(name: str, version: int) -> Received:
    return events(Kind.POD, ("MODIFIED", seen(name, version)))


def names_in(effects: Iterable[Effect]) -> list[list[str]]:
    return [[c.name for c in message.changes if isinstance(c, PodChange)] for message in published(effects)]


def test_updates_of_placed_pods_go_with_the_next_change_of_a_pod_and_before_it() -> None:
    core = of_ours()
    assert core.handle(update("a", 11), NOW) == []
    assert core.handle(update("b", 12), NOW + 0.01) == []
    created = events(Kind.POD, ("ADDED", seen("c", 13, node="")))
    (message,) = published(core.handle(created, NOW + 0.02))
    assert [change.name for change in message.changes if isinstance(change, PodChange)] == ["a", "b", "c"]
    assert (message.seq, message.version) == (1, 13)
    core.validate()
    assert core.next_deadline() is None


def test_without_another_change_they_are_published_soon() -> None:
    core = of_ours()
    core.handle(update("a", 11), NOW)
    core.handle(update("a", 12), NOW + 0.01)
    core.validate()
    assert core.handle(Tick(), NOW + 0.01) == []
    assert core.next_deadline() == NOW + UPDATE_PATIENCE
    (message,) = published(core.handle(Tick(), NOW + UPDATE_PATIENCE))
    assert names_in([Publish(message)]) == [["a"]] and message.version == 12, "the last one of them"
    assert core.next_deadline() is None


def test_no_more_of_them_wait_than_fit_in_a_message() -> None:
    core = of_ours()
    effects = [core.handle(update(f"p{i}", 11 + i), NOW) for i in range(MAX_CHANGES)]
    assert not any(effects[:-1])
    assert [len(names) for names in names_in(effects[-1])] == [MAX_CHANGES]
    core.validate()


def test_each_of_several_messages_names_the_version_that_it_shows() -> None:
    """A follower that has fetched a listing skips messages up to its version, and applies the others."""
    created = [("ADDED", seen(f"p{i}", 11 + i, node="")) for i in range(MAX_CHANGES + 5)]
    first, second = published(of_ours().handle(events(Kind.POD, *created), NOW))
    assert (first.version, second.version) == (10 + MAX_CHANGES, 15 + MAX_CHANGES)


def test_a_listing_comes_after_the_updates_that_were_seen_before_it() -> None:
    core = of_ours()
    core.handle(update("a", 11), NOW)
    first, second = published(core.handle(Received(Kind.POD, ListStarted("20")), NOW))
    assert names_in([Publish(first)]) == [["a"]]
    assert second.changes == [ListingBegins(Kind.POD)]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(("ADDED", seen("a", 11)), id="new"),
        pytest.param(("DELETED", seen("a", 11)), id="gone"),
        pytest.param(("MODIFIED", seen("a", 11, scheduler="other")), id="of another scheduler"),
        pytest.param(("MODIFIED", seen("a", 11, node="")), id="pending"),
        pytest.param(("MODIFIED", seen("a", 11, phase="Failed")), id="finished"),
    ],
)
def test_any_other_change_of_a_pod_waits_for_nothing(said: tuple[str, Any]) -> None:
    assert names_in(of_ours().handle(events(Kind.POD, said), NOW)) == [["a"]]


def test_changes_of_other_kinds_wait_for_nothing() -> None:
    effects = of_ours().handle(events(Kind.NODE, ("MODIFIED", raw_node("n1"))), NOW)
    assert len(published(effects)) == 1


# Resuming


def whole(core: WatcherCore, version: str = "7") -> WatcherCore:
    """All kinds are listed at this version."""
    for kind in Kind:
        core.handle(Received(kind, ListStarted(version), NOW), NOW)
        core.handle(Received(kind, ListDone(version, version), NOW), NOW)
    return core


def beat(core: WatcherCore) -> WatchBeat:
    message = core.handle(Beat(), NOW)[-1]
    assert isinstance(message, Publish) and isinstance(message.message, WatchBeat)
    return message.message


def test_heartbeats_say_from_where_the_next_watcher_goes_on() -> None:
    core = whole(WatcherCore(1))
    assert beat(core).resume == {kind.value: 7 for kind in Kind}
    core.handle(Received(Kind.NODE, ObjectEvents([an_event("n", "9")]), NOW), NOW)
    assert beat(core).resume == {kind.value: 7 for kind in Kind} | {"node": 9}
    core.handle(Received(Kind.NODE, ListStarted("11"), NOW), NOW)
    assert beat(core).resume == {}, "a listing is not complete"
    core.handle(Received(Kind.NODE, ListDone("11", "11"), NOW), NOW)
    assert beat(core).resume["node"] == 11
    core.handle(Received(Kind.NODE, ObjectEvents([an_event("n", "10")]), NOW), NOW)
    assert beat(core).resume == {}, "the server has gone back"


def test_what_waits_is_published_before_a_heartbeat_names_its_version() -> None:
    core = whole(WatcherCore(1, frozenset({"flotilla"})))
    seq = core.seq
    pod = {
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "9"},
        "spec": {"nodeName": "n", "schedulerName": "flotilla"},
    }
    update = WatchEvent("MODIFIED", msgspec.Raw(msgspec.json.encode(pod)))
    assert core.handle(Received(Kind.POD, ObjectEvents([update]), NOW), NOW) == []
    message = beat(core)
    assert (message.seq, message.resume["pod"]) == (seq + 1, 9)


def test_a_watcher_that_resumes_says_after_which_message() -> None:
    last = beat(whole(WatcherCore(1)))
    core = WatcherCore(2, last=last)
    assert core.resumed == dict.fromkeys(Kind, 7)
    first = beat(core)
    assert (first.seq, first.after_epoch, first.after_seq, first.resume) == (0, 1, last.seq, last.resume)
    assert core.handle(RelistRequested(), NOW) == [ListAgain(frozenset(RESOURCES))], "it would hear of no object else"
    old = core.handle(Received(Kind.NODE, ObjectEvents([an_event("n", "6")]), NOW), NOW)
    assert [type(effect) for effect in old] == [StaleState]
    core.handle(Received(Kind.NODE, ObjectEvents([an_event("n", "8")]), NOW), NOW)
    assert (beat(core).seq, beat(core).after_epoch) == (1, 0)


def an_event(name: str, version: str) -> WatchEvent:
    node = {"metadata": {"name": name, "resourceVersion": version}}
    return WatchEvent("MODIFIED", msgspec.Raw(msgspec.json.encode(node)))
