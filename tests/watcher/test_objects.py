"""WatcherCore: objects of other kinds in the stream, and kinds that the server does not show us."""

import msgspec
import pytest

from services.watcher.bodies import MAX_BODY_BYTES
from services.watcher.core import WatcherCore
from services.watcher.events import Effect, KindMissing, KindUnavailable, ListAgain, Received, RelistRequested
from services.watcher.kind_state import REFUSAL_TIMEOUT
from services.watcher.resources import RESOURCES
from shared.kube.listwatch import ListDone, ListPage, ListStarted, ObjectEvents, WatchStarted
from shared.kube.wire import WatchEvent
from shared.messages.watch import (
    OBJECT_KINDS,
    Kind,
    ListingBegins,
    ListingEnds,
    ObjectChange,
    PodChange,
    Unreadable,
    WatchChange,
)
from shared.model.clusterobjects import object_from_msgpack
from shared.model.devices import ResourceClaim
from shared.model.objects import ObjectKind, encode_msgpack, is_namespaced, key_of
from tests.kube.support import raw_pod
from tests.samples import Raw, an_object, raw_object
from tests.watcher.test_core import changes, complaints, events, page

CLASSES = Kind.STORAGE_CLASS
EMPTY: list[WatchChange] = [ListingBegins(CLASSES), ListingEnds(CLASSES)]


def stored(kind: ObjectKind, name: str = "x") -> Raw:
    """As the server shows it."""
    return raw_object(kind, name, namespace="default") if is_namespaced(kind) else raw_object(kind, name)


def told(kind: ObjectKind, name: str = "x") -> ObjectChange:
    obj = an_object(kind, name)
    return ObjectChange(kind, key_of(obj), body=msgspec.Raw(encode_msgpack(obj)))


@pytest.mark.parametrize(("kind", "object_kind"), OBJECT_KINDS.items())
def test_an_object_change_has_its_key_and_body(kind: Kind, object_kind: ObjectKind) -> None:
    core = WatcherCore(1)
    assert changes(core.handle(page(kind, stored(object_kind)), 1.0)) == [told(object_kind)]
    assert changes(core.handle(events(kind, ("MODIFIED", stored(object_kind, "y"))), 1.0)) == [told(object_kind, "y")]
    (gone,) = changes(core.handle(events(kind, ("DELETED", stored(object_kind))), 1.0))
    assert gone == ObjectChange(object_kind, key_of(an_object(object_kind)), gone=True)


@pytest.mark.parametrize(("kind", "object_kind"), OBJECT_KINDS.items())
def test_an_unreadable_object_is_reported_once(kind: Kind, object_kind: ObjectKind) -> None:
    core = WatcherCore(1)
    bad = stored(object_kind)
    bad["metadata"]["annotations"] = "none"
    effects = core.handle(events(kind, ("ADDED", bad)), 1.0)
    (change,) = changes(effects)
    if kind is Kind.CSI_NODE:
        assert isinstance(change, ObjectChange), "it counts, without room for any volume"
    else:
        assert isinstance(change, Unreadable)
        assert (change.kind, change.key) == (kind, key_of(an_object(object_kind)))
    assert len(complaints(effects)) == 1
    assert "metadata.annotations" in complaints(effects)[0].change.problem
    assert complaints(core.handle(events(kind, ("MODIFIED", bad)), 2.0)) == []
    core.validate()


