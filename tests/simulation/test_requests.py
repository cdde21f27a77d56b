"""The simulated API server, request by request."""

import asyncio
from typing import Any

import msgspec

from shared.model.objects import ObjectKind, object_from
from testing.simulation import claims
from testing.simulation.apiserver import ApiServer, Requests
from testing.simulation.claims import CLAIMS
from testing.simulation.loop import Dice

PATH = "/api/v1/persistentvolumes/v"
CLAIM = f"{CLAIMS}/c"
RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "0"}
ALLOCATION = {"devices": {"results": [RESULT]}}
OTHER = {"devices": {"results": [RESULT | {"device": "1"}]}}
USER = [{"resource": "pods", "name": "p", "uid": "u"}]


class Server:
    def __init__(self) -> None:
        self.server = ApiServer(Dice(1))
        self.requests = Requests(self.server, lambda: self.server.version, claims.answer)

    def call(self, method: str, path: str, given: Any = None) -> tuple[int, Any]:
        body = None if given is None else msgspec.json.encode(given)
        code, answer = self.requests.answer(method, path, body, "application/json")
        return code, msgspec.json.decode(answer)

    def create_claim(self, *finalizers: str) -> dict[str, Any]:
        requests = [{"name": "r", "exactly": {"deviceClassName": "d"}}]
        metadata = {"name": "c", "namespace": "default", "finalizers": list(finalizers)}
        code, made = self.call("POST", CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": requests}}})
        assert code == 201
        return dict(made)

    def put_status(self, claim: dict[str, Any], **status: Any) -> int:
        return self.call("PUT", f"{CLAIM}/status", claim | {"status": status})[0]


def test_an_object_is_replaced_only_at_the_version_that_the_request_names() -> None:
    async def run() -> list[int]:
        served = Server()
        served.server.put_object(object_from(ObjectKind.PERSISTENT_VOLUME, {"metadata": {"name": "v"}}))
        body = {"metadata": {"name": "v", "resourceVersion": "1"}}
        return [served.call("PUT", PATH, body)[0] for _ in range(2)]

    assert asyncio.run(run()) == [200, 409]


def test_a_claim_is_written_only_at_the_version_and_uid_that_the_request_names() -> None:
    served = Server()
    claim = served.create_claim()
    assert served.put_status(claim, allocation=ALLOCATION, reservedFor=USER) == 200
    assert served.put_status(claim, allocation=ALLOCATION) == 409
    metadata = {"name": "c", "uid": "another"}
    assert served.put_status(claim | {"metadata": metadata}, allocation=ALLOCATION) == 409


def test_an_allocation_does_not_change_and_reservations_need_one() -> None:
    served = Server()
    claim = served.create_claim()
    del claim["metadata"]["resourceVersion"]
    assert served.put_status(claim, reservedFor=USER) == 422
    assert served.put_status(claim, allocation=ALLOCATION) == 200
    assert served.put_status(claim, allocation=OTHER) == 422
    assert served.put_status(claim) == 200
    assert served.put_status(claim, allocation=OTHER) == 200


def test_a_claim_with_finalizers_goes_once_they_are_removed_and_gets_no_user_meanwhile() -> None:
    served = Server()
    claim = served.create_claim("protection")
    del claim["metadata"]["resourceVersion"]
    assert served.put_status(claim, allocation=ALLOCATION) == 200
    assert served.call("DELETE", CLAIM)[0] == 200
    code, found = served.call("GET", CLAIM)
    assert (code, found["metadata"]["finalizers"]) == (200, ["protection"])
    assert found["metadata"]["deletionTimestamp"]
    assert served.put_status(claim, allocation=ALLOCATION, reservedFor=USER) == 422
    found["metadata"]["finalizers"] = []
    assert served.call("PUT", CLAIM, found)[0] == 200
    assert served.call("GET", CLAIM)[0] == 404
