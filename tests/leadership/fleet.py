"""A small pipeline with two of each service of which one leads, as processes that are not restarted."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared.config.settings import ApiSettings, Settings
from testing.simulator.service import Simulator
from tests.kube.support import api_server
from tests.servers import nats_server, redis_server
from tools.supervisor.children import Service, environment_for
from tools.supervisor.forked_process import ForkServer
from tools.supervisor.options import SINGLE
from tools.supervisor.probe import Answer, get
from tools.supervisor.relay import Relay
from tools.supervisor.servers import NatsServer, RedisServer

PREFIX = "pair"
PATIENCE = 60.0
CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  {{leaseDuration: {duration}, renewDeadline: {deadline}, retryPeriod: {period}, resourceNamespace: leases}}
"""
STATUS = "leader_election_master_status"


@dataclass
class Fleet:
    settings: Settings
    server: Simulator
    nats: NatsServer
    redis: RedisServer
    fork_server: ForkServer = field(default_factory=ForkServer)
    relay: Relay = field(default_factory=lambda: Relay(io.StringIO(), as_json=False))
    services: dict[str, Service] = field(default_factory=dict)

    @property
    def api(self) -> ApiSettings:
        return ApiSettings(server=self.server.url)

    async def start(self, kind: str, name: str) -> None:
        settings = Settings(
            name=name,
            identity=name,
            prefix=PREFIX,
            nats_url=self.nats.url,
            redis_url=self.redis.url,
            api=self.api,
            config=self.settings.config,
            log_format="text",
        )
        service = Service(name, f"services.{kind}", environment_for(settings), self.relay, self.fork_server)
        await service.start()
        self.services[name] = service

    def signal(self, name: str, number: signal.Signals) -> None:
        process = self.services[name].process
        assert process is not None
        os.kill(process.pid, number)

    async def ended(self, name: str) -> int:
        process = self.services[name].process
        assert process is not None
        async with asyncio.timeout(PATIENCE):
            return await process.wait()

    async def ask(self, name: str, path: str) -> Answer | None:
        port = self.services[name].port
        return None if port is None else await get(port, path)

    async def leads(self, name: str) -> bool:
        answer = await self.ask(name, "/metrics")
        return answer is not None and f'{STATUS}{{name="{PREFIX}-{name[:-2]}"}} 1.0' in answer.body

    async def leader(self, kind: str) -> str:
        """The one that leads, once there is one."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for name in (f"{kind}-0", f"{kind}-1"):
                    if name in self.services and await self.leads(name):
                        return name
                await asyncio.sleep(0.02)

    async def ready(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE):
            for name in names or tuple(self.services):
                while (answer := await self.ask(name, "/readyz")) is None or answer.status != 200:
                    await asyncio.sleep(0.02)

    def term(self, kind: str) -> int:
        return int(self.lease(kind)["leaseTransitions"])

    def lease(self, kind: str) -> dict[str, str]:
        stored = self.server.stored("leases", f"{PREFIX}-{kind}", "leases", group="coordination.k8s.io")
        spec: dict[str, str] = stored["spec"]
        return spec

    def said(self, text: str) -> bool:
        return any(text in line for line in self.relay.lines)

    def node_of(self, pod: str) -> str:
        return str(self.server.stored("pods", pod, "default")["spec"].get("nodeName") or "")

    async def until(self, holds: Callable[[], bool], otherwise: str, patience: float = PATIENCE) -> None:
        deadline = asyncio.get_running_loop().time() + patience
        while not holds():
            last = "\n".join(self.relay.lines[-60:])
            assert asyncio.get_running_loop().time() < deadline, f"after {patience:g} s: {otherwise}\n{last}"
            await asyncio.sleep(0.005)


@asynccontextmanager
async def a_fleet(
    folder: Path, kinds: tuple[str, ...], *, duration: str = "5s", deadline: str = "4s", period: str = "400ms"
) -> AsyncIterator[Fleet]:
    """Nothing runs yet but the servers. `kinds`: of which there will be two."""
    file = folder / "scheduler.yaml"
    file.write_text(CONFIG.format(duration=duration, deadline=deadline, period=period))
    async with nats_server() as nats, redis_server() as redis, api_server() as server:
        server.store_raw("namespaces", {"metadata": {"name": "leases"}})
        fleet = Fleet(Settings(config=str(file)), server, nats, redis)
        try:
            for kind in kinds:
                await fleet.start(kind, f"{kind}-0")
            for kind in kinds:
                assert await fleet.leader(kind) == f"{kind}-0"
            for kind in kinds:
                await fleet.start(kind, f"{kind}-1")
            yield fleet
        finally:
            await fleet.fork_server.stop()
            for service in fleet.services.values():
                await service.flush()


@asynccontextmanager
async def a_pipeline(folder: Path, **timings: str) -> AsyncIterator[Fleet]:
    """All of it, and ready."""
    async with a_fleet(folder, SINGLE, **timings) as fleet:
        for kind, count in (("worker", 2), ("binder", 1)):
            for number in range(count):
                await fleet.start(kind, f"{kind}-{number}")
        await fleet.ready()
        yield fleet
