"""A whole Flotilla on one machine: servers where there are none, and all services, kept running until the end.

However it ends (an error, a signal, in the middle of starting) no process and no file is left.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL

from shared.config.settings import ApiSettings
from shared.errors import ClusterError, FlotillaError, UserError
from tools.supervisor.children import Child, Service, Simulator, environment_for
from tools.supervisor.core import SupervisorCore
from tools.supervisor.cpu import CpuAccounts
from tools.supervisor.events import Effect, Ended, Event, GiveUp, Launch, Started, Stopping, Tell
from tools.supervisor.freezing import mind
from tools.supervisor.hostidentity import HostIdentity, host_identity
from tools.supervisor.nursery import PRELOADED
from tools.supervisor.offspring import Nursery
from tools.supervisor.options import PipelineOptions
from tools.supervisor.probe import Answer, get
from tools.supervisor.relay import Level, Relay
from tools.supervisor.servers import NatsServer, RedisServer, temporary_folder

SAMPLE_EVERY = 0.5
"""Seconds between looks at the CPU time of processes, which cannot be read once they are gone."""
READY_POLL = 0.05
LONGEST_POLL = 0.5
POLL_SHARE = 0.05
"""Of the time that has passed: what takes long is looked at less often."""
TELL_EVERY = 10.0
"""Seconds between two words on who is not ready yet."""
IS_STARTING = "service: is starting"
"""What a service answers that has nothing else to say yet."""
STANDS_BY = "ok: standby, "
"""Begins a service's answer while another one leads."""
EMBEDDED = ("nats-server", "redis-server", "simulator")
"""Servers that a pipeline has of its own where none is given."""


