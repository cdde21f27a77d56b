"""NodePreferAvoidPods."""

import json

import msgspec
import pytest

from shared.framework.loading import load_frameworks
from shared.model.objects import Node, Pod, decode_node, decode_pod
from shared.model.wellknown import PREFER_AVOID_PODS
from shared.plugins.single_node import NodePreferAvoidPods
from testing.builders import node
from tests.plugins.cluster import framework, judge, scores, table_of


def saying(name: str, annotation: object) -> Node:
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    metadata = {"name": name, "annotations": {PREFER_AVOID_PODS: text}}
    return decode_node(msgspec.json.encode({"metadata": metadata, "status": {"allocatable": {"pods": "110"}}}))


def avoiding(name: str, *controllers: tuple[str, str]) -> Node:
    said = [{"podSignature": {"podController": {"kind": kind, "uid": uid, "name": "x"}}} for kind, uid in controllers]
    return saying(name, {"preferAvoidPods": said})


def owned(*owners: tuple[str, str, bool]) -> Pod:
    references = [{"kind": kind, "name": "x", "uid": uid, "controller": is_its} for kind, uid, is_its in owners]
    metadata = {"name": "p", "ownerReferences": references}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}))


NODES = (
    node("silent"),
    avoiding("avoids-rs", ("ReplicaSet", "1")),
    avoiding("avoids-rc", ("ReplicationController", "1")),
    avoiding("avoids-both", ("ReplicaSet", "2"), ("ReplicationController", "1"), ("ReplicaSet", "1")),
)


@pytest.mark.parametrize(
    ("arriving", "avoided_by"),
    [
        (owned(), []),
        (owned(("ReplicaSet", "1", True)), ["avoids-rs", "avoids-both"]),
        (owned(("ReplicationController", "1", True)), ["avoids-rc", "avoids-both"]),
        (owned(("ReplicaSet", "2", True)), ["avoids-both"]),
        (owned(("ReplicaSet", "3", True)), []),
        (owned(("ReplicaSet", "1", False)), []),
        (owned(("ReplicaSet", "3", False), ("ReplicaSet", "1", True)), ["avoids-rs", "avoids-both"]),
        (owned(("StatefulSet", "1", True)), []),
    ],
)
def test_a_node_that_names_the_controller_scores_nothing(arriving: Pod, avoided_by: list[str]) -> None:
    expected = {"silent": 100, "avoids-rs": 100, "avoids-rc": 100, "avoids-both": 100} | dict.fromkeys(avoided_by, 0)
    assert scores(NodePreferAvoidPods(), arriving, table_of(*NODES)) == expected


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "{",
        "[]",
        {},
        {"preferAvoidPods": None},
        {"preferAvoidPods": [{}]},
        {"preferAvoidPods": [{"podSignature": {"podController": None}}]},
        {"preferAvoidPods": [{"podSignature": {"podController": {"kind": "ReplicaSet", "uid": 1}}}]},
    ],
)
def test_an_annotation_that_says_nothing_of_use_avoids_no_pod(annotation: object) -> None:
    table = table_of(saying("n", annotation))
    assert scores(NodePreferAvoidPods(), owned(("ReplicaSet", "1", True)), table) == {"n": 100}


def test_a_node_that_thinks_otherwise_now_is_looked_at_again() -> None:
    table, arriving = table_of(avoiding("n", ("ReplicaSet", "1"))), owned(("ReplicaSet", "1", True))
    profile = framework("NodePreferAvoidPods")
    assert judge(profile, arriving, table).scores == {"n": {"NodePreferAvoidPods": 0}}
    table.upsert_node(avoiding("n", ("ReplicaSet", "2")))
    assert judge(profile, arriving, table).scores == {"n": {"NodePreferAvoidPods": 100}}


def test_signatures_tell_controllers_apart() -> None:
    pods = [owned(), owned(("ReplicaSet", "1", True)), owned(("ReplicaSet", "2", True)), owned(("Job", "1", True))]
    assert len({NodePreferAvoidPods().signature(each) for each in pods}) == 3


def test_no_profile_has_it_unless_it_is_named() -> None:
    (default,) = load_frameworks(None).values()
    assert "NodePreferAvoidPods" not in [plugin.name for plugin in default.score]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"enabled": [{"name": "NodePreferAvoidPods", "weight": 10000}]}}}],
    }
    (named,) = load_frameworks(config).values()
    weights = {plugin.name: weight for plugin, weight in zip(named.score, named.weights, strict=True)}
    assert weights["NodePreferAvoidPods"] == 10000
