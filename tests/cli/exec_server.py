"""An API server in which one container runs: kubectl's own exec, over a WebSocket, starts a process on this machine.

Everything else is passed on to the simulated API server, which has no containers.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, RESULT, CLOSE = 0, 1, 2, 3, 255
"""Channels: the first byte of each frame. CLOSE is followed by the channel that ends."""


@asynccontextmanager
async def with_a_container(api: str, variables: Mapping[str, str]) -> AsyncIterator[str]:
    """Its URL. `variables`: of the container; its command must be flotilla."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            return await _exec(request, variables)
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, f"{api}{request.path_qs}", data=await request.read()) as answer,
        ):
            kind = answer.headers.get("Content-Type", "")
            return web.Response(status=answer.status, body=await answer.read(), headers={"Content-Type": kind})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _exec(request: web.Request, variables: Mapping[str, str]) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    program, *words = request.query.getall("command")
    assert program == "flotilla"
    command = (sys.executable, "-m", "tools.cli.main", *words)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **variables}
    )
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    if request.query.get("stdin") != "true":
        process.stdin.close()
    typing = asyncio.create_task(_type(socket, process))
    outputs = ((STDOUT, process.stdout), (STDERR, process.stderr))
    await asyncio.gather(*(_pass_on(socket, channel, output) for channel, output in outputs))
    await socket.send_bytes(bytes([RESULT]) + json.dumps(_status(await process.wait())).encode())
    await socket.close()
    typing.cancel()
    return socket


async def _type(socket: web.WebSocketResponse, process: Process) -> None:
    assert process.stdin is not None
    async for frame in socket:
        if frame.data[0] == STDIN:
            process.stdin.write(frame.data[1:])
        elif frame.data[0] == CLOSE:
            process.stdin.close()


async def _pass_on(socket: web.WebSocketResponse, channel: int, output: asyncio.StreamReader) -> None:
    while text := await output.read(1 << 16):
        await socket.send_bytes(bytes([channel]) + text)


def _status(code: int) -> dict[str, object]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    text = f"command terminated with exit code {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": text,
        "details": {"causes": causes},
    }
