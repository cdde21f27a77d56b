"""Types that a CustomResourceDefinition declares are served like any other."""

from typing import Any

from tests.simulator.support import MERGE, Desk, names_of

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BOATS = "/apis/example.com/v1/namespaces/default/boats"


def definition(*versions: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "boats.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "boats", "kind": "Boat", "shortNames": ["bo"]},
            "scope": "Namespaced",
            "versions": [
                {"name": name, "served": True, "storage": name == "v1", "subresources": {"status": {}}}
                for name in versions
            ],
        },
    }


def test_a_declared_type_is_served() -> None:
    desk = Desk()
    assert desk.refused("GET", BOATS)["code"] == 404
    conditions = desk.post(DEFINITIONS, definition("v1"))["status"]["conditions"]
    assert ("Established", "True") in [(condition["type"], condition["status"]) for condition in conditions]
    created = desk.post(
        BOATS, {"kind": "Boat", "apiVersion": "example.com/v1", "metadata": {"name": "b"}, "spec": {"x": 1}}
    )
    assert created["metadata"]["generation"] == 1
    assert desk.patch(f"{BOATS}/b", {"spec": {"x": 2}}, MERGE)["metadata"]["generation"] == 2
    assert desk.patch(f"{BOATS}/b/status", {"status": {"y": 3}}, MERGE)["status"] == {"y": 3}
    assert desk.get(BOATS)["kind"] == "BoatList"
    assert desk.refused("PATCH", f"{BOATS}/b", {}, "application/strategic-merge-patch+json")["code"] == 415
    shown = [resource["name"] for resource in desk.get("/apis/example.com/v1")["resources"]]
    assert shown == ["boats", "boats/status"]


def test_versions_of_a_custom_resource_share_objects() -> None:
    desk = Desk()
    desk.post(DEFINITIONS, definition("v1", "v2"))
    desk.post(BOATS, {"metadata": {"name": "b"}})
    later = BOATS.replace("v1", "v2")
    assert desk.get(f"{later}/b")["apiVersion"] == "example.com/v2"
    assert desk.patch(f"{later}/b", {"spec": {}}, MERGE)["apiVersion"] == "example.com/v2"
    assert desk.get(BOATS)["items"][0]["apiVersion"] == "example.com/v1"


def test_deleting_a_definition_deletes_its_objects() -> None:
    desk = Desk()
    desk.post(DEFINITIONS, definition("v1"))
    desk.post(BOATS, {"metadata": {"name": "b"}})
    watch = desk.watch(f"{BOATS}?watch=1")
    desk.delete(f"{DEFINITIONS}/boats.example.com")
    assert names_of(watch) == [("ADDED", "b"), ("DELETED", "b")]
    assert desk.refused("GET", BOATS)["code"] == 404
    desk.post(DEFINITIONS, definition("v1"))
    assert desk.get(BOATS)["items"] == []


def test_an_invalid_definition_is_rejected() -> None:
    desk = Desk()
    assert desk.refused("POST", DEFINITIONS, {"metadata": {"name": "x"}, "spec": {}})["code"] == 422
    misnamed = {**definition("v1"), "metadata": {"name": "ships.example.com"}}
    assert desk.refused("POST", DEFINITIONS, misnamed)["code"] == 422
    nameless = definition("v1")
    nameless["spec"]["versions"] = ["v1"]
    assert desk.refused("POST", DEFINITIONS, nameless)["code"] == 422
