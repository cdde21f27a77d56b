"""Objects are created, read, changed and deleted by the rules of a real server."""

from random import Random
from typing import Any

from tests.simulator.support import APPLY, MERGE, NODES, PODS, Desk, node, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def test_a_new_object_gets_server_side_metadata() -> None:
    desk = Desk()
    created = desk.post(PODS, pod("p"))
    metadata = created["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert desk.get(f"{PODS}/p") == created


def test_names_are_unique() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    refusal = desk.refused("POST", PODS, pod("p"))
    assert (refusal["code"], refusal["reason"]) == (409, "AlreadyExists")
    assert refusal["message"] == 'pods "p" already exists'
    assert refusal["details"] == {"name": "p", "kind": "pods"}


def test_names_are_generated() -> None:
    desk = Desk()
    nameless = pod("")
    nameless["metadata"] = {"generateName": "web-"}
    names = {desk.post(PODS, nameless)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == len("web-") + 5 for name in names)


def nameless_config_map() -> dict[str, Any]:
    return {"metadata": {"generateName": "web-"}}


class Drawn(Random):
    """Draws these suffixes, one after the other."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__(1)
        self.suffixes = list(suffixes)

    def choices(self, *_: Any, **__: Any) -> list[str]:  # type: ignore[override]
        return list(self.suffixes.pop(0))


def test_a_generated_name_in_use_is_retried() -> None:
    desk = Desk()
    desk.cluster._random = Drawn("aaaaa", *["aaaaa"] * 7, "bbbbb")
    assert desk.post(CONFIG_MAPS, nameless_config_map())["metadata"]["name"] == "web-aaaaa"
    assert desk.post(CONFIG_MAPS, nameless_config_map())["metadata"]["name"] == "web-bbbbb"


def test_generating_a_name_gives_up_after_eight_attempts() -> None:
    desk = Desk()
    desk.cluster._random = drawn = Drawn("aaaaa", *["aaaaa"] * 8, "bbbbb")
    desk.post(CONFIG_MAPS, nameless_config_map())
    refusal = desk.refused("POST", CONFIG_MAPS, nameless_config_map())
    assert (refusal["code"], refusal["reason"], refusal["details"]["name"]) == (409, "AlreadyExists", "web-aaaaa")
    assert drawn.suffixes == ["bbbbb"]


def test_an_object_without_a_name_is_rejected() -> None:
    assert Desk().refused("POST", CONFIG_MAPS, {"metadata": {}})["code"] == 422


def test_a_namespace_must_exist() -> None:
    desk = Desk()
    refusal = desk.refused("POST", "/api/v1/namespaces/nowhere/pods", pod("p"))
    assert (refusal["code"], refusal["message"]) == (404, 'namespaces "nowhere" not found')
    desk.post("/api/v1/namespaces", {"metadata": {"name": "nowhere"}})
    assert desk.post("/api/v1/namespaces/nowhere/pods", pod("p"))["metadata"]["namespace"] == "nowhere"


def test_the_initial_namespaces_exist() -> None:
    names = [item["metadata"]["name"] for item in Desk().get("/api/v1/namespaces")["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


def test_deleting_a_namespace_deletes_its_objects() -> None:
    desk = Desk()
    desk.post("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    desk.post("/api/v1/namespaces/ns/pods", pod("p"))
    desk.delete("/api/v1/namespaces/ns")
    assert desk.get("/api/v1/pods")["items"] == []


def test_a_missing_object_is_not_found() -> None:
    refusal = Desk().refused("GET", f"{PODS}/p")
    assert (refusal["code"], refusal["reason"], refusal["message"]) == (404, "NotFound", 'pods "p" not found')


def test_unknown_paths_and_methods_are_rejected() -> None:
    desk = Desk()
    assert desk.refused("GET", "/api/v1/namespaces/default/spaceships")["code"] == 404
    assert desk.refused("GET", "/api/v1/namespaces/default/nodes")["code"] == 404
    assert desk.refused("GET", "/api/v1/pods/p")["code"] == 404
    assert desk.refused("POST", "/api/v1/pods", pod("p"))["code"] == 405
    assert desk.refused("PUT", PODS, pod("p"))["code"] == 405


def test_an_update_from_an_old_version_is_a_conflict() -> None:
    desk = Desk()
    old = desk.post(NODES, node("n"))
    desk.put(f"{NODES}/n", {**old, "spec": {"unschedulable": True}})
    refusal = desk.refused("PUT", f"{NODES}/n", old)
    assert (refusal["code"], refusal["reason"]) == (409, "Conflict")
    assert refusal["message"] == f'Operation cannot be fulfilled on nodes "n": {MODIFIED}'


def test_a_patch_that_names_an_old_version_is_a_conflict() -> None:
    desk = Desk()
    old = desk.post(NODES, node("n"))["metadata"]["resourceVersion"]
    desk.patch(f"{NODES}/n", {"metadata": {"labels": {"a": "b"}}})
    patch = {"metadata": {"resourceVersion": old, "labels": {"a": "c"}}}
    assert desk.refused("PATCH", f"{NODES}/n", patch, MERGE)["code"] == 409


def test_an_update_without_a_version_overwrites() -> None:
    desk = Desk()
    desk.post(NODES, node("n"))
    assert desk.put(f"{NODES}/n", node("n", unschedulable=True))["spec"]["unschedulable"] is True


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    desk = Desk()
    created = desk.post(NODES, node("n"))
    assert desk.put(f"{NODES}/n", created) == created
    assert desk.patch(f"{NODES}/n", {"metadata": {"name": "n"}}) == created


def test_server_side_metadata_is_immutable() -> None:
    desk = Desk()
    created = desk.post(PODS, pod("p"))
    metadata = {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 77, "deletionTimestamp": None}
    patched = desk.patch(f"{PODS}/p", {"metadata": {**metadata, "labels": {"a": "b"}, "managedFields": [{}]}})
    for key in ("creationTimestamp", "generation", "uid"):
        assert patched["metadata"][key] == created["metadata"][key]
    assert "managedFields" not in patched["metadata"]


def test_an_update_with_another_uid_is_rejected() -> None:
    desk = Desk()
    created = desk.post(NODES, node("n"))
    other = {**created, "metadata": {**created["metadata"], "uid": "other"}}
    assert desk.refused("PUT", f"{NODES}/n", other)["details"]["causes"][0]["field"] == "metadata.uid"
    refusal = desk.refused("DELETE", f"{NODES}/n", {"preconditions": {"uid": "other"}})
    assert (refusal["code"], "Precondition failed" in refusal["message"]) == (409, True)
    desk.delete(f"{NODES}/n", {"preconditions": {"uid": created["metadata"]["uid"]}})


def test_the_status_is_a_subresource() -> None:
    desk = Desk()
    created = desk.post(PODS, pod("p"))
    patched = desk.patch(f"{PODS}/p", {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}})
    assert patched["status"]["phase"] == "Pending"
    patched = desk.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}})
    assert patched["status"]["phase"] == "Running"
    assert "nodeName" not in patched["spec"]
    assert patched["metadata"]["generation"] == created["metadata"]["generation"]


def test_a_node_keeps_the_status_given_at_creation() -> None:
    status = Desk().post(NODES, node("n"))["status"]
    assert status["allocatable"] == status["capacity"]
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Ready", "True")]


def test_the_generation_counts_changes_of_the_spec() -> None:
    desk = Desk()
    url = "/apis/apps/v1/namespaces/default/deployments"
    desk.post(url, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
    assert desk.patch(f"{url}/d", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert desk.patch(f"{url}/d", {"spec": {"replicas": 2}})["metadata"]["generation"] == 2


def test_scaling() -> None:
    desk = Desk()
    url = "/apis/apps/v1/namespaces/default/deployments"
    desk.post(url, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
    scale = desk.get(f"{url}/d/scale")
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
    assert desk.patch(f"{url}/d/scale", {"spec": {"replicas": 5}}, MERGE)["spec"] == {"replicas": 5}
    assert desk.get(f"{url}/d")["spec"]["replicas"] == 5
    assert desk.refused("PUT", f"{url}/d/scale", {"spec": {"replicas": -1}})["code"] == 422


def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    desk = Desk()
    desk.post(CONFIG_MAPS, {"metadata": {"name": "c", "finalizers": ["a/b", "c/d"]}})
    assert desk.delete(f"{CONFIG_MAPS}/c")["metadata"]["deletionTimestamp"]
    desk.patch(f"{CONFIG_MAPS}/c", {"metadata": {"finalizers": ["a/b"]}}, MERGE)
    assert desk.get(f"{CONFIG_MAPS}/c")["metadata"]["finalizers"] == ["a/b"]
    desk.patch(f"{CONFIG_MAPS}/c", {"metadata": {"finalizers": None}}, MERGE)
    assert desk.refused("GET", f"{CONFIG_MAPS}/c")["code"] == 404


def test_the_response_to_a_deletion() -> None:
    desk = Desk()
    desk.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
    answer = desk.delete(f"{CONFIG_MAPS}/c", {"propagationPolicy": "Background"})
    assert (answer["kind"], answer["status"], answer["details"]["name"]) == ("Status", "Success", "c")
    desk.post(PODS, pod("p"))
    assert desk.delete(f"{PODS}/p")["kind"] == "Pod"


def test_a_collection_is_deleted_by_selector() -> None:
    desk = Desk()
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        desk.post(PODS, pod(name, labels={"k": label}))
    deleted = desk.delete(f"{PODS}?labelSelector=k%3Dx")
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in desk.get(PODS)["items"]] == ["b"]


def test_a_dry_run_changes_nothing() -> None:
    desk = Desk()
    assert desk.post(f"{PODS}?dryRun=All", pod("p"))["spec"]["schedulerName"] == "default-scheduler"
    assert desk.get(PODS)["items"] == []
    created = desk.post(NODES, node("n"))
    desk.patch(f"{NODES}/n?dryRun=All", {"spec": {"unschedulable": True}})
    desk.delete(f"{NODES}/n?dryRun=All")
    assert desk.get(f"{NODES}/n") == created
    assert desk.refused("POST", f"{PODS}?dryRun=Some", pod("p"))["code"] == 400


def test_apply_creates_or_merges() -> None:
    desk = Desk()
    url = f"{CONFIG_MAPS}/c?fieldManager=me&force=true"
    assert desk.patch(url, b"data:\n  a: '1'\n", APPLY)["data"] == {"a": "1"}
    assert desk.patch(url, b"data:\n  b: '2'\n", APPLY)["data"] == {"a": "1", "b": "2"}


def test_an_unknown_patch_type_is_rejected() -> None:
    desk = Desk()
    desk.post(NODES, node("n"))
    refusal = desk.refused("PATCH", f"{NODES}/n", {}, "text/plain")
    assert (refusal["code"], refusal["reason"]) == (415, "UnsupportedMediaType")


def test_malformed_bodies_are_rejected_without_effect() -> None:
    desk = Desk()
    bodies: list[object] = [
        b"{",
        b"[]",
        b"\xff",
        b"",
        {"metadata": []},
        {"metadata": {"name": 3}},
        {"metadata": {"name": "p", "labels": {"a": 1}}},
        {"kind": "Node", "metadata": {"name": "p"}},
        {"apiVersion": "v2", "metadata": {"name": "p"}},
        {"metadata": {"name": "p", "namespace": "other"}},
        {"metadata": {"name": "p", "resourceVersion": "7"}},
        {"metadata": {"name": "p"}, "spec": []},
        {"metadata": {"name": "p"}, "spec": {"containers": "many"}},
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": "all"}]}},
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "ports": 80}]}},
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": "all"}},
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": ["c"], "image": {}}]}},
    ]
    for body in bodies:
        assert desk.refused("POST", PODS, body)["code"] in (400, 422), body
    assert desk.get(PODS)["items"] == []


def test_system_namespaces_cannot_be_deleted() -> None:
    refusal = Desk().refused("DELETE", "/api/v1/namespaces/default")
    assert (refusal["code"], refusal["message"]) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )
