"""The environment of a fault run: a whole pipeline in which every part can fail.

Two API servers serve one cluster: the services use the faulty one, the workload and the checks the reliable one. So the
checks see what happened, not what could be seen through the faults. Leases are short, and a plugin, installed like any
out-of-tree plugin, makes some pods wait for a permit.
"""

import asyncio
import os
import secrets
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from shared.bus import Bus
from shared.bus.subjects import BINDER_PERMITS, BINDER_WAITING
from shared.config.settings import ApiSettings, Settings
from shared.messages.binding import ListPermits, PermitAnswer, Permits
from shared.model.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER
from shared.runtime.corerunner import every
from shared.store.link import connect
from shared.telemetry.logs import logger
from testing.auditor.service import Auditor
from testing.auditor.violations import Limits
from testing.simulator.cluster import SimulatedCluster
from testing.simulator.service import Simulator, SimulatorOptions
from tools.cli.processes import connected_bus
from tools.faults.nats_links import LOOPBACK, Link
from tools.faults.witness import CLAIMS, VOLUMES, Witness
from tools.faults.workload import NAMESPACE, PERMIT_PLUGIN, PERMIT_TIMEOUT
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.servers import NatsServer, RedisServer, temporary_folder

WORKERS, BINDERS = 2, 2
LIMITS = Limits(patience=60.0)
"""Longer than the longest failover: that of Redis and the snapshot together, which takes 37 s."""
LEASE, RENEW, RETRY = 8, 6, 1
"""Seconds. A leader that pauses for ten loses its Lease to its standby."""
_PLUGIN = f'''
from flotilla.results import Code, Permission, Status
from flotilla.plugin import PermitPlugin, PodParts


class {PERMIT_PLUGIN}(PermitPlugin):
    name = "{PERMIT_PLUGIN}"
    reads_of_pod = PodParts.TEMPLATE

    def permit(self, state, node):
        waits = state.pod.name.startswith("permitted-")
        return Permission(Status(Code.WAIT), {PERMIT_TIMEOUT}) if waits else Permission()
'''
_CONFIG = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: true, leaseDuration: {LEASE}s, renewDeadline: {RENEW}s, retryPeriod: {RETRY}s}}
profiles:
- plugins:
    permit: {{enabled: [{{name: {PERMIT_PLUGIN}}}]}}
"""
DUMP, BACKUP = "dump.rdb", "backup.rdb"
POLL_INTERVAL = 0.25
IGNORED = "7"
"""Pods whose uid begins with this are ignored at first, so that their wait times out and they are retried."""
IGNORED_FOR = PERMIT_TIMEOUT + 0.5


class Approver:
    """Allows every pod that waits for a permit."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self.id = secrets.token_hex(8)
        self._clock = clock
        self._listed: dict[str, tuple[float, list[str]]] = {}
        """By binder: when it replied last, and with which pods."""
        self._ignored: dict[str, float] = {}
        self.allowed = 0

    async def run(self) -> None:
        await self._bus.subscribe(BINDER_WAITING, Permits, lambda reply, _: self.on_reply(reply))
        await every(POLL_INTERVAL, lambda: self._bus.post(BINDER_PERMITS, ListPermits(self.id)))

    def waiting(self, recent: float) -> list[str]:
        """The waiting pods, by the replies of the last `recent` seconds."""
        since = self._clock() - recent
        return sorted(name for replied, names in self._listed.values() if replied >= since for name in names)

    def on_reply(self, reply: Permits) -> None:
        """Allow the pods that a binder lists."""
        if reply.id != self.id:
            return
        now = self._clock()
        self._listed[reply.binder] = now, [f"{pod.namespace}/{pod.name}" for pod in reply.waiting]
        for pod in reply.waiting:
            if not pod.uid.startswith(IGNORED) or now - self._ignored.setdefault(pod.uid, now) > IGNORED_FOR:
                self.allowed += 1
                self._bus.post(BINDER_PERMITS, PermitAnswer(pod.uid, PERMIT_PLUGIN, allow=True))


