"""What occupies a node is published even if it is partly unreadable or very large."""

from typing import Any

import msgspec
import pytest

from services.watcher.bodies import MAX_BODY_BYTES, load_outline
from services.watcher.core import WatcherCore
from shared.messages.watch import Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.load import PodLoad, load_of
from shared.model.objects import (
    CSINode,
    Node,
    ObjectKind,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    dec_hook,
    object_from_msgpack,
    pod_from,
)
from shared.model.selectors import node_selector_matches
from tests.kube.support import raw_node, raw_pod
from tests.samples import raw_object
from tests.watcher.test_core import NOW, changes, complaints, events, page

Raw = dict[str, Any]
ANTI = "requiredDuringSchedulingIgnoredDuringExecution"
ALONE_IN_ZONE = {ANTI: [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}]}


def told(kind: Kind, obj: Raw) -> Any:
    effects = WatcherCore(1).handle(page(kind, obj), NOW)
    (change,) = changes(effects)
    return change


def told_pod(obj: Raw) -> tuple[PodChange, Pod]:
    change = told(Kind.POD, obj)
    assert isinstance(change, PodChange)
    return change, msgspec.msgpack.decode(change.body, type=Pod, dec_hook=dec_hook)


def told_node(obj: Raw) -> tuple[NodeChange, Node]:
    change = told(Kind.NODE, obj)
    assert isinstance(change, NodeChange)
    return change, msgspec.msgpack.decode(change.body, type=Node, dec_hook=dec_hook)


def on_node(**fields: Any) -> Raw:
    pod = raw_pod("p", node="n", cpu="500m")
    pod["metadata"]["labels"] = {"app": "web"}
    pod["spec"] |= fields
    return pod


def load(obj: Raw) -> PodLoad:
    return load_of(told_pod(obj)[1])


# Values that are unknown, or wrong


@pytest.mark.parametrize(
    "fields",
    [
        {"restartPolicy": "Sometimes"},
        {"tolerations": [{"key": "a", "operator": "Like", "effect": "Never"}]},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "Maybe"}]},
        {"preemptionPolicy": "Sometimes"},
        {"volumes": [{"name": "v", "holographic": {"size": 5}}]},
        {"dnsPolicy": "Psychic"},
    ],
)
def test_unknown_values_are_accepted(fields: Raw) -> None:
    change, pod = told_pod(on_node(**fields))
    assert (change.problem, change.closes) == ("", False)
    assert load_of(pod).requests["cpu"] == 500


@pytest.mark.parametrize(
    "fields",
    [
        {"tolerations": [{"operator": "Equal"}]},
        {"tolerations": "all"},
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"nodeSelector": {"disk": 3}},
        {"affinity": {"nodeAffinity": 3}},
        {"schedulingGates": [{}]},
    ],
)
def test_an_invalid_field_that_no_follower_reads_does_not_matter(fields: Raw) -> None:
    change, pod = told_pod(on_node(**fields))
    assert change.problem
    assert not change.closes
    assert load_of(pod).requests["cpu"] == 500
    assert pod.metadata.labels == {"app": "web"}


@pytest.mark.parametrize(
    "fields",
    [
        {"containers": [{"resources": {"requests": {"cpu": "much", "memory": "1Gi"}}}]},
        {"containers": [{"resources": {"requests": {"cpu": "-1", "memory": "1Gi"}}}]},
        {"overhead": {"cpu": []}},
        {"initContainers": [7]},
        {"containers": "none"},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
        {"resources": {"requests": {"cpu": "what?"}}},
    ],
)
def test_a_pod_with_unknown_requests_closes_its_node(fields: Raw) -> None:
    change, pod = told_pod(on_node(**fields))
    assert change.problem
    assert change.closes
    assert (change.uid, change.node, pod.spec.node_name, pod.metadata.labels) == ("uid-p", "n", "n", {"app": "web"})
    assert min(load_of(pod).requests.values(), default=0) >= 0


def test_invalid_affinity_terms_are_dropped_as_in_kube_scheduler() -> None:
    """All required terms of a kind, and no other."""
    bad = {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}
    good = {"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAntiAffinity": {ANTI: [good, bad]}, "podAffinity": {ANTI: [good]}}
    change, pod = told_pod(on_node(affinity=affinity))
    assert "operator" in change.problem
    assert not change.closes
    assert [term.kind for term in load_of(pod).terms] == ["affinity"]


def test_a_pod_with_an_unreadable_priority_is_not_preempted() -> None:
    assert load(on_node(priority=2**70)).priority == 2**31 - 1


def test_an_unreadable_finished_pod_frees_its_node() -> None:
    finished = on_node(containers=5) | {"status": {"phase": "Succeeded"}}
    (change,) = changes(WatcherCore(1).handle(events(Kind.POD, ("MODIFIED", finished)), NOW))
    assert isinstance(change, PodChange)
    assert change.finished


def test_an_unreadable_pending_pod_is_only_reported() -> None:
    change = told(Kind.POD, raw_pod("p", cpu="much"))
    assert isinstance(change, Unreadable)


def test_readable_parts_are_published_with_one_report() -> None:
    core = WatcherCore(1)
    bad = on_node(containers=5)
    assert len(complaints(core.handle(page(Kind.POD, bad), NOW))) == 1
    assert complaints(core.handle(page(Kind.POD, bad), NOW)) == []
    core.validate()


# Nodes


