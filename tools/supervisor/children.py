"""Flotilla's own processes: services, and the simulated API server."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from shared.config.settings import Settings
from shared.config.sources import environment_of, without_settings
from shared.errors import ClusterError
from tools.supervisor.offspring import Nursery
from tools.supervisor.probe import get, listening_port
from tools.supervisor.relay import Relay
from tools.supervisor.servers import POLL, START_PATIENCE, STOP_PATIENCE, Process, end

FLUSH_PATIENCE = 1.0
"""Seconds that the last output of a process that has ended may take to arrive."""


class Child(Protocol):
    """A process that can be started again after it has ended."""

    @property
    def name(self) -> str: ...

    @property
    def process(self) -> Process | None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Service:
    """`python -m MODULE`. What it is to know and nobody else comes by its environment."""

    def __init__(self, name: str, module: str, environment: Mapping[str, str], relay: Relay, nursery: Nursery) -> None:
        self.name = name
        self.process: Process | None = None
        self._nursery = nursery
        self._module = module
        self._environment = environment
        self._relay = relay
        self._following: asyncio.Task[None] | None = None
        self._found: tuple[int, int] | None = None

    async def start(self) -> None:
        await self._launch()

    async def stop(self) -> None:
        """Asks it to end, kills it if it does not, and has passed on its last words."""
        if self.process is not None:
            await end(self.process, STOP_PATIENCE)
        await self.last_words()

    async def last_words(self) -> None:
        if self._following is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._following, FLUSH_PATIENCE)

    @property
    def port(self) -> int | None:
        """Where it answers HTTP; none while it does not."""
        if self.process is None or self.process.returncode is not None:
            return None
        pid = self.process.pid
        if self._found is None or self._found[0] != pid:
            port = listening_port(pid)
            self._found = None if port is None else (pid, port)
        return None if self._found is None else self._found[1]

    async def _launch(self, arguments: Sequence[str] = ()) -> Process:
        self.process = process = await self._nursery.launch(self._module, arguments, self._environment)
        self._following = asyncio.create_task(self._relay.follow(self.name, process.output))
        return process


class Simulator(Service):
    """A made-up cluster's API server. Started again it has the same address, and knows nothing any more.

    It asks for no token: it is for this machine alone, nothing in it is real, and kubectl sends none without TLS.
    """

    def __init__(self, environment: Mapping[str, str], relay: Relay, nursery: Nursery) -> None:
        super().__init__("simulator", "testing.simulator", environment, relay, nursery)
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Returns once it answers; if it does not, or this is cancelled, no process is left."""
        process = await self._launch(["--port", str(self._port)])
        try:
            if not await self._comes_up(process):
                await self.last_words()
                raise ClusterError(f"the simulator does not start: {self._relay.last_of(self.name) or 'it is silent'}")
        except BaseException:
            await end(process, 0)
            raise

    async def _comes_up(self, process: Process) -> bool:
        deadline = asyncio.get_running_loop().time() + START_PATIENCE
        while process.returncode is None and asyncio.get_running_loop().time() < deadline:
            port = self.port
            if port is not None and await get(port, "/readyz") is not None:
                self._port = port
                return True
            await asyncio.sleep(POLL)
        return False


def environment_for(settings: Settings) -> dict[str, str]:
    """Ours, with these settings and no others. Linear algebra gets no threads: nothing here would use them."""
    return without_settings(os.environ) | {"OPENBLAS_NUM_THREADS": "1"} | environment_of(settings)
