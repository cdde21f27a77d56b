"""Pods on nodes that are read once for all that are like them."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.watcher.alike_pods import MAX_KINDS, MAX_TEXT, AlikePodReader
from services.watcher.bodies import MAX_BODY_BYTES, drop_unread
from services.watcher.core import MAX_CHANGES, WatcherCore
from services.watcher.events import FollowersRead, Publish, Received
from shared.errors import InvalidObject
from shared.kube.listwatch import ListPage, ObjectEvents
from shared.kube.wire import WatchEvent
from shared.messages.watch import AlikePods, Kind, PodChange, PodOnNode, WatchChange, Watched
from shared.model.objects import Pod, decode_pod, encode_json, pod_from_msgpack
from tests.assigned import alike_of, variants
from tests.kube.support import raw_pod

SEED = 7
TOKEN = {"name": "kube-api-access-x7k2p", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def raw(obj: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(obj).encode())


def whole(found: AlikePods) -> list[Pod]:
    """Its pods, with what each has for itself."""
    shared = pod_from_msgpack(found.body)
    return [
        Pod(
            metadata=replace(shared.metadata, name=own.name, uid=own.uid),
            spec=replace(shared.spec, node_name=own.node),
            status=replace(shared.status, start_time=own.started),
        )
        for own in found.pods
    ]


def as_read_in_full(of: Pod) -> Pod:
    read = decode_pod(encode_json(of))
    drop_unread(read)
    unknown = replace(read.metadata, resource_version="")
    return replace(read, metadata=unknown, status=replace(read.status, phase="", nominated_node_name=""))


def test_each_is_read_as_if_there_were_no_other() -> None:
    reader, shared = AlikePodReader(), 0
    pods = [each for number in range(4) for each in variants(f"p{number}", f"n{number % 3}")]
    Random(SEED).shuffle(pods)
    for each in pods:
        found = alike_of(each, reader)
        if found is not None:
            shared += 1
            assert found.namespace == each.namespace
            assert whole(found) == [as_read_in_full(each)], f"seed {SEED}"
    assert shared > len(pods) / 2


def test_pods_that_differ_in_what_counts_share_no_body() -> None:
    reader = AlikePodReader()
    found = [each for of in variants("p", "n") if (each := alike_of(of, reader)) is not None]
    assert len({id(each.body) for each in found}) == len(found)


def test_what_no_follower_reads_makes_no_difference() -> None:
    """Names of volumes and of what mounts them, variables, owners, times, and how its containers fare."""
    one, other = raw_pod("a", node="n"), raw_pod("b", node="m")
    other["metadata"] |= {"ownerReferences": [{"name": "r"}], "annotations": {"a": "b"}, "resourceVersion": "7"}
    for each, token in ((one, "abcde"), (other, "fghij")):
        name = f"kube-api-access-{token}"
        each["spec"]["volumes"] = [TOKEN | {"name": name}]
        each["spec"]["containers"][0] |= {"volumeMounts": [{"name": name}], "env": [{"name": "A", "value": token}]}
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": f"2026-{token}"}]
        state = {"running": {"startedAt": f"2026-{token}"}}
        resources = {"requests": {"cpu": "100m"}}
        statuses = [{"name": "c", "containerID": token, "state": state, "resources": resources}]
        each["status"] = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}
    other["status"] |= {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z", "podIP": "10.0.0.1"}
    reader = AlikePodReader()
    found = [reader.read(raw(each)) for each in (one, other)]
    assert found[0] is not None and found[1] is not None and found[0].body is found[1].body
    assert found[0].pods == [PodOnNode("uid-a", "a", "n")]
    assert found[1].pods == [PodOnNode("uid-b", "b", "m", "2026-01-01T00:00:00Z")]
    other["status"]["containerStatuses"][0]["resources"] = {"requests": {"cpu": "200m"}}
    resized = reader.read(raw(other))
    assert resized is not None and resized.body is not found[0].body


def test_a_pod_without_namespace_and_uid_gets_them_as_ever() -> None:
    obj = raw_pod("p", node="n")
    del obj["metadata"]["namespace"], obj["metadata"]["uid"]
    found, full = AlikePodReader().read(raw(obj)), decode_pod(raw(obj))
    assert found is not None
    assert (found.namespace, found.pods[0].uid) == (full.namespace, full.uid) == ("default", "default/p")


SPECIAL: dict[str, Callable[[dict[str, Any]], object]] = {
    "without a node": lambda of: of["spec"].pop("nodeName"),
    "finished": lambda of: of["status"].update(phase="Failed"),
    "being deleted": lambda of: of["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
    "a victim": lambda of: of["status"].update(conditions=[{"type": "DisruptionTarget", "status": "True"}]),
    "with an escaped condition": lambda of: of["status"].update(conditions=[{"type": "Pod\u00e9", "status": "True"}]),
    "with an individual label": lambda of: of["metadata"].update(labels={"apps.kubernetes.io/pod-index": "1"}),
    "with a claim from a template": lambda of: of["status"].update(resourceClaimStatuses=[{"name": "gpu"}]),
    "with a claim": lambda of: of["spec"].update(volumes=[{"persistentVolumeClaim": {"claimName": "c"}}]),
    "with null for a list": lambda of: of["spec"].update(volumes=None),
    "without a name": lambda of: of["metadata"].pop("name"),
    "too large": lambda of: of["metadata"].update(labels={"large": "x" * MAX_BODY_BYTES}),
    "no object": lambda of: of.update(spec=[]),
}


@pytest.mark.parametrize("change", SPECIAL.values(), ids=SPECIAL)
def test_special_pods_are_read_in_full(change: Callable[[dict[str, Any]], object]) -> None:
    obj, reader = raw_pod("p", node="n"), AlikePodReader()
    assert reader.read(raw(obj)) is not None
    change(obj)
    assert reader.read(raw(obj)) is None


def test_an_error_names_the_pod() -> None:
    for cpu in ("much", "-1"):
        with pytest.raises(InvalidObject, match="p"):
            AlikePodReader().read(raw(raw_pod("p", node="n", cpu=cpu)))


def test_what_is_remembered_is_bounded() -> None:
    reader = AlikePodReader()
    for number in range(MAX_KINDS + 10):
        obj = raw_pod("p", node="n")
        obj["metadata"]["labels"] = {"kind": str(number)}
        reader.read(raw(obj))
    assert len(reader._bodies) == MAX_KINDS


def test_kinds_that_come_again_stay_known() -> None:
    reader = AlikePodReader()
    common = reader.read(raw(raw_pod("p", node="n")))
    assert common is not None
    for number in range(2 * MAX_KINDS):
        obj = raw_pod("p", node="n")
        obj["metadata"]["labels"] = {"kind": str(number)}
        reader.read(raw(obj))
        again = reader.read(raw(raw_pod("q", node="n")))
        assert again is not None
        assert again.body is common.body


def test_what_is_shared_by_too_much_text_is_not_remembered() -> None:
    reader = AlikePodReader()
    large = raw_pod("p", node="n")
    large["metadata"]["labels"] = {"large": "x" * MAX_TEXT}
    one, other = reader.read(raw(large)), reader.read(raw(large))
    assert one is not None and other is not None and one.body is not other.body and bytes(one.body) == bytes(other.body)


# In the stream


def told(core: WatcherCore, *objects: dict[str, Any], changed: bool = False) -> list[list[WatchChange]]:
    said = ObjectEvents([WatchEvent("MODIFIED", raw(each)) for each in objects])
    effects = core.handle(Received(Kind.POD, said if changed else ListPage([raw(each) for each in objects])), 0.0)
    messages = [effect.message for effect in effects if isinstance(effect, Publish)]
    return [message.changes for message in messages if isinstance(message, Watched)]


def an_alike_core() -> WatcherCore:
    core = WatcherCore(1)
    core.handle(FollowersRead(True), 0.0)
    return core


@pytest.mark.parametrize("changed", [False, True], ids=["listed", "changed"])
def test_pods_that_are_alike_and_follow_each_other_are_told_together(changed: bool) -> None:
    large = [raw_pod(name, node="n", cpu="2") for name in "cd"]
    small = [raw_pod(name, node="n") for name in "abe"]
    pending = raw_pod("p")
    (found,) = told(an_alike_core(), *small[:2], *large, pending, small[2], changed=changed)
    names = [[own.name for own in each.pods] if isinstance(each, AlikePods) else each for each in found]
    assert [names[0], names[1], names[3]] == [["a", "b"], ["c", "d"], ["e"]]
    assert isinstance(names[2], PodChange) and names[2].name == "p"


def test_a_message_has_at_most_as_many_pods_as_changes() -> None:
    found = told(an_alike_core(), *(raw_pod(f"p{number}", node="n") for number in range(2 * MAX_CHANGES + 1)))
    counts = [[len(each.pods) for each in changes if isinstance(each, AlikePods)] for changes in found]
    assert counts == [[MAX_CHANGES], [MAX_CHANGES], [1]]


def test_followers_that_do_not_read_them_get_each_by_itself() -> None:
    core = an_alike_core()
    core.handle(FollowersRead(False), 0.0)
    (found,) = told(core, raw_pod("a", node="n"), raw_pod("b", node="n"))
    assert [type(each) for each in found] == [PodChange, PodChange]


def test_a_page_is_told_as_its_reader_reads_it() -> None:
    core, objects = WatcherCore(1), [raw(raw_pod(name, node="n")) for name in "ab"]
    assert [type(each) for each in core.read_page(Kind.POD, objects, 0.0, alike=False)] == [PodChange, PodChange]
    (found,) = core.read_page(Kind.POD, objects, 0.0, alike=True)
    assert isinstance(found, AlikePods) and [own.name for own in found.pods] == ["a", "b"]


def test_an_unreadable_pod_is_reported_and_counted_in_part_as_ever() -> None:
    (found,) = told(an_alike_core(), raw_pod("a", node="n"), raw_pod("b", node="n", cpu="much"))
    alone, broken = found
    assert isinstance(alone, AlikePods) and isinstance(broken, PodChange)
    assert (broken.name, broken.closes) == ("b", True) and "cpu" in broken.problem
