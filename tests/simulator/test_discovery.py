"""Discovery, health and tables, as kubectl requests them."""

import pytest

from testing.simulator.requests import Response
from tests.simulator.support import NODES, PODS, Desk, binding, node, pod

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def test_groups_and_resources_are_listed() -> None:
    desk = Desk()
    assert desk.get("/api")["versions"] == ["v1"]
    assert desk.get("/version")["minor"] == "36"
    groups = {group["name"] for group in desk.get("/apis")["groups"]}
    assert {"apps", "policy", "events.k8s.io", "resource.k8s.io"} <= groups
    assert desk.get("/apis/apps")["preferredVersion"]["groupVersion"] == "apps/v1"
    resources = {resource["name"]: resource for resource in desk.get("/api/v1")["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods/binding"]["kind"] == "Binding"
    assert resources["pods/eviction"]["group"] == "policy"
    assert desk.refused("GET", "/apis/none")["code"] == 404
    assert desk.refused("GET", "/apis/apps/v9")["code"] == 404


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_endpoints_answer_ok(path: str) -> None:
    answer = Desk().ask("GET", path)
    assert isinstance(answer, Response)
    assert (answer.status, answer.body) == (200, b"ok")


def test_aggregated_discovery() -> None:
    desk = Desk()
    answer = desk.ask("GET", "/apis", accept=AGGREGATED)
    assert isinstance(answer, Response)
    assert "as=APIGroupDiscoveryList" in answer.content_type
    _, found = desk.call("GET", "/api", accept=AGGREGATED)
    (core,) = found["items"]
    names = {resource["resource"] for resource in core["versions"][0]["resources"]}
    assert {"pods", "nodes", "namespaces"} <= names


def test_pods_as_a_table() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    desk.post(f"{PODS}/p/binding", binding("p", "n"))
    desk.now += 3600 * 5
    status, table = desk.call("GET", PODS, accept=TABLE)
    assert (status, table["kind"]) == (200, "Table")
    shown = dict(zip([column["name"] for column in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))
    assert (shown["Name"], shown["Ready"], shown["Status"], shown["Node"], shown["Age"]) == (
        "p",
        "0/1",
        "Pending",
        "n",
        "5h",
    )
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_one_node_as_a_table() -> None:
    desk = Desk()
    desk.post(NODES, node("n", unschedulable=True))
    _, table = desk.call("GET", f"{NODES}/n", accept=TABLE)
    assert table["rows"][0]["cells"][:2] == ["n", "Ready,SchedulingDisabled"]


@pytest.mark.parametrize(
    "plural", ["services", "persistentvolumes", "persistentvolumeclaims", "secrets", "limitranges"]
)
def test_a_malformed_object_still_has_a_row(plural: str) -> None:
    desk = Desk()
    scope = "" if plural == "persistentvolumes" else "namespaces/default/"
    desk.post(f"/api/v1/{scope}{plural}", {"metadata": {"name": "x"}})
    _, table = desk.call("GET", f"/api/v1/{scope}{plural}", accept=TABLE)
    assert table["rows"][0]["cells"][0] == "x"
