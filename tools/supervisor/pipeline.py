"""A whole Flotilla on one machine: servers that are not given, and all services, restarted when they end.

At the end, also after an error, a signal or an unfinished start, no process and no file is left.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL

from shared.config.settings import ApiSettings
from shared.errors import ClusterError, FlotillaError, UserError
from tools.supervisor.causes import cause_in
from tools.supervisor.children import (
    Child,
    RestartPolicy,
    Service,
    Simulator,
    end_of,
    environment_for,
    kill_when_frozen,
)
from tools.supervisor.fork_server import PRELOADED
from tools.supervisor.forked_process import ForkedProcess, ForkServer
from tools.supervisor.host_identity import HostIdentity, host_identity
from tools.supervisor.options import SINGLE, PipelineOptions
from tools.supervisor.probe import Answer, CpuAccounts, get
from tools.supervisor.relay import Level, Relay
from tools.supervisor.servers import START_PATIENCE, NatsServer, RedisServer, temporary_folder

SAMPLE_INTERVAL = 5.0
"""Seconds between samples of the CPU time of processes: that of NATS and Redis cannot be read once they have ended."""
MIN_POLL, MAX_POLL = 0.05, 0.5
POLL_SHARE = 0.05
"""Poll interval as a share of the time since the start: a slow start is polled less often."""
WARN_INTERVAL = 5.0
"""Seconds between looks at services that are not ready yet; a warning follows if the reasons have changed."""
WARN_AGAIN = 30.0
"""Seconds until it is repeated if they have not."""
IS_STARTING = "service: is starting"
"""The end of the answer of a service that has no other reason not to be ready."""
STANDS_BY = "ok: standby, "
"""Begins a service's answer while another one leads."""
CONSOLE = "console"
EMBEDDED = ("nats-server", "redis-server", "simulator")
"""Servers that the pipeline starts unless they are given."""


