"""Tests on virtual time: no sleep takes long, and no load on the machine makes a timer late."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from testing.simulation.loop import VirtualLoop

P = ParamSpec("P")


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on a loop whose clock moves only when every task waits."""

    @wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **named))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()
