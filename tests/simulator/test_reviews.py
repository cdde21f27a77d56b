"""TokenReview and SubjectAccessReview, as components use them before they answer a request."""

from typing import Any

import pytest

from testing.simulator.subresources import ReviewedUser
from tests.simulator.support import Desk

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OWN_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PROMETHEUS = ReviewedUser(
    token="t-1", name="prometheus", uid="7", groups=("monitoring",), may=("get /metrics", "* /debug/*")
)


def ask(url: str, **spec: Any) -> dict[str, Any]:
    desk = Desk(users=(PROMETHEUS, ReviewedUser(token="t-2", name="other")))
    status, told = desk.call("POST", url, {"spec": spec})
    assert status == 201
    assert told["spec"] == spec
    found: dict[str, Any] = told["status"]
    return found


def test_a_token_review_names_the_user() -> None:
    groups = ["monitoring", "system:authenticated"]
    user = {"username": "prometheus", "uid": "7", "groups": groups}
    assert ask(TOKENS, token="t-1") == {"authenticated": True, "user": user}
    assert ask(TOKENS, token="t-9")["authenticated"] is False


@pytest.mark.parametrize(
    ("user", "verb", "path", "allowed"),
    [
        ("prometheus", "get", "/metrics", True),
        ("prometheus", "head", "/metrics", False),
        ("prometheus", "get", "/metrics/x", False),
        ("prometheus", "post", "/debug/x", True),
        ("other", "get", "/metrics", False),
        ("unknown", "get", "/metrics", False),
    ],
)
def test_an_access_review_follows_the_users_rules(user: str, verb: str, path: str, allowed: bool) -> None:
    told = ask(ACCESS, user=user, nonResourceAttributes={"verb": verb, "path": path})
    assert told["allowed"] is allowed
    assert bool(told["reason"]) is not allowed


def test_an_access_review_about_resources_follows_the_users_rules() -> None:
    desk = Desk(users=(ReviewedUser(token="t", name="account", may=("list apps/replicasets", "patch pods/status")),))
    for attributes, allowed in (
        ({"verb": "list", "group": "apps", "resource": "replicasets"}, True),
        ({"verb": "list", "group": "", "resource": "replicasets"}, False),
        ({"verb": "patch", "resource": "pods", "subresource": "status", "namespace": "shop"}, True),
        ({"verb": "patch", "resource": "pods"}, False),
    ):
        _, told = desk.call("POST", ACCESS, {"spec": {"user": "account", "resourceAttributes": attributes}})
        assert told["status"]["allowed"] is allowed


def test_a_review_of_ones_own_access_allows_what_is_not_denied() -> None:
    desk = Desk(denied=frozenset({"delete pods", "patch pods/status"}))
    for group, resource, subresource, verb, allowed in (
        ("", "pods", "", "get", True),
        ("", "pods", "", "delete", False),
        ("", "pods", "status", "patch", False),
        ("apps", "pods", "", "delete", True),
    ):
        asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
        status, told = desk.call("POST", OWN_ACCESS, {"spec": {"resourceAttributes": asked}})
        assert (status, told["status"]["allowed"]) == (201, allowed), asked


def test_a_malformed_review_is_rejected_and_not_stored() -> None:
    desk = Desk()
    assert desk.call("POST", TOKENS, {"spec": "x"})[0] == 400
    assert desk.call("GET", TOKENS)[0] == 405
    assert desk.call("DELETE", TOKENS)[0] == 405


def test_discovery_lists_reviews() -> None:
    _, told = Desk().call("GET", "/apis/authentication.k8s.io/v1")
    assert [(each["kind"], each["verbs"]) for each in told["resources"]] == [("TokenReview", ["create"])]