class Pipeline:
    """Use `running`. `failure` is set when a process made going on senseless."""

    def __init__(self, options: PipelineOptions, folder: Path, relay: Relay, identity: HostIdentity) -> None:
        self.options = options
        self.folder = folder
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._relay = relay
        self._nursery = Nursery(identity.inherited)
        self._kinds = options.services()
        self._servers: dict[str, NatsServer | RedisServer | Simulator] = {}
        self._services: dict[str, Service] = {}
        self._core = SupervisorCore([*self._kinds, *EMBEDDED], self._kinds)
        self._cpu = CpuAccounts()
        self._tasks: set[asyncio.Task[None]] = set()
        self._identity = identity.name
        """The same for all that is started here: who is started again need not wait for its own Lease to run out."""

    @classmethod
    @asynccontextmanager
    async def running(
        cls, options: PipelineOptions, check: Callable[[], None] | None = None
    ) -> AsyncIterator["Pipeline"]:
        """Everything is ready inside, but what is held.

        `check`: raises what speaks against starting services. Meanwhile NATS and Redis start and modules are imported;
        nothing that writes to the output does.
        UserError: cannot be as it was told to be; ClusterError: does not get ready.
        """
        async with host_identity() as identity, temporary_folder() as folder:
            identity.owns(folder)
            with ExitStack() as stack:
                output = options.output or stack.enter_context((folder / "services.log").open("w"))
                width = max(map(len, (*options.services(), *EMBEDDED)))
                relay = Relay(output, as_json=options.as_json, width=width)
                pipeline = cls(options, folder, relay, identity)
                try:
                    await pipeline._start(check)
                    yield pipeline
                finally:
                    await pipeline._stop()

    @property
    def processes(self) -> dict[str, int]:
        """The pid of each process that runs, by name."""
        children: dict[str, Child] = {**self._servers, **self._services}
        return {
            name: child.process.pid
            for name, child in children.items()
            if child.process is not None and child.process.returncode is None
        }

    @property
    def api_url(self) -> str | None:
        """None where a kubeconfig or the cluster around us tells."""
        return self.api.server

    @property
    def api(self) -> ApiSettings:
        if self.options.api is not None:
            return self.options.api
        simulator = self._servers["simulator"]
        assert isinstance(simulator, Simulator)
        return ApiSettings(server=simulator.url)

    @property
    def nats_url(self) -> str:
        return self.options.nats_url or self._servers["nats-server"].url

    @property
    def redis_url(self) -> str:
        return self.options.redis_url or self._servers["redis-server"].url

    @property
    def log_lines(self) -> list[str]:
        """The last lines that the services said, each as `name | line`."""
        return self._relay.lines

    def tell(self, text: str, level: Level = "info") -> None:
        """Among the lines of the services."""
        self._relay.tell(text, level)

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU by process, summed over restarts, as of the last half second at most for those that ended."""
        return self._cpu.seconds()

    def kill(self, name: str) -> None:
        """As a crash would."""
        self.signal(name, SIGKILL)

    def signal(self, name: str, number: int) -> None:
        """To this process, if it runs."""
        child = self._servers.get(name) or self._services[name]
        if child.process is not None and child.process.returncode is None:
            child.process.send_signal(number)

    def port(self, name: str) -> int | None:
        """Where a service answers HTTP; none while it does not."""
        return None if name in self.options.held - self._services.keys() else self._services[name].port

    async def ask(self, name: str, path: str) -> Answer | None:
        """A service's answer to a GET; none while it has none."""
        port = self.port(name)
        return None if port is None else await get(port, path)

    async def unready(self) -> dict[str, str]:
        """Why, by name, of each service that is not ready now."""
        names = [name for name in self._kinds if name in self._services]
        reasons = await asyncio.gather(*map(self._why_unready, names))
        return {name: reason for name, reason in zip(names, reasons, strict=True) if reason}

    async def standing_by(self) -> dict[str, str]:
        """Who leads instead, by name, of each service that stands by."""
        names = [name for name in self._kinds if name in self._services]
        answers = await asyncio.gather(*(self.ask(name, "/readyz") for name in names))
        said = {name: answer.body.strip() for name, answer in zip(names, answers, strict=True) if answer is not None}
        return {
            name: text.removeprefix(STANDS_BY).removesuffix(" leads")
            for name, text in said.items()
            if text.startswith(STANDS_BY)
        }

    async def release(self) -> None:
        """Starts what is held, and returns once it is ready; ClusterError if that does not come."""
        for name in sorted(self.options.held - self._services.keys()):
            self._add(name)
        await self._wait_until_ready(self._start_deadline())

    async def _start(self, check: Callable[[], None] | None) -> None:
        deadline = self._start_deadline()
        await self._nursery.prepare()
        self._spawn(self._sample())
        self._servers = self._own_servers()
        silent = [server for server in self._servers.values() if not isinstance(server, Simulator)]
        speaking = [server for server in self._servers.values() if isinstance(server, Simulator)]
        problems = asyncio.gather(*map(_attempt, silent))
        try:
            if check is not None:
                await asyncio.to_thread(check)
            found = [await _attempt(server) for server in speaking]
            problem = next(filter(None, [*await problems, *found]), None)
        finally:
            problems.cancel()
            await asyncio.gather(problems, return_exceptions=True)
        if problem is not None:
            raise problem
        for server in self._servers.values():
            self._began(server)
            self._spawn(self._keep(server, runs=True))
        for name in sorted(self._kinds, key=lambda name: PRELOADED.index(self._kinds[name])):
            if name not in self.options.held:
                self._add(name)
        await self._wait_until_ready(deadline)

    def _start_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.options.start_patience

    def _add(self, name: str) -> None:
        module = f"services.{self._kinds[name]}"
        self._services[name] = Service(name, module, self._environment(name), self._relay, self._nursery)
        self._spawn(self._keep(self._services[name], runs=False))
        self._spawn(mind(self._services[name], self.tell))

    def _own_servers(self) -> dict[str, NatsServer | RedisServer | Simulator]:
        servers: list[NatsServer | RedisServer | Simulator] = []
        if self.options.nats_url is None:
            servers.append(NatsServer(self.folder))
        if self.options.redis_url is None:
            servers.append(RedisServer(self.folder))
        if self.options.api is None:
            servers.append(Simulator(environment_for(self.options.settings), self._relay, self._nursery))
        return {server.name: server for server in servers}

    def _environment(self, name: str) -> dict[str, str]:
        settings = replace(
            self.options.settings,
            name=name,
            identity=f"{self._identity}-{name}",
            expected_workers=self.options.workers,
            nats_url=self.nats_url,
            redis_url=self.redis_url,
            api=self.api,
            http_host="127.0.0.1",
            http_port=0,
            http_scheme="http",
            log_format="json" if self.options.as_json else "text",
        )
        if self.options.nats_url is None:  # what is said of certificates is for another server than ours
            settings = replace(settings, nats_ca=None, nats_cert=None, nats_key=None, nats_credentials=None)
        return environment_for(settings) | dict(self.options.variables.get(name, {}))

    async def _wait_until_ready(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        tell_at = began + TELL_EVERY
        while not await self._all_ready():
            if self.failure.done():
                self.failure.result()
            if loop.time() > tell_at:
                tell_at += TELL_EVERY
                for name, reason in (await self.unready()).items():
                    self.tell(f"{name} is not ready yet: {reason}", "warning")
            if loop.time() > deadline:
                reasons = ", ".join(f"{name} ({reason})" for name, reason in (await self.unready()).items())
                raise ClusterError(f"not ready after {self.options.start_patience:g} s: {reasons}")
            await asyncio.sleep(max(READY_POLL, min(LONGEST_POLL, POLL_SHARE * (loop.time() - began))))

    async def _all_ready(self) -> bool:
        """Stops asking at the first that is not: each question costs CPU that a starting service could use."""
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

    async def _keep(self, child: Child, *, runs: bool) -> None:
        """Waits for its end and starts it again, until that is senseless."""
        pause: float | None = 0.0
        if runs:
            pause = await self._until_it_ends(child)
        while pause is not None:
            await asyncio.sleep(pause)
            problem = await _attempt(child)
            if problem is None:
                self._began(child)
                pause = await self._until_it_ends(child)
            else:
                pause = self._handle(Ended(child.name, 1, str(problem)))

    def _began(self, child: Child) -> None:
        if child.process is not None:
            self._cpu.opened(child.name, child.process.pid)
        self._handle(Started(child.name))

    async def _until_it_ends(self, child: Child) -> float | None:
        """Seconds until it is to be started again; none: not any more."""
        assert child.process is not None
        code = await child.process.wait()
        self._cpu.closed(child.name)
        if isinstance(child, Service):
            await child.last_words()
        return self._handle(Ended(child.name, code, self._relay.last_of(child.name) if code > 0 else ""))

    def _handle(self, event: Event) -> float | None:
        """Carries out the effects, and returns the pause before a launch if there is to be one."""
        pause: float | None = None
        for effect in self._core.handle(event, asyncio.get_running_loop().time()):
            pause = self._carry_out(effect)
        return pause

    def _carry_out(self, effect: Effect) -> float | None:
        match effect:
            case Launch(after=after):
                return after
            case Tell(name, text):
                self._relay.tell(f"{name} {text}", "warning")
            case GiveUp(name, reason):
                if not self.failure.done():
                    complaint = self._complaint(reason.removeprefix(f"flotilla {self._kinds[name]}: "))
                    self.failure.set_exception(UserError(f"{name}: {complaint}"))
        return None

    def _complaint(self, reason: str) -> str:
        """In words for whoever started this pipeline, whose services have no flags of their own."""
        from shared.bus.access import where  # the supervisor itself needs none of what services import
        from shared.runtime.names import NAME_TAKEN

        if NAME_TAKEN in reason:
            nats = where(self.nats_url)
            return (
                f"another flotilla up, or a service of this name, uses the NATS at {nats}: stop it, or use another NATS"
            )
        return reason or "bad configuration"

    async def _sample(self) -> None:
        while True:
            self._cpu.seconds()
            await asyncio.sleep(SAMPLE_EVERY)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._noticed)

    def _noticed(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for these tasks, so their mistakes are to be heard of here."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failure.done():
            self.failure.set_exception(error)

    async def _stop(self) -> None:
        """First all services together, each of which waits for the others as long as it has to; then the servers."""
        self._handle(Stopping())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(service.stop() for service in self._services.values()))
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        await self._nursery.stop()
        self.failure.cancel()
        with suppress(asyncio.CancelledError, FlotillaError):
            self.failure.exception()


def reason_in(unready: str) -> str:
    """Why a service is not ready, in one line. That it is starting is only said where it says nothing else."""
    reasons = [line.strip() for line in unready.splitlines() if line.strip()]
    return "; ".join([reason for reason in reasons if reason != IS_STARTING] or reasons)


async def _attempt(child: Child) -> FlotillaError | None:
    """Starts it; why that did not work, if it did not."""
    try:
        await child.start()
    except FlotillaError as error:
        return error
    except OSError as error:
        return ClusterError(f"{child.name} cannot be started: {error}")
    return None
