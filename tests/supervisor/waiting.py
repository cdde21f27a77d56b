"""Waiting on conditions, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable

import psutil

POLL = 0.02


async def until(condition: Callable[[], bool], patience: float = 20.0) -> None:
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(POLL)


async def until_awaited(condition: Callable[[], Awaitable[bool]], patience: float = 20.0) -> None:
    async with asyncio.timeout(patience):
        while not await condition():
            await asyncio.sleep(POLL)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
