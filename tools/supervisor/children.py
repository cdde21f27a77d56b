"""Flotilla's own processes (services and the simulated API server): starting, watching and restarting them."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from shared.config.settings import Settings
from shared.config.sources import environment_of, unknown_variables, without_settings
from shared.errors import ClusterError
from tools.supervisor.forked_process import ForkServer
from tools.supervisor.probe import cpu_seconds, get, listening_port
from tools.supervisor.relay import Level, Relay
from tools.supervisor.servers import POLL, START_PATIENCE, STOP_PATIENCE, Process, end

NODE_PATIENCE = 0.04
"""Seconds for the simulator to make up a node: ten times what it takes on a machine of its own."""
FLUSH_TIMEOUT = 1.0
"""Seconds for the last output of a process that has ended to arrive."""
PROBE_INTERVAL = 5.0
PROBE_TIMEOUT = 2.0
WARN_AFTER = 2
"""Consecutive failed liveness probes; then a warning says when the service will be killed."""
MAX_FAILED_PROBES = 12
"""Consecutive; then the service is killed. Many, because on a loaded machine an answer may take long."""
MAX_IDLE_PROBES = 4
"""The same of a service that used no CPU since the first of them: load only makes a process slow, never idle."""
FIRST_PAUSE = 0.2
"""Seconds before the first restart; doubled for each consecutive failure."""
LONGEST_PAUSE = 10.0
HEALTHY_AFTER = 30.0
"""Seconds of running after which earlier failures no longer count."""
BAD_CONFIGURATION = 2
"""Exit code of a service that no restart would help."""


class Child(Protocol):
    """A process that can be started again after it has ended."""

    @property
    def name(self) -> str: ...

    @property
    def process(self) -> Process | None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Service:
    """`python -m MODULE ARGUMENTS`, with its settings in the environment."""

    def __init__(
        self,
        name: str,
        module: str,
        environment: Mapping[str, str],
        relay: Relay,
        fork_server: ForkServer,
        arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.process: Process | None = None
        self._fork_server = fork_server
        self._module = module
        self._arguments = arguments
        self._environment = environment
        self._relay = relay
        self._following: asyncio.Task[None] | None = None
        self._found: tuple[int, int] | None = None
        """Pid and port."""

    async def start(self) -> None:
        await self._launch(self._arguments)

    async def stop(self) -> None:
        """Terminate it, kill it if it does not end, and pass on its last output."""
        if self.process is not None:
            await end(self.process, STOP_PATIENCE)
        await self.flush()

    async def flush(self) -> None:
        """Wait for the last output of a process that has ended; a grandchild may hold it open."""
        if self._following is not None:
            await asyncio.wait({self._following}, timeout=FLUSH_TIMEOUT)

    @property
    def port(self) -> int | None:
        """Where it serves HTTP; None while it does not."""
        if self.process is None or self.process.returncode is not None:
            return None
        pid = self.process.pid
        if self._found is None or self._found[0] != pid:
            port = listening_port(pid)
            self._found = None if port is None else (pid, port)
        return None if self._found is None else self._found[1]

    async def _launch(self, arguments: Sequence[str] = ()) -> Process:
        self.process = process = await self._fork_server.launch(self._module, arguments, self._environment, self.name)
        self._following = asyncio.create_task(self._relay.follow(self.name, process.output))
        return process


class Simulator(Service):
    """The API server of a simulated cluster. After a restart it has the same address, and is as new.

    It requires no token: it is for this machine only, nothing in it is real, and kubectl sends none without TLS.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        relay: Relay,
        fork_server: ForkServer,
        nodes: int = 0,
        *,
        kubelets: bool = True,
    ) -> None:
        super().__init__("simulator", "testing.simulator", environment, relay, fork_server)
        self._nodes = nodes
        self._flags = [] if kubelets else ["--no-kubelet"]
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Returns once it replies; if it does not, or this is cancelled, no process is left."""
        process = await self._launch(["--port", str(self._port), "--nodes", str(self._nodes), *self._flags])
        loop = asyncio.get_running_loop()
        patience = START_PATIENCE + NODE_PATIENCE * self._nodes
        deadline = loop.time() + patience
        try:
            while process.returncode is None and loop.time() < deadline:
                port = self.port
                if port is not None and await get(port, "/readyz") is not None:
                    self._port = port
                    return
                await asyncio.sleep(POLL)
            await self.flush()
            how = f"is not ready after {patience:g} s" if process.returncode is None else "has ended"
            raise ClusterError(f"the simulator {how}: {self._relay.last_of(self.name) or 'it has no output'}")
        except BaseException:
            await end(process, 0)
            raise


def environment_for(settings: Settings) -> dict[str, str]:
    """This process's environment, with these settings only; what it has of unknown ones is reported once, by `up`.

    Linear algebra gets no threads: they would be idle.
    """
    unknown = {line.partition(":")[0] for line in unknown_variables(os.environ)}
    inherited = {key: value for key, value in without_settings(os.environ).items() if key not in unknown}
    return inherited | {"OPENBLAS_NUM_THREADS": "1"} | environment_of(settings)


async def kill_when_frozen(service: Service, tell: Callable[[str, Level], None]) -> None:
    """Probe the service as long as the pipeline runs, and kill it after many failed liveness probes in a row.

    Probes are counted instead of seconds: while this process is suspended itself there are no probes.
    """
    probed, failed, cpu = None, 0, None
    while True:
        await asyncio.sleep(PROBE_INTERVAL)
        process = service.process
        if process is None or process.returncode is not None or process is not probed:
            probed, failed = process, 0
        if process is None or process.returncode is not None:
            continue
        port = service.port
        answer = None if port is None else await get(port, "/livez", PROBE_TIMEOUT)
        if answer is not None:
            if failed >= WARN_AFTER:
                tell(f"{service.name} (pid {process.pid}) answers again", "info")
            failed = 0
            continue
        failed += 1
        used = cpu_seconds(process.pid)
        if failed == 1:
            cpu = used
        idle = used is not None and used == cpu
        most = MAX_IDLE_PROBES if idle else MAX_FAILED_PROBES
        what = f"{service.name} (pid {process.pid})"
        if failed == WARN_AFTER < most:
            silent, ends = (f"{count * (PROBE_INTERVAL + PROBE_TIMEOUT):g} s" for count in (failed, most))
            tell(
                f"{what} does not answer{' or run' if idle else ''} for {silent}; it is killed after {ends}", "warning"
            )
        if failed >= most:
            frozen = ", and used no CPU meanwhile" if idle else ""
            tell(f"{service.name} is killed: it has not answered {failed} liveness probes in a row{frozen}", "warning")
            process.kill()
            failed = 0


class RestartPolicy:
    """When a process that has ended is started again, by name.

    The pause doubles with each consecutive failure. There is no restart after exit code 2, bad configuration, of a
    process in `configured`.
    """

    def __init__(self, configured: Iterable[str]) -> None:
        self._configured = frozenset(configured)
        self._failures: dict[str, int] = {}
        self._started: dict[str, float] = {}

    def on_start(self, name: str, now: float) -> None:
        self._started[name] = now

    def on_end(self, name: str, code: int, now: float) -> float | None:
        """Seconds until the restart of a process that has ended or could not be started; None: never."""
        started = self._started.pop(name, None)
        if code == BAD_CONFIGURATION and name in self._configured:
            return None
        failures = self._failures.get(name, 0)
        if started is not None and now - started >= HEALTHY_AFTER:
            failures = 0
        self._failures[name] = failures + 1
        return LONGEST_PAUSE if failures > 10 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**failures)


def end_of(code: int) -> str:
    """How a process ended, in words. A negative code is the signal that ended it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
