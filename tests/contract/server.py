"""The server under test, over plain HTTP, so that no client library is between it and the test."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec

from shared.config.settings import ApiSettings
from shared.kube.access import Access, find_access
from testing.simulator.service import Simulator, SimulatorOptions

KUBECONFIG = "FLOTILLA_TEST_KUBECONFIG"
DEADLINE = 20.0
"""Seconds for any response, and for any event of a watch."""

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

Object = dict[str, Any]


class Answer(NamedTuple):
    """`body`: decoded; {} if it is not JSON."""

    status: int
    body: Object
    retry_after: str | None


class Server:
    """`settings`: for Flotilla to reach it. `forget` compacts its history, if possible. `is_real`: no simulator."""

    def __init__(
        self, settings: ApiSettings, access: Access, session: aiohttp.ClientSession, forget: Callable[[], None] | None
    ) -> None:
        self.settings = settings
        self.is_real = forget is None
        self.forget = forget or (lambda: None)
        self._minor = 0
        self._access = access
        self._session = session
        self._headers = {} if access.authorization is None else {"Authorization": access.authorization}

    async def ask(self, method: str, path: str, body: object = None, media: str = JSON) -> Answer:
        data = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"Content-Type": media, "Accept": JSON, **self._headers}
        async with asyncio.timeout(DEADLINE), self._request(method, path, data, sent) as response:
            raw = await response.read()
        plain = response.content_type != JSON
        return Answer(response.status, {} if plain else msgspec.json.decode(raw), response.headers.get("Retry-After"))

    async def introduce(self) -> None:
        """Read its version."""
        self._minor = int(re.match(r"\d*", (await self.get("/version"))["minor"])[0] or 0)  # type: ignore[index]

    def since(self, minor: int) -> bool:
        """Whether it is v1.`minor` or later; newer features are not tested on older servers."""
        return self._minor >= minor

    async def ask_with_unknown_token(self, path: str) -> Answer:
        """A GET with a token that no server has issued."""
        unknown = {"Authorization": "Bearer unknown"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE)) as session,
            session.get(self._access.server + path, headers=unknown, ssl=False) as response,
        ):
            return Answer(response.status, msgspec.json.decode(await response.read()), None)

    async def get(self, path: str) -> Object:
        return await self._fine("GET", path)

    async def post(self, path: str, body: object) -> Object:
        return await self._fine("POST", path, body)

    async def put(self, path: str, body: object) -> Object:
        return await self._fine("PUT", path, body)

    async def patch(self, path: str, body: object, media: str = MERGE) -> Object:
        return await self._fine("PATCH", path, body, media)

    async def delete(self, path: str, body: object = None) -> Object:
        return await self._fine("DELETE", path, body)

    async def refused(
        self, code: int, reason: str, method: str, path: str, body: object = None, media: str = JSON
    ) -> Object:
        """Returns the Status of the refusal."""
        answer = await self.ask(method, path, body, media)
        status = answer.body
        assert answer.status == code, f"{method} {path}: {answer}"
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure"), status
        assert (status["code"], status.get("reason")) == (code, reason), status
        assert isinstance(status["message"], str)
        return status

    @asynccontextmanager
    async def watching(self, path: str) -> AsyncIterator["Watch"]:
        """`path`: with its query, without `watch`."""
        asked = f"{path}{'&' if '?' in path else '?'}watch=1"
        async with self._request("GET", asked, None, {"Accept": JSON, **self._headers}) as response:
            assert response.status == 200, await response.read()
            yield Watch(response)

    async def _fine(self, method: str, path: str, body: object = None, media: str = JSON) -> Object:
        answer = await self.ask(method, path, body, media)
        assert answer.status < 300, f"{method} {path}: {answer}"
        return answer.body

    def _request(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> "aiohttp.client._RequestContextManager":
        access = self._access
        return self._session.request(
            method,
            access.server + path,
            data=data,
            headers=headers,
            proxy=access.proxy,
            server_hostname=access.server_hostname,
        )


class Watch:
    """The events of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Object | None:
        """The next event; None at the end."""
        async with asyncio.timeout(DEADLINE):
            line = await self._response.content.readline()
        return msgspec.json.decode(line, type=Object) if line else None

    async def rest(self) -> list[Object]:
        """All events until the end, including bookmarks."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events

    async def event(self, *, bookmarks: bool = False) -> Object:
        """The next event. Bookmarks are skipped unless requested."""
        while (event := await self.next()) is not None:
            if bookmarks or event["type"] != "BOOKMARK":
                return event
        raise AssertionError("the watch ended")

    async def events(self, count: int) -> list[Object]:
        return [await self.event() for _ in range(count)]

    async def told(self, count: int) -> list[tuple[str, str]]:
        """Types and names."""
        return [(event["type"], event["object"]["metadata"]["name"]) for event in await self.events(count)]


@asynccontextmanager
async def a_server() -> AsyncIterator[Server]:
    """The server in FLOTILLA_TEST_KUBECONFIG, or else a simulator without kubelets."""
    kubeconfig = os.environ.get(KUBECONFIG)
    if kubeconfig:
        settings = ApiSettings(kubeconfig=os.path.expanduser(kubeconfig))
        async with _server_at(settings, None) as server:
            yield server
        return
    token = "0123456789abcdef"
    simulator = Simulator(SimulatorOptions(kubelet=False, token=token))
    url = await simulator.start()
    try:
        async with _server_at(ApiSettings(server=url, token=token), simulator.compact) as server:
            yield server
    finally:
        await simulator.stop()


@asynccontextmanager
async def _server_at(settings: ApiSettings, forget: Callable[[], None] | None) -> AsyncIterator[Server]:
    access = await find_access(settings)
    connector = aiohttp.TCPConnector(ssl=True if access.tls is None else access.tls)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=DEADLINE)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20) as session:
            server = Server(settings, access, session, forget)
            await server.introduce()
            yield server
    finally:
        await access.close()
