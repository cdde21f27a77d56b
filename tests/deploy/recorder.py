"""What services ask of an API server, written down by a proxy before it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web

HOP = frozenset({"transfer-encoding", "connection", "content-length", "host"})
CLOSE_SECONDS = 0.1


class Recorder:
    """(method, path with query) of all requests, in order."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self._server = server
        self._session = session

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        url = self._server + request.raw_path
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP}
        async with self._session.request(
            request.method, url, data=await request.read(), headers=headers, allow_redirects=False
        ) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            except (ConnectionError, aiohttp.ClientError):
                response.force_close()
            return response


@asynccontextmanager
async def recorders(server: str, *names: str) -> AsyncIterator[dict[str, Recorder]]:
    """One for each of these names, each with a URL of its own."""
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout, connector=connector))
        found: dict[str, Recorder] = {}
        for name in names:
            recorder = found[name] = Recorder(server, session)
            runner = web.ServerRunner(web.Server(recorder.handle), shutdown_timeout=CLOSE_SECONDS)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            recorder.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield found
        await asyncio.sleep(0)
