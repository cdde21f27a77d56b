"""A bus on a real NATS server, and what tests want to know of it."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from shared.bus import Bus
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from tools.supervisor.servers import NatsServer

PREFIX = "test"
LOG = logging.getLogger("flotilla.test")
PATIENCE = 10.0


def a_telemetry() -> Telemetry:
    return Telemetry(Metrics(), Tracer("test", "test-1", ids=random.Random(1)), LOG)


@asynccontextmanager
async def a_bus(server: NatsServer, telemetry: Telemetry | None = None, prefix: str = PREFIX) -> AsyncIterator[Bus]:
    bus = await Bus.connect(server.url, prefix, "test-1", telemetry or a_telemetry(), patience=PATIENCE)
    try:
        yield bus
    finally:
        await bus.close()


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.005)


def sample(telemetry: Telemetry, name: str, **labels: str) -> float:
    return telemetry.metrics.registry.get_sample_value(name, labels) or 0.0
