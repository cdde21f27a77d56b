"""host: runs the process of one or several services, from its settings to its exit code."""

import asyncio
import gc
import logging
import os
import random
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from shared.bus import Bus, NatsAccess
from shared.bus.link import Link
from shared.bus.subjects import CLI, check_name
from shared.config.document import read_config
from shared.config.settings import Settings
from shared.config.sources import unknown_variables
from shared.errors import ClusterError, Unexpected, UserError
from shared.runtime import stopping
from shared.runtime.context import Context, Health
from shared.runtime.corerunner import every
from shared.runtime.lease_thread import LeaseThread
from shared.runtime.pages import Pages
from shared.runtime.readiness import LOOK_INTERVAL, ReadinessLog
from shared.runtime.serving import Desk, Site, served, shared_desk
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


@dataclass(frozen=True, slots=True)
class Member:
    """A service of this process."""

    service: str
    settings: Settings
    main: Main

    @property
    def name(self) -> str:
        return self.settings.name


class MemberFailed(Exception):
    def __init__(self, service: str, failure: Exception) -> None:
        self.service = service
        self.failure = failure
        super().__init__(service, failure)


def host(service: str, settings: Settings, main: Main, site: Site | None = None) -> int:
    """Run `main` until it returns, fails, or SIGTERM or SIGINT asks it to end; return the exit code.

    `site`: of an onlooker, what it serves over HTTP besides the endpoints of every process. It asks services as the
    command line does, with the same rights.

    The code is 2, after one line, for what the user has to correct, and 1 for failures of the cluster or of ours.
    """
    return _host(service, settings, {service: main}, site)


def host_together(mains: Mapping[str, Main], settings: Settings) -> int:
    """Run several services, by their kind, in this process, which ends with the first one that ends; see `host`.

    Each has a name, an identity, a Lease, health and metrics of its own, as in a process of its own; messages between
    them need no socket.
    """
    return _host("+".join(mains), settings, mains, None)


def _host(title: str, settings: Settings, mains: Mapping[str, Main], site: Site | None) -> int:
    try:
        name = process_name(title, settings)
        members = [Member(service, replace(settings, name=name), main) for service, main in mains.items()]
        if len(members) > 1:
            members = [_named_after_service(each) for each in members]
        names = {member.service: member.name for member in members}
        set_up(title, name, format=settings.log_format, level=settings.log_level, names=names)
        _look_for_garbage_less_often()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_asked(title, _live(title, name, settings, members, site)))
    except MemberFailed as failed:
        return _tell(failed.service, failed.failure)
    except Exception as failure:
        return _tell(title, failure)
    return OK


def _named_after_service(member: Member) -> Member:
    """The Leases' candidates of one process differ as well."""
    settings, suffix = member.settings, f"-{member.service}"
    identity = settings.identity and settings.identity + suffix
    return replace(member, settings=replace(settings, name=settings.name + suffix, identity=identity))


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


async def _live(title: str, name: str, settings: Settings, members: Sequence[Member], site: Site | None) -> None:
    """Serve the endpoints, connect, and run the services."""
    config, log = read_config(settings.config), logger(title)
    alone = len(members) == 1
    telemetries = [_telemetry(each, alone=alone) for each in members]
    pages = [
        Pages(service=each.service, name=each.name, settings=each.settings, health=Health(), config=config)
        for each in members
    ]
    desks = [Desk(page, each.metrics) for page, each in zip(pages, telemetries, strict=True)]
    desk = desks[0] if alone else shared_desk(title, name, desks)
    async with AsyncExitStack() as closing:
        for telemetry in telemetries:
            closing.push_async_callback(asyncio.to_thread, telemetry.tracer.close)
        url = await closing.enter_async_context(served(settings, desk, site))
        log.info("%s is %s, at %s", title, name, url)
        for line in unknown_variables(os.environ):
            log.warning("%s", line)
        for note in settings.feature_gates.notes():
            log.warning("feature gate %s", note)

        def wait_for_nats(why: str) -> None:
            for page in pages:
                page.health.wait_for(NATS, why)

        wait_for_nats("not connected yet")
        link = await Link.open(NatsAccess.of(settings), name, log, on_away=wait_for_nats)
        closing.push_async_callback(link.close)
        leases, running = LeaseThread(), {}
        for member, page, telemetry in zip(members, pages, telemetries, strict=True):
            member_url = url if alone else f"{url}/{member.service}"
            run = _run(member, page, telemetry, link, leases, member_url, CLI if site else member.service)
            running[asyncio.create_task(run, name=member.service)] = member
        await _until_one_ends(running)


