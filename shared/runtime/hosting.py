"""host: runs a service's process, from its settings to its exit code."""

import asyncio
import gc
import logging
import os
import random
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from shared.bus import Bus, NatsAccess
from shared.bus.subjects import CLI, check_name
from shared.config.document import read_config
from shared.config.settings import Settings
from shared.config.sources import unknown_variables
from shared.errors import ClusterError, Unexpected, UserError
from shared.runtime import stopping
from shared.runtime.context import Context, Health
from shared.runtime.corerunner import every
from shared.runtime.pages import Pages
from shared.runtime.readiness import LOOK_INTERVAL, ReadinessLog
from shared.runtime.serving import Site, served
from shared.runtime.status import StatusReporter
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger, set_up
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer

if TYPE_CHECKING:
    import cProfile

    from shared.telemetry.export import SpanSink

OK, FAILED, USER_ERROR, SIGNALLED = 0, 1, 2, 128
SAME_REQUEST = 1.0
"""Seconds in which a further SIGTERM counts as the same request."""
GARBAGE_AFTER = 20_000
"""Newly allocated objects."""
OLDER_GARBAGE_AFTER = 5, 80
"""Collections of the younger generation: of the second one often, so that none looks at more than 100,000 objects."""
NATS = "nats"
PROFILE = "FLOTILLA_PROFILE"
"""A file: SIGUSR2 starts and stops the profiler, for benchmarks; when stopped, it writes the file in pstats' format."""
VALIDATE = "FLOTILLA_VALIDATE"
"""Set to 1: every core validates itself after every event."""

Main = Callable[[Context], Awaitable[None]]


def host(service: str, settings: Settings, main: Main, site: Site | None = None) -> int:
    """Run `main` until it returns, fails, or SIGTERM or SIGINT asks it to end; return the exit code.

    `site`: of an onlooker, what it serves over HTTP besides the endpoints of every process. It asks services as the
    command line does, with the same rights.

    The code is 2, after one line, for what the user has to correct, and 1 for failures of the cluster or of ours.
    """
    try:
        name = process_name(service, settings)
        set_up(service, name, format=settings.log_format, level=settings.log_level)
        _look_for_garbage_less_often()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_asked(service, _live(service, name, settings, main, site)))
    except Exception as failure:
        return _tell(service, failure)
    return OK


def process_name(service: str, settings: Settings) -> str:
    if settings.name:
        return check_name(settings.name, "the name")
    return re.sub(r"[^A-Za-z0-9_-]", "-", f"{service}-{socket.gethostname()}-{os.getpid()}")


def _look_for_garbage_less_often() -> None:
    """A service's state is large, long-lived and has few cycles, so a collection costs more than it frees."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, *OLDER_GARBAGE_AFTER)


async def _until_asked(service: str, life: Coroutine[None, None, None]) -> None:
    """Run until it ends or a signal cancels it; a second signal exits at once.

    A SIGTERM right after the first is the same request, sent both to the process group and by the parent.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(life)
    asked, asked_at = False, 0.0

    def give_up() -> None:
        logger(service).error("%s does not end within %s s: exiting at once", service, stopping.STOP_SECONDS)
        os._exit(FAILED)

    def ask(number: signal.Signals) -> None:
        nonlocal asked, asked_at
        if asked:
            if number == signal.SIGTERM and loop.time() - asked_at < SAME_REQUEST:
                return
            os._exit(SIGNALLED + number)
        asked, asked_at = True, loop.time()
        loop.call_later(stopping.STOP_SECONDS, give_up)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    _handle_sigusr2(logger(service))
    try:
        await task
    except asyncio.CancelledError:
        if not asked:
            raise