@pytest.mark.parametrize("large", ["config", "requests"])
def test_the_devices_of_a_claim_that_is_too_large_once_it_is_allocated_are_in_use(large: str) -> None:
    """Its parameters for drivers are then in it twice. If it were unreadable, another claim might get its devices."""
    raw = stored(ObjectKind.RESOURCE_CLAIM)
    config = {"opaque": {"driver": "d", "parameters": {"text": "x" * (MAX_BODY_BYTES // 32)}}}
    raw["spec"]["devices"]["config"] = [config] * 20
    if large == "requests":
        selector = {"cel": {"expression": "true" + " " * MAX_BODY_BYTES}}
        raw["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [selector]
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}]
    configs = [{"source": "FromClaim", **config}] * 20
    raw["status"] = {"allocation": {"devices": {"results": results, "config": configs}}}
    core = WatcherCore(1)
    effects = core.handle(events(Kind.RESOURCE_CLAIM, ("MODIFIED", raw)), 1.0)
    (change,) = changes(effects)
    assert isinstance(change, ObjectChange)
    assert change.body is not None
    assert len(change.body) <= MAX_BODY_BYTES
    claim = object_from_msgpack(change.body)
    assert isinstance(claim, ResourceClaim)
    assert claim.status.allocation is not None
    assert [each.device for each in claim.status.allocation.devices.results] == ["gpu-0"]
    assert complaints(effects) == []

    del raw["status"]
    raw["spec"]["devices"]["config"] = [config] * 40
    (change,) = changes(core.handle(events(Kind.RESOURCE_CLAIM, ("MODIFIED", raw)), 2.0))
    assert isinstance(change, Unreadable), "nothing can be decided for it"


def test_a_pod_change_has_the_nominated_node() -> None:
    core = WatcherCore(1)
    raw = raw_pod("p")
    raw["status"]["nominatedNodeName"] = "n"
    (change,) = changes(core.handle(events(Kind.POD, ("MODIFIED", raw)), 1.0))
    assert isinstance(change, PodChange)
    assert change.nominated == "n"


def test_only_pods_and_nodes_are_required() -> None:
    assert set(RESOURCES) == set(Kind)
    assert [kind for kind, resource in RESOURCES.items() if resource.required] == [Kind.POD, Kind.NODE]


# Kinds that are missing


def denied(core: WatcherCore, now: float) -> list[Effect]:
    return core.handle(KindUnavailable(CLASSES, "404 not found"), now)


def listed(core: WatcherCore, now: float, *raw: Raw) -> list[WatchChange]:
    heard = (
        ListStarted(),
        ListPage([msgspec.Raw(msgspec.json.encode(each)) for each in raw]),
        ListDone(),
        WatchStarted(),
    )
    return [change for what in heard for change in changes(core.handle(Received(CLASSES, what), now))]


def test_a_kind_that_was_never_listed_is_missing_at_once() -> None:
    core = WatcherCore(1)
    core.handle(Received(CLASSES, ListStarted()), 0.0)
    effects = denied(core, 0.1)
    assert changes(effects) == EMPTY
    assert effects[-1] == KindMissing(CLASSES, "404 not found")
    assert core.is_missing(CLASSES)


def test_a_missing_kind_is_published_again_only_on_request() -> None:
    core = WatcherCore(1)
    denied(core, 0.0)
    assert core.handle(Received(CLASSES, ListStarted()), 60.0) == []
    assert denied(core, 60.1) == []
    effects = core.handle(RelistRequested(), 61.0)
    assert effects[0] == ListAgain(frozenset(RESOURCES))
    assert changes(effects) == EMPTY


def test_a_missing_kind_is_listed_once_the_server_serves_it() -> None:
    core = WatcherCore(1)
    denied(core, 0.0)
    expected = [ListingBegins(CLASSES), told(ObjectKind.STORAGE_CLASS), ListingEnds(CLASSES)]
    assert listed(core, 60.0, stored(ObjectKind.STORAGE_CLASS)) == expected
    assert not core.is_missing(CLASSES)
    assert changes(core.handle(RelistRequested(), 61.0)) == []


def test_an_empty_listing_ends_the_absence() -> None:
    core = WatcherCore(1)
    denied(core, 0.0)
    core.handle(Received(CLASSES, ListStarted()), 60.0)
    assert changes(core.handle(Received(CLASSES, ListDone()), 60.0)) == EMPTY
    assert not core.is_missing(CLASSES)


def test_a_short_refusal_keeps_a_listed_kind() -> None:
    core = WatcherCore(1)
    listed(core, 0.0, stored(ObjectKind.STORAGE_CLASS))
    assert denied(core, 10.0) == denied(core, 10.0 + REFUSAL_TIMEOUT - 0.1) == []
    assert changes(denied(core, 10.0 + REFUSAL_TIMEOUT)) == EMPTY


def test_an_accepted_watch_resets_the_refusal_timeout() -> None:
    core = WatcherCore(1)
    listed(core, 0.0, stored(ObjectKind.STORAGE_CLASS))
    denied(core, 10.0)
    assert core.handle(Received(CLASSES, WatchStarted()), 20.0) == []
    core.handle(Received(CLASSES, ObjectEvents([WatchEvent("ADDED", msgspec.Raw(b"{}"))])), 21.0)
    assert denied(core, 11.0 + REFUSAL_TIMEOUT) == []
    assert not core.is_missing(CLASSES)
