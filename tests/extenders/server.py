"""A real extender on a free port, whose answers the test decides."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from shared.config.structs import ExtenderConfig
from shared.extenders.client import ExtenderClient

Body = dict[str, Any]
Answer = Callable[[Body], object | Awaitable[object]]
"""What the extender says to a request: bytes as they are, a Response as it is, anything else as JSON."""


class Extender:
    def __init__(self) -> None:
        self.asked: list[tuple[str, Body]] = []
        self.answers: dict[str, Answer] = {}
        self.url = ""
        self.under_way = 0
        self.most_under_way = 0

    def says(self, verb: str, answer: object) -> None:
        """To every request the same."""
        self.answers[verb] = lambda body: answer

    def requests(self, verb: str) -> list[Body]:
        return [body for asked, body in self.asked if asked == verb]

    def config(self, **fields: Any) -> ExtenderConfig:
        return ExtenderConfig(**{"url_prefix": self.url, "node_cache_capable": True, **fields})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        verb = request.match_info["verb"]
        self.asked.append((verb, body))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answer = self.answers[verb](body)
            if isinstance(answer, Awaitable):
                answer = await answer
        finally:
            self.under_way -= 1
        if isinstance(answer, web.StreamResponse):
            return answer
        raw = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        return web.Response(body=raw, content_type="application/json")


@asynccontextmanager
async def an_extender(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Extender]:
    extender = Extender()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/scheduler/{verb}", extender.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        assert runner.addresses
        extender.url = f"{'https' if tls else 'http'}://{host}:{runner.addresses[0][1]}/scheduler"
        yield extender
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_client(*extenders: ExtenderConfig) -> AsyncIterator[ExtenderClient]:
    client = ExtenderClient(extenders)
    try:
        yield client
    finally:
        await client.close()


async def slowly(answer: object, seconds: float = 30.0) -> object:
    await asyncio.sleep(seconds)
    return answer
