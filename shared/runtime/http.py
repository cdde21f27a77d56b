"""The endpoints of every process: is it alive, is it ready, what does it count."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from shared.errors import UserError
from shared.runtime.health import Health
from shared.telemetry.metrics import CONTENT_TYPE, Metrics

MOST_PORT = 65535
CLOSE_SECONDS = 0.5
"""For requests under way when the process ends."""


@asynccontextmanager
async def endpoints(host: str, port: int, health: Health, metrics: Metrics) -> AsyncIterator[str]:
    """Serves them, and tells their URL; UserError where the address cannot be had."""

    async def alive(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        reasons = health.reasons()
        return web.Response(text="\n".join(reasons or ["ok"]) + "\n", status=503 if reasons else 200)

    async def exposition(request: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/healthz", alive)
    app.router.add_get("/livez", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", exposition)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS)
    await runner.setup()
    try:
        await _listen(runner, host, port)
        address, actual_port = runner.addresses[0][:2]
        yield f"http://{f'[{address}]' if ':' in address else address}:{actual_port}"
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    if not 0 <= port <= MOST_PORT:
        raise UserError(f"cannot serve HTTP at {host}:{port}: a port is a number from 0 to {MOST_PORT}")
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as cause:
        reason = "the port is taken" if cause.errno == errno.EADDRINUSE else str(cause)
        raise UserError(f"cannot serve HTTP at {host}:{port}: {reason}") from cause