class Pipeline:
    """Use `running`. `failure` is set when the pipeline cannot continue."""

    def __init__(self, options: PipelineOptions, folder: Path, relay: Relay, identity: HostIdentity) -> None:
        self.options = options
        self.folder = folder
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._relay = relay
        self._fork_server = ForkServer(identity.inherited, folder)
        self._kinds = options.services()
        self._members = options.processes()
        """The services in each process."""
        self._process_of = {name: process for process, names in self._members.items() for name in names}
        self._servers: dict[str, NatsServer | RedisServer | Simulator] = {}
        self._services: dict[str, Service] = {}
        self._restarts = RestartPolicy(configured=self._members)
        self._cpu = CpuAccounts()
        self._tasks: set[asyncio.Task[None]] = set()
        self._identity = identity.name
        """Part of all services' identities: a restarted service re-acquires its own Lease at once."""

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        options: PipelineOptions,
        check: Callable[[], None] | None = None,
        on_servers: Callable[["Pipeline"], None] | None = None,
    ) -> AsyncIterator["Pipeline"]:
        """Yields when everything is ready, apart from services that are held.

        `check` raises if services must not start. It runs while NATS and Redis start and modules are imported, before
        any process writes to the output. `on_servers` is called when the servers can be reached, before services are
        ready. UserError: bad options; ClusterError: not ready in time.
        """
        async with host_identity() as identity, temporary_folder() as folder:
            identity.own(folder)
            with ExitStack() as stack:
                output = options.output or stack.enter_context((folder / "services.log").open("w"))
                width = max(map(len, (*options.processes(), *EMBEDDED)))
                relay = Relay(output, as_json=options.as_json, width=width, colour=options.colour, live=options.live)
                pipeline = cls(options, folder, relay, identity)
                try:
                    await pipeline._start(check, on_servers)
                    yield pipeline
                finally:
                    await pipeline._stop()

    @property
    def processes(self) -> dict[str, int]:
        """The pid of each running process, by name."""
        children: dict[str, Child] = {**self._servers, **self._services}
        return {
            name: child.process.pid
            for name, child in children.items()
            if child.process is not None and child.process.returncode is None
        }

    @property
    def api(self) -> ApiSettings:
        if self.options.api is not None:
            return self.options.api
        simulator = self._servers["simulator"]
        assert isinstance(simulator, Simulator)
        return ApiSettings(server=simulator.url)

    @property
    def api_url(self) -> str | None:
        """None if a kubeconfig or the surrounding cluster determines it."""
        return self.api.server

    @property
    def nats_url(self) -> str:
        return self.options.nats_url or self._servers["nats-server"].url

    @property
    def redis_url(self) -> str:
        return self.options.redis_url or self._servers["redis-server"].url

    @property
    def log_lines(self) -> list[str]:
        """The last output of the processes, each line as `name | line`."""
        return self._relay.lines

    def tell(self, text: str, level: Level = "info") -> None:
        """Write a line of our own among those of the services."""
        self._relay.tell(text, level)

    def status(self, text: str) -> None:
        """Replace the status line, if the output is a terminal."""
        self._relay.status(text)

    def cpu(self) -> dict[str, float]:
        """CPU seconds by process, summed over restarts. Up to five may be missing of a NATS or Redis that has ended."""
        return self._cpu.seconds()

    def kill(self, name: str) -> None:
        """As in a crash."""
        self.signal(name, SIGKILL)

    def signal(self, name: str, number: int) -> None:
        """Signal this process, or that of this service, if it runs."""
        child = self._servers.get(name) or self._services[self._process_of.get(name, name)]
        if child.process is not None and child.process.returncode is None:
            child.process.send_signal(number)

    def pid(self, service: str) -> int | None:
        """Of the process with this service; None while it does not run."""
        return self.processes.get(self._process_of[service])

    def port(self, name: str) -> int | None:
        """Where a service serves HTTP; None while it does not."""
        process = self._process_of.get(name, name)
        return None if process in self._held() else self._services[process].port

    async def ask(self, name: str, path: str) -> Answer | None:
        """The answer to a GET of a service, or of a process with several; None if there is none."""
        port = self.port(name)
        shares = len(self._members.get(self._process_of.get(name, name), ())) > 1 and name in self._kinds
        return None if port is None else await get(port, f"/{self._kinds[name]}{path}" if shares else path)

    async def unready(self) -> dict[str, str]:
        """The processes that are not ready, with their reasons."""
        names = [name for name in self._members if name in self._services]
        reasons = await asyncio.gather(*map(self._why_unready, names))
        return {name: reason for name, reason in zip(names, reasons, strict=True) if reason}

    async def standing_by(self) -> dict[str, str]:
        """The services that stand by, with their leaders."""
        names = [name for name in self._kinds if self._process_of[name] in self._services]
        answers = await asyncio.gather(*(self.ask(name, "/readyz") for name in names))
        bodies = {name: answer.body.strip() for name, answer in zip(names, answers, strict=True) if answer is not None}
        return {
            name: text.removeprefix(STANDS_BY).removesuffix(" leads")
            for name, text in bodies.items()
            if text.startswith(STANDS_BY)
        }

    async def release(self) -> None:
        """Start the services that are held, and wait until they are ready; ClusterError if they are not in time."""
        for name in sorted(self._held()):
            self._add_service(name)
        await self._wait_until_ready(self._start_deadline())

    def _held(self) -> set[str]:
        """The processes that are held still, because a service of theirs is."""
        return {self._process_of[name] for name in self.options.held} - self._services.keys()

    async def open_console(self) -> str:
        """Start the console, and return its URL; ClusterError if it does not start. Nothing else depends on it."""
        service = Service(CONSOLE, "tools.console", self._environment(CONSOLE), self._relay, self._fork_server)
        self._services[CONSOLE] = service
        self._spawn(self._keep_running(service, runs=False))
        self._spawn(kill_when_frozen(service, self.tell))
        deadline = asyncio.get_running_loop().time() + START_PATIENCE
        while service.port is None:
            if asyncio.get_running_loop().time() > deadline:
                raise ClusterError(f"the console does not start: {self._relay.last_of(CONSOLE) or 'it has no output'}")
            await asyncio.sleep(MIN_POLL)
        return f"http://127.0.0.1:{service.port}/"

    async def _start(self, check: Callable[[], None] | None, on_servers: Callable[["Pipeline"], None] | None) -> None:
        await self._fork_server.prepare()
        self._spawn(self._sample_cpu())
        environment = environment_for(self.options.settings)
        simulator = Simulator(
            environment,
            self._relay,
            self._fork_server,
            self.options.simulated_nodes,
            kubelets=self.options.simulated_kubelets,
        )
        databases: list[NatsServer | RedisServer] = []
        if self.options.nats_url is None:
            databases.append(NatsServer(self.folder))
        if self.options.redis_url is None:
            databases.append(RedisServer(self.folder))
        servers = [*databases, *([simulator] if self.options.api is None else [])]
        self._servers = {server.name: server for server in servers}
        starting = asyncio.gather(*map(_try_start, databases))
        try:
            if check is not None:
                await asyncio.to_thread(check)
            problem = await _try_start(simulator) if self.options.api is None else None
            problem = next(filter(None, [*await starting, problem]), None)
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        if problem is not None:
            raise problem
        for server in servers:
            self._on_start(server)
            self._spawn(self._keep_running(server, runs=True))
        if on_servers is not None:
            on_servers(self)
        held = self._held()
        for name in sorted(self._members.keys() - held, key=self._last_import):
            self._add_service(name)
        await self._wait_until_ready(self._start_deadline())

    def _start_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.options.start_patience

    def _last_import(self, process: str) -> int:
        return max(PRELOADED.index(self._kinds[name]) for name in self._members[process])

    def _add_service(self, name: str) -> None:
        kinds = [self._kinds[each] for each in self._members[name]]
        module, arguments = (f"services.{kinds[0]}", []) if len(kinds) == 1 else ("services", kinds)
        service = Service(name, module, self._environment(name), self._relay, self._fork_server, arguments)
        self._services[name] = service
        self._spawn(self._keep_running(service, runs=False))
        self._spawn(kill_when_frozen(service, self.tell))

    def _environment(self, name: str) -> dict[str, str]:
        settings = replace(
            self.options.settings,
            name=name,
            identity=self._identity_of(name),
            expected_workers=self.options.workers,
            nats_url=self.nats_url,
            redis_url=self.redis_url,
            api=self.api,
            http_host="127.0.0.1",
            http_port=0,
            http_scheme="http",
            log_format="json" if self.options.as_json else "text",
        )
        if self.options.nats_url is None:  # certificates in the settings are for another server
            settings = replace(settings, nats_ca=None, nats_cert=None, nats_key=None, nats_credentials=None)
        environment = environment_for(settings)
        for service in self._members.get(name, (name,)):
            environment |= self.options.variables.get(service, {})
        return environment

    def _identity_of(self, process: str) -> str:
        """In Leases, where a service has the same identity, whichever services it shares its process with. A process
        of several services appends each one's kind, so a standby needs a name of its own.
        """
        members = self._members.get(process, (process,))
        shares = len(members) > 1 and set(SINGLE) <= set(members)
        return self._identity if shares else f"{self._identity}-{process}"

    async def _wait_until_ready(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        warn_at, told = began + WARN_INTERVAL, ("", 0.0)
        while not await self._all_ready():
            if self.failure.done():
                self.failure.result()
            if loop.time() > warn_at:
                warn_at += WARN_INTERVAL
                waiting = "; ".join(f"{names}: {reason}" for names, reason in by_reason(await self.unready()))
                if waiting and (waiting != told[0] or loop.time() > told[1] + WARN_AGAIN):
                    told = waiting, loop.time()
                    self.tell(f"waiting for {waiting}", "warning")
            if loop.time() > deadline and (unready := await self.unready()):
                reasons = "; ".join(f"{names}: {reason}" for names, reason in by_reason(unready))
                raise ClusterError(f"not ready after {self.options.start_patience:g} s: {reasons}")
            await asyncio.sleep(max(MIN_POLL, min(MAX_POLL, POLL_SHARE * (loop.time() - began))))

    async def _all_ready(self) -> bool:
        """Stops at the first service that is not ready: each request costs CPU that a starting service could use."""
        for name in self._services:
            if await self._why_unready(name):
                return False
        return True

    async def _why_unready(self, name: str) -> str:
        process = self._services[name].process
        if process is None:
            return "not started"
        if process.returncode is not None:
            return self._relay.last_of(name) or f"ended with exit code {process.returncode}"
        answer = await self.ask(name, "/readyz")
        if answer is None:
            return "does not answer yet"
        return "" if answer.status == 200 else reason_in(answer.body) or f"answers {answer.status}"

    async def _keep_running(self, child: Child, *, runs: bool) -> None:
        """Start the process again each time it ends, as the restart policy says. `runs`: it has been started."""
        pause: float | None = await self._until_end(child) if runs else 0.0
        again = runs
        while pause is not None:
            await asyncio.sleep(pause)
            problem = await _try_start(child)
            if problem is None:
                self._on_start(child, again=again)
                again = True
                pause = await self._until_end(child)
            elif isinstance(problem, UserError):  # no start helps
                raise problem
            else:
                pause = self._on_end(child.name, 1, str(problem))

    def _on_start(self, child: Child, *, again: bool = False) -> None:
        if child.process is not None:
            self._cpu.opened(child.name, child.process.pid)
            if again:
                self.tell(f"{child.name} runs again, as pid {child.process.pid}")
        self._restarts.on_start(child.name, asyncio.get_running_loop().time())

    async def _until_end(self, child: Child) -> float | None:
        assert child.process is not None
        code = await child.process.wait()
        self._cpu.closed(child.name, child.process.cpu if isinstance(child.process, ForkedProcess) else 0.0)
        if isinstance(child, Service):
            await child.flush()
        return self._on_end(child.name, code, self._relay.last_of(child.name) if code > 0 else "")

    def _on_end(self, name: str, code: int, reason: str) -> float | None:
        """Log the end. Returns the seconds until the restart; None if the pipeline fails instead."""
        pause = self._restarts.on_end(name, code, asyncio.get_running_loop().time())
        if pause is not None:
            why = f" ({reason})" if reason else ""
            self._relay.tell(f"{name} {end_of(code)}{why}; starts again in {pause:g} s", "warning")
        elif not self.failure.done():
            of_service = next((f"flotilla {kind}: " for kind in PRELOADED if f"flotilla {kind}: " in reason), "")
            complaint = self._complaint(reason.removeprefix(of_service))
            self.failure.set_exception(UserError(f"{name}: {complaint}"))
        return pause

    def _complaint(self, reason: str) -> str:
        """A service's error in words for the user of this pipeline, who cannot set the flags of a single service."""
        from shared.bus.access import where  # the supervisor itself needs none of what services import
        from shared.runtime.names import NAME_TAKEN

        if NAME_TAKEN not in reason:
            return reason or "bad configuration"
        nats = where(self.nats_url)
        return f"another flotilla up, or a service of this name, uses the NATS at {nats}: stop it, or use another NATS"

    async def _sample_cpu(self) -> None:
        while True:
            self._relay.settle()
            self._cpu.seconds()
            await asyncio.sleep(SAMPLE_INTERVAL)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """An unexpected error ends the pipeline: nothing awaits these tasks."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failure.done():
            self.failure.set_exception(error)

    async def _stop(self) -> None:
        """First all services at the same time, since they wait for each other; then the servers."""
        self._relay.status("")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(service.stop() for service in self._services.values()))
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        await self._fork_server.stop()
        self.failure.cancel()
        with suppress(asyncio.CancelledError, FlotillaError):
            self.failure.exception()


def by_reason(unready: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names of those with the same cause, comma-separated, and one of their reasons; most of them wait for the
    first.
    """
    names: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for name, reason in unready.items():
        cause = cause_in(reason)
        names.setdefault(cause, []).append(name)
        reasons.setdefault(cause, reason)
    return [(", ".join(of), reasons[cause]) for cause, of in sorted(names.items(), key=lambda each: -len(each[1]))]


def reason_in(unready: str) -> str:
    """Why a process is not ready, in one line, without "is starting" if there is any other reason. What several of its
    services say is there once.
    """
    lines = [line.strip() for line in unready.splitlines() if line.strip()]
    checks: dict[str, list[str]] = {}
    for line in [line for line in lines if not line.endswith(IS_STARTING)] or lines:
        check, _, why = line.partition(": ")
        checks.setdefault(why, []).append(check)
    return "; ".join(f"{', '.join(of)}: {why}" for why, of in checks.items())


async def _try_start(child: Child) -> FlotillaError | None:
    """Start the process; returns the error if that fails."""
    try:
        await child.start()
    except FlotillaError as error:
        return error
    except OSError as error:
        return ClusterError(f"{child.name} cannot be started: {error}")
    return None
