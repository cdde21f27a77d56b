"""Services that tests host in a process of their own: `python -m tests.runtime.program NAME`.

With several names they share one process, as queue, cycle and snapshot.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import msgspec

from shared.bus import Envelope, NoAnswer
from shared.config.settings import Settings
from shared.errors import UserError
from shared.messages.queue import Received, Take
from shared.messages.state import Heartbeat
from shared.runtime import Context, host, host_together, stopping

SETTINGS = "TEST_SETTINGS"
"""The environment variable that holds them."""


async def serves(context: Context) -> None:
    """Waits for a word before it is ready, answers, and says good-bye."""
    context.health.wait_for("redis", "not loaded yet")
    context.health.ready()
    heard = asyncio.Event()
    await context.bus.subscribe("snapshot.deltas", Heartbeat, lambda _, __: heard.set())
    await context.bus.subscribe("queue.take", Take, lambda m, e: e.respond(Received(m.epoch, m.number)))
    say(f"at {context.http_url}")
    context.metrics.counter("flotilla_test_total", "A test.").inc()
    try:
        await heard.wait()
        context.health.clear("redis")
        context.tracer.record("heard", context.tracer.new(True), 1.0, 2.0)
        await asyncio.get_running_loop().create_future()
    finally:
        await context.bus.publish("watch", Heartbeat(1, 99))
        say("good-bye")


async def returns(context: Context) -> None:
    context.log.info("done", extra={"trace_id": "0af7"})


async def refuses(context: Context) -> None:
    raise UserError("config.yaml: no such\nplugin")


async def refuses_in_a_task(context: Context) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(refuses(context))
        tasks.create_task(asyncio.sleep(60))


async def breaks(context: Context) -> NoReturn:
    raise ZeroDivisionError("a fault of ours")


async def breaks_in_a_task(context: Context) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(breaks(context))
        tasks.create_task(refuses(context))


async def fails_on_a_message(context: Context) -> None:
    def fail(message: Heartbeat, envelope: Envelope) -> None:
        raise ZeroDivisionError("a fault of ours")

    await context.bus.subscribe("snapshot.deltas", Heartbeat, fail)
    context.bus.post("snapshot.deltas", Heartbeat(1, 1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(context.fault.raised())
        tasks.create_task(asyncio.sleep(60))


async def asks(context: Context) -> None:
    """Its neighbour, over and over; ready with the first answer."""
    for number in range(1_000_000):
        with suppress(NoAnswer):
            received = await context.bus.request("queue.take", Take(1, number, 1), Received, timeout=5)
            assert received.number == number
            context.health.ready()
        await asyncio.sleep(0.01)


async def ends_on_a_message(context: Context) -> None:
    received = asyncio.Event()
    await context.bus.subscribe("queue.evicted", Heartbeat, lambda _, __: received.set())
    context.health.ready()
    await received.wait()
    raise UserError("asked to end")


async def stays(context: Context) -> None:
    """The messages it gets."""
    say(f"at {context.http_url}")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            say("stays")


async def stays_not_for_long(context: Context) -> None:
    stopping.STOP_SECONDS = 0.2
    await stays(context)


def say(text: str) -> None:
    print(text, flush=True)


MAINS: dict[str, Callable[[Context], Awaitable[None]]] = {
    main.__name__: main
    for main in (
        serves,
        returns,
        refuses,
        refuses_in_a_task,
        breaks,
        breaks_in_a_task,
        fails_on_a_message,
        asks,
        ends_on_a_message,
        stays,
        stays_not_for_long,
    )
}

if __name__ == "__main__":
    settings = msgspec.json.decode(os.environ[SETTINGS], type=Settings)
    mains = [MAINS[name] for name in sys.argv[1:]]
    if len(mains) == 1:
        sys.exit(host("test", settings, mains[0]))
    sys.exit(host_together(dict(zip(("queue", "cycle", "snapshot"), mains, strict=False)), settings))
