"""The three kinds of patches."""

from typing import Any

import pytest

from testing.simulator.errors import ApiError
from testing.simulator.patches import json_patch, merge_patch, strategic_patch
from tests.simulator.support import JSON_PATCH, NODES, Desk, node

A = {"name": "a", "image": "1"}
B = {"name": "b", "image": "1"}
B2 = {"name": "b", "image": "2"}


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        (
            {"containers": [A, B]},
            {"containers": [{"name": "b", "image": "2"}]},
            {"containers": [A, {**B, "image": "2"}]},
        ),
        ({"containers": [A]}, {"containers": [B]}, {"containers": [A, B]}),
        ({"containers": [A, B]}, {"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": [B]}),
        ({"containers": [A]}, {"containers": [{"$patch": "replace"}, B]}, {"containers": [B]}),
        ({"a": {"b": 1}}, {"a": {"c": 2, "$patch": "replace"}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}, "d": 1}, {"a": {"$patch": "delete"}}, {"a": {}, "d": 1}),
        ({"a": {"b": 1}}, {"a": None}, {}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        (
            {"conditions": [{"type": "Ready", "status": "False"}]},
            {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New"}]},
            {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New"}]},
        ),
        (
            {"containers": [A, B]},
            {"containers": [], "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            {"containers": [B, A]},
        ),
        (
            {"spec": {"ports": [{"port": 1}]}},
            {"spec": {"ports": [{"port": 2}]}},
            {"spec": {"ports": [{"port": 1}, {"port": 2}]}},
        ),
        (
            {"ownerReferences": [{"uid": "1", "name": "x"}]},
            {"ownerReferences": [{"uid": "2"}]},
            {"ownerReferences": [{"uid": "1", "name": "x"}, {"uid": "2"}]},
        ),
        (
            {"strategy": {"type": "R", "x": 1}},
            {"strategy": {"type": "S", "$retainKeys": ["type"]}},
            {"strategy": {"type": "S"}},
        ),
        (
            {},
            {"containers": [{"name": "a", "x": None, "env": [{"name": "e"}]}]},
            {"containers": [{"name": "a", "env": [{"name": "e"}]}]},
        ),
    ],
)
def test_strategic_merge_patch(target: Any, patch: Any, merged: Any) -> None:
    assert strategic_patch(target, patch) == merged


@pytest.mark.parametrize("patch", [[], {"containers": [{"image": "2"}]}, {"containers": ["a"]}, {"$patch": "explode"}])
def test_an_invalid_strategic_merge_patch_is_rejected(patch: Any) -> None:
    with pytest.raises(ApiError) as refused:
        strategic_patch({"containers": [dict(A)]}, patch)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("operations", "document"),
    [
        ([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "replace", "path": "/a", "value": {}}], {"a": {}}),
        ([{"op": "move", "from": "/a", "path": "/b"}], {"b": [1, 2]}),
        ([{"op": "copy", "from": "/a/1", "path": "/b"}], {"a": [1, 2], "b": 2}),
        ([{"op": "test", "path": "/a/0", "value": 1}], {"a": [1, 2]}),
        ([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"a": [1, 2], "x/y~z": 1}),
    ],
)
def test_json_patch(operations: Any, document: Any) -> None:
    assert json_patch({"a": [1, 2]}, operations) == document


@pytest.mark.parametrize(
    "operations",
    [
        {},
        ["add"],
        [{"op": "grow", "path": "/a"}],
        [{"op": "add", "path": "a"}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "remove", "path": "/a/7"}],
        [{"op": "replace", "path": "/a/-", "value": 1}],
        [{"op": "test", "path": "/a/0", "value": 2}],
        [{"op": "move", "from": "/a", "path": "/a/0"}],
        [{"op": "add", "path": "/a/0/b", "value": 1}],
    ],
)
def test_an_invalid_json_patch_is_rejected(operations: Any) -> None:
    with pytest.raises(ApiError):
        json_patch({"a": [1, 2]}, operations)


def test_a_patch_that_fails_in_the_middle_changes_nothing() -> None:
    desk = Desk()
    created = desk.post(NODES, node("n"))
    operations = [{"op": "add", "path": "/spec/unschedulable", "value": True}, {"op": "remove", "path": "/spec/none"}]
    assert desk.refused("PATCH", f"{NODES}/n", operations, JSON_PATCH)["code"] == 422
    assert desk.get(f"{NODES}/n") == created
    desk.patch(f"{NODES}/n", operations[:1], JSON_PATCH)
    assert desk.get(f"{NODES}/n")["spec"] == {"unschedulable": True}
