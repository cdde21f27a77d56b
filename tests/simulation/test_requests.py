"""The simulated API server, request by request."""

import asyncio

import msgspec

from shared.model.objects import ObjectKind, object_from
from testing.simulation.apiserver import ApiServer, Requests
from testing.simulation.loop import Dice

PATH = "/api/v1/persistentvolumes/v"


def test_an_object_is_replaced_only_at_the_version_that_the_request_names() -> None:
    async def run() -> list[int]:
        server = ApiServer(Dice(1))
        server.put_object(object_from(ObjectKind.PERSISTENT_VOLUME, {"metadata": {"name": "v"}}))
        requests = Requests(server, lambda: server.version)
        body = msgspec.json.encode({"metadata": {"name": "v", "resourceVersion": "1"}})
        return [requests.answer("PUT", PATH, body, "application/json")[0] for _ in range(2)]

    assert asyncio.run(run()) == [200, 409]
