"""Work that is done again and again: beats, mostly."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable


async def every(
    seconds: float,
    work: Callable[[], Awaitable[None] | None],
    *,
    jitter: float = 0.0,
    rng: random.Random | None = None,
) -> None:
    """Does it at once and then every so many seconds, each time up to `jitter` seconds later, until it is cancelled.

    Times that were missed, because the work or the process took longer, are not made up for. What the work raises
    ends it: run it in an asyncio.TaskGroup, and the service ends with it.
    """
    loop = asyncio.get_running_loop()
    rng = rng or random.Random()
    due = loop.time()
    while True:
        outcome = work()
        if inspect.isawaitable(outcome):
            await outcome
        due = max(due + seconds, loop.time())
        await asyncio.sleep(due + rng.uniform(0.0, jitter) - loop.time())