async def _run(
    member: Member, pages: Pages, telemetry: Telemetry, link: Link, leases: LeaseThread, url: str, role: str
) -> None:
    """Run a service. `role`: in whose inboxes replies come."""
    settings = member.settings
    gates = settings.feature_gates.effect()
    bus = await Bus.on(link, settings.prefix, telemetry, role=role, gates=gates)
    health = pages.health
    health.clear(NATS)
    health.check(NATS, lambda: "" if bus.connected else "the connection is lost")
    context = Context(
        service=member.service,
        name=member.name,
        settings=settings,
        bus=bus,
        telemetry=telemetry,
        health=health,
        http_url=url,
        validates=os.environ.get(VALIDATE) == "1",
        leases=leases,
    )
    if role == member.service:
        await StatusReporter(context, pages.began).listen()
    readiness = ReadinessLog(health, telemetry.log, context.clock)
    looking = asyncio.create_task(every(LOOK_INTERVAL, readiness.look), name="readiness")
    try:
        await member.main(context)
    finally:
        looking.cancel()
        await bus.close()


async def _until_one_ends(running: Mapping["asyncio.Task[None]", Member]) -> None:
    """Wait until a service ends, and end the others: one supervisor watches over all of them, and restarts them all."""
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in running if task.done()]
        await _cancel(running)
        for task in [*ended, *running]:
            failure = None if task.cancelled() else task.exception()
            if isinstance(failure, Exception):
                raise MemberFailed(running[task].service, failure)
    if any(task.cancelled() for task in ended):
        raise asyncio.CancelledError


async def _cancel(running: Mapping["asyncio.Task[None]", Member]) -> None:
    """Twice, if need be: before Python 3.12, asyncio.wait_for may lose a cancellation."""
    for _ in range(2):
        going = {task: member for task, member in running.items() if not task.done()}
        for task in going:
            task.cancel()
        if not going or not (await asyncio.wait(going, timeout=stopping.STOP_SECONDS))[1]:
            return
    names = ", ".join(member.service for task, member in running.items() if not task.done())
    logger(names).error("%s: no end within %s s: exiting at once", names, 2 * stopping.STOP_SECONDS)
    os._exit(FAILED)


def _sink(endpoint: str) -> "SpanSink":
    from shared.telemetry.export import SpanSink  # lazily: slow to import, and few processes export

    return SpanSink(endpoint)


def _telemetry(member: Member, *, alone: bool) -> Telemetry:
    settings = member.settings
    sink = _sink(settings.otlp_endpoint) if settings.otlp_endpoint else None
    tracer = Tracer(member.service, member.name, ratio=settings.trace_ratio, ids=random.Random(), sink=sink)
    return Telemetry(Metrics(of_process=alone), tracer, logger(member.service))


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
    _dumps.append(dump)
    loop.add_signal_handler(signal.SIGUSR2, _dump_all)
    try:
        yield
    finally:
        _dumps.remove(dump)
        if not _dumps:
            loop.remove_signal_handler(signal.SIGUSR2)


_dumps: list[Callable[[], None]] = []
"""Of the services of this process."""


def _dump_all() -> None:
    for dump in _dumps:
        dump()


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
