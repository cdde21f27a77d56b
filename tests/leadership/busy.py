"""A leader whose event loop has little time for anything: `python -m tests.leadership.busy SERVER NATS [stuck]`."""

import asyncio
import sys
import time

from shared.bus import Bus
from shared.config.settings import ApiSettings, Settings
from shared.config.structs import LeaderElection
from shared.runtime import Context, Health
from shared.runtime.leadership import LeaseLost, leadership
from tests.bus.support import a_telemetry

CONFIG = LeaderElection(True, 2.0, 1.5, 0.1, "leases", "", "leases")
STALLS = 6
STALL = 0.5
STUCK = 5.0
"""Seconds without a turn of the loop: longer than the Lease lasts, after what was renewed while it still counted."""


async def main(server: str, nats: str, stuck: bool) -> None:
    bus = await Bus.connect(nats, "flotilla", "busy", a_telemetry())
    context = Context(
        service="x",
        name="busy",
        settings=Settings(api=ApiSettings(server=server), identity="busy"),
        bus=bus,
        telemetry=a_telemetry(),
        health=Health(),
        http_url="",
    )

    async def work() -> None:
        for _ in range(1 if stuck else STALLS):
            turn_round(STUCK if stuck else STALL)
            await asyncio.sleep(0.01)

    try:
        async with leadership(context, CONFIG, "flotilla-x") as lead:
            await lead.during(work())
    except* LeaseLost:
        print("has lost it", flush=True)
    else:
        print("keeps it", flush=True)
    finally:
        await bus.close()


def turn_round(seconds: float) -> None:
    """Without ever letting go of the processor."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], "stuck" in sys.argv))
