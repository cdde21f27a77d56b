"""Creates and deletes the pods of the load, by the door that never fails."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec

from shared.errors import ClusterError
from tools.cli.faults.load import NODES_PATH, PODS_PATH, Load, Object, Wave

AT_ONCE = 16
PATIENCE = 30.0
T = TypeVar("T")
FINE = range(200, 300)
GONE = 404


class Loader:
    """`deleted` counts the pods that were there and were told to go."""

    def __init__(self, url: str) -> None:
        self.deleted = 0
        self._url = url
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def prepare(self, load: Load) -> None:
        for path, made in load.preparations():
            await self._create(path, made)
        await _each(load.make_nodes(), lambda node: self._create(NODES_PATH, node))

    async def bring(self, wave: Wave) -> None:
        await _each(wave.created, lambda made: self._create(PODS_PATH, made))
        await self.delete([*wave.fleeting, *wave.leaving])

    async def bring_all(self, waves: Iterable[Wave], gap: float) -> None:
        """One wave after the other."""
        for wave in waves:
            await self.bring(wave)
            await asyncio.sleep(gap)

    async def delete(self, names: Iterable[str]) -> None:
        """Of pods; those that are gone already are left out."""
        await _each(names, self._delete)

    async def _create(self, path: str, made: Object) -> None:
        await self._call("POST", path, msgspec.json.encode(made))

    async def _delete(self, name: str) -> None:
        if await self._call("DELETE", f"{PODS_PATH}/{name}") != GONE:
            self.deleted += 1

    async def _call(self, method: str, path: str, body: bytes | None = None) -> int:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.request(method, self._url + path, data=body, headers=headers) as answer:
                text = await answer.text()
        except (OSError, aiohttp.ClientError) as cause:
            raise ClusterError(f"the API server does not answer a {method} to {path}: {cause or 'time-out'}") from cause
        if answer.status not in FINE and answer.status != GONE:
            raise ClusterError(f"the API server answers {answer.status} to a {method} to {path}: {text[:300]}")
        return answer.status


async def _each(things: Iterable[T], deal_with: Callable[[T], Awaitable[None]]) -> None:
    """Several at a time."""
    waiting = iter(things)

    async def some() -> None:
        for thing in waiting:
            await deal_with(thing)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