async def _live(service: str, name: str, settings: Settings, main: Main, site: Site | None) -> None:
    config = read_config(settings.config)
    telemetry = _telemetry(service, name, settings)
    health = Health()
    pages = Pages(service=service, name=name, settings=settings, health=health, config=config)
    try:
        async with served(settings, pages, telemetry.metrics, site) as url:
            telemetry.log.info("%s is %s, at %s", service, name, url)
            for line in unknown_variables(os.environ):
                telemetry.log.warning("%s", line)
            for note in settings.feature_gates.notes():
                telemetry.log.warning("feature gate %s", note)
            health.wait_for(NATS, "not connected yet")
            gates = settings.feature_gates.effect()
            access = NatsAccess.of(settings)
            role = service if site is None else CLI
            bus = await Bus.connect(access, settings.prefix, name, telemetry, role=role, gates=gates)
            health.clear(NATS)
            health.check(NATS, lambda: "" if bus.connected else "the connection is lost")
            context = Context(
                service=service,
                name=name,
                settings=settings,
                bus=bus,
                telemetry=telemetry,
                health=health,
                http_url=url,
                validates=os.environ.get(VALIDATE) == "1",
            )
            if site is None:
                await StatusReporter(context, pages.began).listen()
            readiness = ReadinessLog(health, telemetry.log, context.clock)
            looking = asyncio.create_task(every(LOOK_INTERVAL, readiness.look), name="readiness")
            try:
                await main(context)
            finally:
                looking.cancel()
                await bus.close()
    finally:
        await asyncio.to_thread(telemetry.tracer.close)


def _sink(endpoint: str) -> "SpanSink":
    from shared.telemetry.export import SpanSink  # lazily: slow to import, and few processes export

    return SpanSink(endpoint)


def _telemetry(service: str, name: str, settings: Settings) -> Telemetry:
    sink = _sink(settings.otlp_endpoint) if settings.otlp_endpoint else None
    tracer = Tracer(service, name, ratio=settings.trace_ratio, ids=random.Random(), sink=sink)
    return Telemetry(Metrics(), tracer, logger(service))


def _tell(service: str, failure: Exception) -> int:
    """Log one line for what the user or the cluster has to correct, a traceback for our own failures.

    The traceback of a fault is in the log already.
    """
    cause = _only_cause(failure)
    if isinstance(cause, UserError):
        print(f"flotilla {service}: {' '.join(str(cause).split())}", file=sys.stderr)
        return USER_ERROR
    if isinstance(cause, ClusterError | Unexpected):
        logger(service).error("%s ends: %s", service, cause)
    else:
        logger(service).error("%s has failed", service, exc_info=failure)
    return FAILED


def _only_cause(failure: BaseException) -> BaseException:
    """The first exception of a group that holds only known ones."""
    known = (UserError, ClusterError, Unexpected)
    while isinstance(failure, BaseExceptionGroup) and failure.split(known)[1] is None:
        failure = failure.exceptions[0]
    return failure


def _handle_sigusr2(log: logging.Logger) -> None:
    """Install the handler of a service without a dump; unhandled, the signal would end the process."""
    path = os.environ.get(PROFILE)
    loop = asyncio.get_running_loop()
    if path:
        loop.add_signal_handler(signal.SIGUSR2, _Profiler(Path(path)).toggle)
    else:
        loop.add_signal_handler(signal.SIGUSR2, log.info, "SIGUSR2: only the queue and the snapshot can dump")


@contextmanager
def on_dump_signal(dump: Callable[[], None]) -> Iterator[None]:
    """While the context lasts, SIGUSR2 dumps the service's state to its log, as in kube-scheduler's cache debugger."""
    if os.environ.get(PROFILE):
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, dump)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGUSR2)


class _Profiler:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._profile: cProfile.Profile | None = None

    def toggle(self) -> None:
        if self._profile is None:
            import cProfile

            self._profile = cProfile.Profile()
            self._profile.enable()
            return
        self._profile.disable()
        unfinished = self._path.with_suffix(".unfinished")
        self._profile.dump_stats(unfinished)
        unfinished.replace(self._path)
        self._profile = None