@pytest.mark.parametrize(
    "taint", [{"key": "a", "effect": "Never"}, {"key": "", "effect": "NoSchedule"}, {"key": "a", "effect": ""}]
)
def test_a_node_with_an_unknown_taint_effect_stays_open(taint: Raw) -> None:
    node = raw_node("n")
    node["spec"] = {"taints": [taint]}
    change, read = told_node(node)
    assert change.problem == ""
    assert len(read.spec.taints) == 1


@pytest.mark.parametrize(
    ("part", "value", "closed"),
    [
        ("allocatable", {"cpu": "much", "memory": "1Gi"}, True),
        ("allocatable", 5, True),
        ("declaredFeatures", [5], True),
        ("images", [{"names": 5}], False),
        ("conditions", "fine", False),
    ],
)
def test_a_partly_readable_node_is_closed_if_decisions_depend_on_the_loss(part: str, value: Any, closed: bool) -> None:
    node = raw_node("n")
    node["status"][part] = value
    change, read = told_node(node)
    assert bool(change.problem) == closed
    assert read.name == "n"


# Large objects


def test_a_large_bound_pod_is_reduced_to_what_it_occupies() -> None:
    pod = on_node(
        containers=[
            {
                "name": f"c{i}",
                "image": "registry.example.com/" + "i" * 2000,
                "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}},
                "ports": [{"containerPort": 80, "hostPort": 1000 + i}],
            }
            for i in range(400)
        ],
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w"}],
        affinity={"podAntiAffinity": {ANTI: [{"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}]}},
        priority=7,
    )
    assert len(msgspec.json.encode(pod)) > MAX_BODY_BYTES
    change, read = told_pod(pod)
    assert (change.problem, change.closes) == ("", False)
    assert len(change.body) < 100_000
    assert load_of(read) == load_of(pod_from(pod))


def test_a_reduced_pod_occupies_what_the_pod_does() -> None:
    pod = pod_from(
        on_node(
            initContainers=[
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "big", "resources": {"requests": {"cpu": "8", "memory": "1Gi"}}},
            ],
            overhead={"cpu": "250m"},
            resources={"requests": {"memory": "9Gi"}},
        )
        | {"status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    )
    assert load_of(load_outline(pod)).requests == load_of(pod).requests


def test_a_pod_too_large_even_when_reduced_closes_its_node() -> None:
    pod = on_node()
    pod["metadata"]["labels"] = {"app": "web"} | {f"l{i}": "x" * 60 for i in range(12_000)}
    pod["spec"]["affinity"] = {"podAntiAffinity": ALONE_IN_ZONE}
    change, read = told_pod(pod)
    assert change.closes
    assert read.metadata.labels["app"] == "web"
    assert load_of(read).terms, "it still keeps others away"
    assert "more than" in change.problem
    assert load_of(read).requests["cpu"] == 500
    assert len(complaints(WatcherCore(1).handle(page(Kind.POD, pod), NOW))) == 1


def test_a_node_with_many_images_keeps_the_largest() -> None:
    node = raw_node("n")
    node["status"]["images"] = [{"names": ["i" * 1000 + str(i)], "sizeBytes": i} for i in range(1000)]
    change, read = told_node(node)
    assert change.problem == ""
    kept = [image.size_bytes for image in read.status.images]
    assert kept == list(range(1000 - len(kept), 1000))
    assert len(kept) > 400
    assert read.status.allocatable


def test_a_node_that_is_too_large_is_closed() -> None:
    node = raw_node("n")
    node["metadata"]["labels"] = {"zone": "z1"} | {f"l{i}": "x" * 60 for i in range(12_000)}
    change, read = told_node(node)
    assert "more than" in change.problem
    assert read.name == "n"
    assert read.metadata.labels["zone"] == "z1", "its pods count in their zone"


# What volumes are counted by


def test_a_partly_readable_volume_is_reachable_from_no_node() -> None:
    volume = raw_object(ObjectKind.PERSISTENT_VOLUME, "v")
    volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["operator"] = "Near"
    change = told(Kind.PERSISTENT_VOLUME, volume)
    assert isinstance(change, ObjectChange)
    read = object_from_msgpack(change.body)
    assert isinstance(read, PersistentVolume)
    assert read.spec.csi is not None
    assert read.spec.node_affinity is not None
    assert read.spec.node_affinity.required is not None
    assert not node_selector_matches(read.spec.node_affinity.required, {"zone": "a"}, "n")


def test_a_partly_readable_bound_claim_counts() -> None:
    claim = raw_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, "c", namespace="default")
    claim["spec"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    change = told(Kind.PERSISTENT_VOLUME_CLAIM, claim)
    assert isinstance(change, ObjectChange)
    read = object_from_msgpack(change.body)
    assert isinstance(read, PersistentVolumeClaim)
    assert read.spec.volume_name == "v"
    claim["spec"]["volumeName"] = ""
    assert isinstance(told(Kind.PERSISTENT_VOLUME_CLAIM, claim), Unreadable), "it could match any volume"


def test_unreadable_volume_limits_admit_no_further_volume() -> None:
    limits = raw_object(ObjectKind.CSI_NODE, "n")
    limits["spec"]["drivers"][0]["allocatable"] = {"count": "many"}
    change = told(Kind.CSI_NODE, limits)
    assert isinstance(change, ObjectChange)
    read = object_from_msgpack(change.body)
    assert isinstance(read, CSINode)
    assert [driver.allocatable.count for driver in read.spec.drivers if driver.allocatable is not None] == [0, 0]