def reconcile_claims(cluster: SimulatedCluster) -> None:
    """Bind claims to the volumes that the scheduler reserved for them; release volumes whose claim has another one."""
    store = cluster.store
    for item in list(store.bucket(VOLUMES).items()):
        volume = item.decode()
        name = volume["spec"].get("claimRef", {}).get("name")
        found = None if name is None else store.bucket(CLAIMS).get(NAMESPACE, name)
        if found is None:
            continue
        claim = found.decode()
        bound_to = claim["spec"].get("volumeName")
        if not bound_to:
            claim["spec"]["volumeName"] = item.name
            claim["metadata"].setdefault("annotations", {})[BIND_COMPLETED] = "yes"
            claim["status"] = {"phase": "Bound"}
            store.put(CLAIMS, claim)
        elif bound_to != item.name and BOUND_BY_CONTROLLER in volume["metadata"].get("annotations", {}):
            del volume["spec"]["claimRef"]
            del volume["metadata"]["annotations"][BOUND_BY_CONTROLLER]
            store.put(VOLUMES, volume)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`api`: the reliable API server; `faulty_api`: that of the services. `links`: their connections to NATS."""

    api: Simulator
    faulty_api: Simulator
    nats: NatsServer
    redis: "RewindableRedis"
    links: dict[str, Link]
    pipeline: Pipeline
    auditor: Auditor
    witness: Witness
    approver: Approver
    bus: Bus

    @property
    def processes(self) -> dict[str, int]:
        """Pids by name: services, NATS and Redis."""
        servers = {each.name: each.process for each in (self.nats, self.redis)}
        running = {name: process.pid for name, process in servers.items() if process and process.returncode is None}
        return running | self.pipeline.processes


@asynccontextmanager
async def running_environment(seed: int, logs: Path, limits: Limits = LIMITS) -> AsyncIterator[Environment]:
    """Yields when everything is ready and the cluster is empty. Logs of the processes go to files in `logs`."""
    base = PipelineOptions(workers=WORKERS, binders=BINDERS, standbys=True)
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(temporary_folder())
        holder = stack.enter_context(socket.socket())
        # The port stays reserved while nothing listens on it, so that connections are refused.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, 0))
        nats, redis, api = NatsServer(folder), RewindableRedis(folder), Simulator()
        faulty_options = SimulatorOptions(port=holder.getsockname()[1], kubelet=False)
        faulty_api = Simulator(faulty_options, cluster=api.cluster)
        links = {name: Link(lambda: nats.url) for name in base.services()}
        servers: list[NatsServer | RedisServer | Simulator | Link] = [nats, redis, api, faulty_api, *links.values()]
        for server in servers:
            stack.push_async_callback(server.stop)
            await server.start()
        config = stack.enter_context(configured(folder))
        settings = Settings(seed=seed, api=ApiSettings(server=faulty_api.url), config=str(config))
        options = replace(
            base,
            settings=settings,
            nats_url=nats.url,
            redis_url=redis.url,
            api=settings.api,
            output=stack.enter_context((logs / "services.log").open("w")),
            variables={name: {"FLOTILLA_NATS_URL": link.url} for name, link in links.items()},
        )
        pipeline = await stack.enter_async_context(Pipeline.running(options))
        bus = await stack.enter_async_context(connected_bus(nats.url, settings.prefix, "faults"))
        auditor = await stack.enter_async_context(
            Auditor.watching(
                ApiSettings(server=api.url), redis_url=redis.url, bus=bus, prefix=settings.prefix, limits=limits
            )
        )
        approver = Approver(bus)
        for work in (approver.run(), every(POLL_INTERVAL, lambda: reconcile_claims(api.cluster))):
            stack.push_async_callback(_cancel, asyncio.create_task(work))
        yield Environment(
            api=api,
            faulty_api=faulty_api,
            nats=nats,
            redis=redis,
            links=links,
            pipeline=pipeline,
            auditor=auditor,
            witness=Witness(api.cluster),
            approver=approver,
            bus=bus,
        )


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait for it; raises if it had failed."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@contextmanager
def configured(folder: Path) -> Iterator[Path]:
    """The path of the configuration file, for services started in this context."""
    site = folder / "site"
    about = site / "flotilla_faults-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "flotilla_faults.py").write_text(_PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flotilla-faults\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[flotilla.plugins]\n{PERMIT_PLUGIN} = flotilla_faults:{PERMIT_PLUGIN}\n")
    config = folder / "faults.yaml"
    config.write_text(_CONFIG)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    with patch.dict(os.environ, PYTHONPATH=path):
        yield config


class RewindableRedis(RedisServer):
    """A Redis that can return to an earlier state, like one that saves now and then, or a lagging replica.

    After a restart it is empty, unless it is rolled back.
    """

    async def back_up(self) -> None:
        link = await connect(self.url, logger("faults"))
        try:
            await link.call("SAVE")
        finally:
            await link.close()
        (self.folder / DUMP).replace(self.folder / BACKUP)

    async def roll_back(self) -> None:
        """Kill it and start it again with the backup."""
        await self.kill()
        shutil.copyfile(self.folder / BACKUP, self.folder / DUMP)
        try:
            await self.start()
        finally:
            (self.folder / DUMP).unlink(missing_ok=True)
