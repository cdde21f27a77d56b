"""PreBind creates the claim for extended resources, and names it in the pod."""

import pytest

from flotilla.results import SUCCESS, ApiAnswer, error
from shared.plugins.devices.pre_bind import (
    ClaimCreated,
)
from tests.plugins.devices.support import CLAIMS, EXACTLY, Server, special
from tests.simulator.support import PODS


def test_a_claim_for_extended_resources_is_created_and_named_in_the_pod() -> None:
    server = Server()
    assert server.run(special=special()) == SUCCESS
    claim = server.claim(special().name)
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == server.uid
    assert claim["spec"]["devices"]["requests"] == [{"name": "container-0-request-0", "exactly": EXACTLY}]
    assert claim["status"]["reservedFor"][0]["uid"] == server.uid
    named = server.get(f"{PODS}/p")["status"]["extendedResourceClaimStatus"]
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    assert named == {"resourceClaimName": special().name, "requestMappings": [mapping]}
    before = len(server.get(CLAIMS)["items"])
    assert server.run(special=special()) == SUCCESS
    assert len(server.get(CLAIMS)["items"]) == before
    assert server.progress == [ClaimCreated(True)]


@pytest.mark.parametrize("call", ["POST ", f"GET {PODS}/p", f"PUT {PODS}/p/status"])
def test_a_claim_for_extended_resources_is_not_allocated_once_the_pod_is_fenced(call: str) -> None:
    server = Server()
    server.before[call] = lambda: server.patch(f"{PODS}/p", {"metadata": {"labels": {"fenced": "1"}}})
    failed = server.run(special=special())
    assert failed.message.startswith("update pod default/p ExtendedResourceClaimStatus: ")
    assert server.get(CLAIMS)["items"] == []


def test_a_claim_for_extended_resources_that_an_interrupted_run_has_made_is_not_allocated() -> None:
    server = Server()
    server.fails[f"PUT {CLAIMS}/{special().name}/status"] = ApiAnswer(0, message="no answer")
    server.fails[f"PUT /{special().name}/status"] = ApiAnswer(0, message="no answer")
    server.fails[f"DELETE /{special().name}"] = ApiAnswer(0, message="no answer")
    server.run(special=special())
    assert server.run(special=special()) == error(f"claim default/{special().name} has changed in the meantime")
    assert "status" not in server.claim(special().name)


def test_a_claim_for_extended_resources_that_is_refused_fails_the_attempt() -> None:
    server = Server()
    server.fails["POST "] = ApiAnswer(403, message="quota")
    failed = server.run(special=special())
    assert failed == error(f"create claim for extended resources default/{special().name}: quota")
    assert server.progress == [ClaimCreated(False)]


def test_another_s_claim_of_that_name_is_left_alone() -> None:
    server = Server(special().name)
    failed = server.run(special=special())
    assert failed.message.endswith("another claim has this name")
    assert "status" not in server.claim(special().name)


def test_what_fails_after_its_creation_deletes_it() -> None:
    server = Server()
    server.fails[f"GET {PODS}/p"] = ApiAnswer(500, message="no")
    failed = server.run(special=special())
    assert failed == error("update pod default/p ExtendedResourceClaimStatus: no")
    assert server.get(CLAIMS)["items"] == []
