"""The API without a socket, and over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from random import Random
from typing import Any

import aiohttp

from testing.simulator.api import Api
from testing.simulator.cluster import SimulatedCluster
from testing.simulator.requests import JSON, Request, Response, parse_target
from testing.simulator.service import Simulator, SimulatorOptions
from testing.simulator.subresources import ReviewedUser
from testing.simulator.watch import Watch

Object = dict[str, Any]
DEADLINE = 5.0
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def pod(name: str = "p", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec},
    }


def node(name: str = "n", **spec: Any) -> Object:
    capacity = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"capacity": capacity},
    }


def binding(name: str, to: str) -> Object:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": to}}


class Desk:
    """Calls the API directly, with a time that the test sets."""

    def __init__(
        self,
        *,
        history: int = 1000,
        max_events: int = 1000,
        max_pending_bytes: int = 1 << 20,
        users: tuple[ReviewedUser, ...] = (),
        denied: frozenset[str] = frozenset(),
    ) -> None:
        self.now = 1_700_000_000.0
        self.cluster = SimulatedCluster(
            history=history, max_events=max_events, clock=lambda: self.now, random=Random(1)
        )
        self.api = Api(self.cluster, max_pending_bytes, users, denied)

    def ask(self, method: str, url: str, body: Any = None, media: str = JSON, accept: str = JSON) -> Response | Watch:
        path, query = parse_target(url)
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.api.handle(Request(method, path, query, raw, media, accept))

    def call(self, method: str, url: str, body: Any = None, media: str = JSON, accept: str = JSON) -> tuple[int, Any]:
        answer = self.ask(method, url, body, media, accept)
        assert isinstance(answer, Response)
        return answer.status, json.loads(answer.body)

    def get(self, url: str) -> Any:
        return self._fine("GET", url)

    def post(self, url: str, body: Any) -> Any:
        return self._fine("POST", url, body)

    def put(self, url: str, body: Any) -> Any:
        return self._fine("PUT", url, body)

    def patch(self, url: str, body: Any, media: str = STRATEGIC) -> Any:
        return self._fine("PATCH", url, body, media)

    def delete(self, url: str, body: Any = None) -> Any:
        return self._fine("DELETE", url, body)

    def refused(self, method: str, url: str, body: Any = None, media: str = JSON) -> Any:
        status, answer = self.call(method, url, body, media)
        assert status >= 400, answer
        assert answer["kind"] == "Status"
        assert answer["code"] == status
        return answer

    def _fine(self, method: str, url: str, body: Any = None, media: str = JSON) -> Any:
        status, answer = self.call(method, url, body, media)
        assert status < 300, answer
        return answer

    def watch(self, url: str) -> Watch:
        watch = self.ask("GET", url)
        assert isinstance(watch, Watch), watch
        return watch


def events_of(watch: Watch) -> list[Object]:
    """The events that the watch has queued."""
    return [json.loads(line) for line in b"".join([*watch.initial_chunks(), watch.take()]).splitlines()]


def names_of(watch: Watch) -> list[tuple[str, str]]:
    """Types and names of the queued events."""
    return [(event["type"], event["object"].get("metadata", {}).get("name", "")) for event in events_of(watch)]


class Client:
    """Calls the API over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str | None) -> None:
        self.session = session
        self.url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def call(self, method: str, path: str, body: Any = None, media: str = JSON) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, BytesIO) else json.dumps(body).encode()
        headers = {"Content-Type": media, **self._headers}
        async with self.session.request(method, self.url + path, data=data, headers=headers) as response:
            return response.status, json.loads(await response.read())

    async def fine(self, method: str, path: str, body: Any = None, media: str = JSON) -> Any:
        status, answer = await self.call(method, path, body, media)
        assert status < 300, answer
        return answer

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator["Stream"]:
        async with self.session.get(self.url + path, headers=self._headers) as response:
            assert response.status == 200
            yield Stream(response)


class Stream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Object:
        """The next event; {} at the end of the stream."""
        async with asyncio.timeout(DEADLINE):
            line = await self._response.content.readline()
        return json.loads(line) if line else {}

    async def until(self, type_: str, phase: str | None = None) -> Object:
        """The first event of this type whose object is in this phase."""
        while event := await self.next():
            if event["type"] == type_ and phase in (None, event["object"].get("status", {}).get("phase")):
                return event
        raise AssertionError(f"the watch ended without {type_} {phase}")


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[Simulator, Client]]:
    simulator = Simulator(SimulatorOptions(**options))
    await simulator.start()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE)) as session:
            yield simulator, Client(session, simulator.url, options.get("token"))
    finally:
        await simulator.stop()
