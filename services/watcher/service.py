"""The watcher's shell: lists and watches at the API server, publishes the stream on the bus."""

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from services.watcher.core import WatcherCore
from services.watcher.events import (
    Beat,
    Effect,
    Event,
    FollowersRead,
    KindMissing,
    KindUnavailable,
    ListAgain,
    NewestShown,
    ObjectSkipped,
    Publish,
    Received,
    RelistRequested,
    ReportProblem,
    StaleState,
    Tick,
)
from services.watcher.flow_control import FlowControl
from services.watcher.metrics import WatchMetrics, WatchSpans
from services.watcher.problem_reporter import ProblemReporter
from services.watcher.resources import RESOURCES, WatchedResource
from shared.bus import Envelope, Subscription
from shared.bus.subjects import WATCH, WATCHER_GROUP, WATCHER_LIST, WATCHER_RELIST, WATCHER_SEEN
from shared.config.document import read_config
from shared.errors import ClusterError
from shared.framework.loading import load_scheduler_config
from shared.kube.access import client_connection
from shared.kube.client import KubeClient
from shared.kube.errors import Gone, Refused
from shared.kube.listwatch import (
    PAGE,
    Interruption,
    ListDone,
    ListPage,
    ListWatch,
    ListWatchEvent,
    ObjectEvents,
    WatchStarted,
)
from shared.kube.wire import WatchEvent
from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.watch import (
    OBJECT_KINDS,
    Kind,
    KindListed,
    ListKind,
    Relist,
    WatchBeat,
    Watched,
    WatchSeen,
)
from shared.model.base import version_number
from shared.model.kinds import DEVICE_KINDS, GROUP_KINDS
from shared.pace import Pace
from shared.runtime import Context, CoreRunner, every
from shared.runtime.context import Watchdog
from shared.runtime.joining import joined
from shared.runtime.leadership import LaterTerm, leadership
from shared.telemetry.logs import Repeated
from shared.watch_progress import size_of_all, ungrouped_size

PAUSE_PER_RATE = 0.000045
"""Seconds until a kind is read again, for each change in a second: 20 ms at 150 pods/s that change three times each."""
LONGEST_PAUSE = 0.03
"""Seconds that a kind is left unread, at most: each message costs every follower, however small it is."""
QUIET_PAUSE = 0.005
"""Seconds that a kind is left unread after changes that nobody has to hear of yet."""
FULL_READ = 1 << 16
"""Bytes of changes; after as many, the kernel may hold more, so a kind is read again at once."""
BEAT = 1.0
"""Seconds between two heartbeats."""
MISSING_PAUSE = 60.0
"""Seconds until a kind that the server does not serve is requested again."""
FLOW_CHECK = 0.5
"""Seconds between two checks whether silent followers still count."""
FOLLOWERS = 2
"""A queue and a snapshot."""
FOLLOWERS_PATIENCE = 0.5
"""Seconds to wait for them before the first listing; for one that joins in the middle, a listing starts again."""
DENIALS = frozenset({403, 404})
RESTORED = "if etcd was restored from a backup, restart Flotilla"


async def main(context: Context) -> None:
    source = read_config(context.settings.config)
    config, given = load_scheduler_config(source, context.settings.feature_gates), client_connection(source)
    schedulers = frozenset(profile.scheduler_name for profile in config.profiles)
    client = await KubeClient.open(context.settings.api, context.telemetry, given)
    standby, lease = Standby(context), f"{context.settings.prefix}-watcher"
    try:
        async with (
            joined(context, config.leader_election, given),
            leadership(context, config.leader_election, lease, given, stand_by=standby.run) as lead,
        ):
            last = await standby.end()
            if last is not None:
                context.log.info("resumes the stream after message %d of term %d", last.seq, last.epoch)
            core = WatcherCore(lead.epoch, schedulers, last)
            shell = Shell(context, client, core, schedulers, LaterTerm(context, lead.raise_term))
            await lead.during(shell.run())
    finally:
        await client.close()


class Standby:
    """Hears where the leader's stream can be resumed: by its last message, if nothing came after it."""

    def __init__(self, context: Context) -> None:
        self._bus = context.bus
        self._subscription: Subscription[Watched | WatchBeat] | None = None
        self._position = (0, 0)
        self._last: WatchBeat | None = None

    async def run(self) -> None:
        self._subscription = await self._bus.subscribe(WATCH, (Watched, WatchBeat), self._on_message)
        await asyncio.Event().wait()

    async def end(self) -> WatchBeat | None:
        """The message to go on after; None if everything must be listed."""
        if self._subscription is not None:
            await self._subscription.close()
        return self._last

    def _on_message(self, message: Watched | WatchBeat, envelope: Envelope) -> None:
        if (message.epoch, message.seq) < self._position:
            return
        self._position = message.epoch, message.seq
        self._last = message if isinstance(message, WatchBeat) and message.resume else None


class Shell:
    def __init__(
        self,
        context: Context,
        client: KubeClient,
        core: WatcherCore,
        schedulers: frozenset[str],
        later_term: LaterTerm,
    ) -> None:
        self._context = context
        self._later_term = later_term
        self._bus = context.bus
        self._core = core
        self._server = client.server
        self._repeated = Repeated(context.log)
        self._metrics = WatchMetrics(context.metrics)
        self._spans = WatchSpans(context.tracer, schedulers)
        self._reporter = ProblemReporter(
            client, schedulers, context.name, context.wall, self._repeated, context.metrics
        )
        self._runner: CoreRunner[Event, Effect] = CoreRunner(core, Tick(), self._carry_out, context, core.validate)
        self._listwatches = {kind: self._listwatch(client, resource) for kind, resource in RESOURCES.items()}
        self._outgoing: list[Watched | WatchBeat] = []
        self._gathers = False
        """Whether messages are gathered to be sent together."""
        self._paces = {kind: Pace(LONGEST_PAUSE, PAUSE_PER_RATE) for kind in RESOURCES}
        self._stale: dict[Kind, str] = {}
        self._flow = FlowControl(core.epoch)
        self._caught_up = asyncio.Event()
        context.reported.positions["watch"] = lambda: core.seq
        said = "no queue or snapshot follows this watcher"
        self._known: set[str] = set()
        self._all_follow = asyncio.Event()
        self._followers = Watchdog(context.health, context.clock, "followers", said)

    async def run(self) -> None:
        for resource in RESOURCES.values():
            self._context.health.wait_for(resource.plural, "are not listed yet")
        self._context.health.ready()
        await self._bus.subscribe(WATCHER_LIST, ListKind, self._on_list, group=WATCHER_GROUP)
        await self._bus.subscribe(WATCHER_RELIST, Relist, self._on_relist, group=WATCHER_GROUP)
        await self._bus.subscribe(WATCHER_SEEN, WatchSeen, self._on_seen)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(BEAT, self._beat))
                tasks.create_task(self._list())
                tasks.create_task(self._reporter.run())
                tasks.create_task(self._context.fault.raised())
        except asyncio.CancelledError:
            self._runner.feed(Beat())  # by which a standby goes on
            raise
        finally:
            self._runner.close()

    async def _list(self) -> None:
        resumed = self._core.resumed
        for kind, version in resumed.items():
            self._listwatches[kind].resume(str(version))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.0 if resumed else FOLLOWERS_PATIENCE):
                await self._all_follow.wait()
        if self._core.is_resumed():
            for listwatch in self._listwatches.values():
                listwatch.list_in_pages()
        async with asyncio.TaskGroup() as tasks:
            for listwatch in self._listwatches.values():
                tasks.create_task(listwatch.run())

    # Input

    def _listwatch(self, client: KubeClient, resource: WatchedResource) -> ListWatch:
        hear = partial(self._hear, resource.kind)
        others = resource.older_paths
        return ListWatch(client, resource.path, hear, random.Random(), selector=resource.selector, others=others)

    async def _hear(self, kind: Kind, said: ListWatchEvent) -> None:
        match said:
            case Interruption():
                await self._on_trouble(RESOURCES[kind], said)
                return
            case WatchStarted():
                self._context.health.clear(RESOURCES[kind].plural)
            case ObjectEvents(events=events):
                self._metrics.count(kind, [event.type for event in events])
            case ListPage(objects=objects):
                self._metrics.count(kind, ["LISTED"] * len(objects))
            case ListDone():
                self._metrics.listings.labels(kind).inc()
        began = self._context.clock()
        self._gather(Received(kind, said, self._context.wall()))
        if isinstance(said, ObjectEvents) and not (self._outgoing or kind in self._stale):
            await asyncio.sleep(QUIET_PAUSE)
            return  # they are sent with another change
        await self._send(began)
        self._metrics.lag.observe(self._context.clock() - began)
        if kind in self._stale:
            raise Gone(self._server, RESOURCES[kind].path, 0, f"{self._stale.pop(kind)}; {RESTORED}")
        await self._wait_for_followers()
        if isinstance(said, ObjectEvents):
            await self._let_more_come(kind, said.events, began)

    async def _let_more_come(self, kind: Kind, changes: Sequence[WatchEvent], read_at: float) -> None:
        """Changes that come meanwhile wait in the connection and are read together."""
        pace = self._paces[kind]
        pace.began(len(changes), read_at)
        pause = pace.not_before - self._context.clock()
        if pause > 0 and sum(len(memoryview(change.object)) for change in changes) < FULL_READ:
            await asyncio.sleep(pause)

    async def _on_trouble(self, resource: WatchedResource, trouble: Interruption) -> None:
        """Returns when the list or watch is to be tried again."""
        kind, plural, cause = resource.kind, resource.plural, trouble.cause
        self._metrics.troubles.labels(kind).inc()
        if not resource.required and isinstance(cause, Refused) and cause.status in DENIALS:
            self._gather(KindUnavailable(kind, str(cause)))
            await self._send()
            if self._core.is_missing(kind):
                await asyncio.sleep(MISSING_PAUSE)
                return
        self._repeated.warning(f"{kind} {type(cause).__name__}", "%s: %s; trying again", plural, cause)
        self._context.health.wait_for(plural, str(cause))

    def _on_relist(self, message: Relist, envelope: Envelope) -> None:
        self._metrics.asked.inc()
        self._context.log.info("%s requests a listing of %s", message.asker, ", ".join(message.kinds) or "all kinds")
        self._runner.feed(NewestShown(message.versions))
        heard = WatchSeen(message.asker, self._core.epoch, self._core.seq, alike=message.alike)
        self._follows(heard)  # it hears everything from here on
        self._runner.feed(RelistRequested(frozenset(kind for kind in Kind if kind.value in message.kinds)))

    async def _on_list(self, request: ListKind, envelope: Envelope) -> None:
        """Answers with one page, so that the watches go on between pages."""
        if request.kind not in RESOURCES:
            envelope.respond(KindListed(request.kind, problem="this watcher does not know the kind"))
            return
        try:
            listed = await self._page(request)
        except ClusterError as cause:
            listed = KindListed(request.kind, problem=str(cause))
        envelope.respond(listed)

    async def _page(self, request: ListKind) -> KindListed:
        """A page that fits in a message."""
        kind, following = Kind(request.kind), request.following
        if problem := self._core.refusal(kind):
            return KindListed(kind, problem=problem)
        if self._core.is_missing(kind):
            return KindListed(kind)
        limit, shown = PAGE, self._core.newest(kind)
        while True:
            page = await self._listwatches[kind].page(limit, following)
            version = version_number(page.metadata.resource_version)
            problem = self._core.refusal(kind, None if following else version, shown)
            if problem:
                return KindListed(kind, problem=problem)
            changes = self._core.read_page(kind, page.items or (), self._context.wall(), alike=request.alike)
            if size_of_all(changes) <= HALF_A_MESSAGE or limit == 1:
                return KindListed(kind, version, changes, page.metadata.following)
            limit = max(1, limit // 8)

    def _on_seen(self, message: WatchSeen, envelope: Envelope) -> None:
        if (message.epoch, message.seq) > (self._core.epoch, self._core.seq):
            self._later_term.leave(
                message.epoch,
                f"{message.asker} has seen message {message.seq} of term {message.epoch},"
                f" and we are at {self._core.seq} of term {self._core.epoch}",
            )
        if message.versions:
            self._runner.feed(NewestShown(message.versions))
        self._follows(message)

    def _follows(self, seen: WatchSeen) -> None:
        if seen.epoch == self._core.epoch:
            self._followers.reset()
            if not self._all_follow.is_set():
                self._known.add(seen.asker)
            if len(self._known) >= FOLLOWERS:
                self._all_follow.set()
        self._flow.seen(seen, asyncio.get_running_loop().time())
        self._runner.feed(FollowersRead(self._flow.all_read_alike))
        self._caught_up.set()

    async def _beat(self) -> None:
        self._gather(Beat())
        await self._send()

    # Output

    def _gather(self, event: Event) -> None:
        """Has the core handle the event; what it publishes goes out with the next `_send`."""
        self._gathers = True
        self._runner.feed(event)
        self._gathers = False

    def _publish(self, message: Watched | WatchBeat) -> None:
        self._outgoing.append(message)
        if not self._gathers:
            self._post_all()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Publish(message=WatchBeat() as beat):
                self._publish(replace(beat, at=self._context.wall()))
            case Publish(message=message):
                self._publish(message)
            case ListAgain(kinds=kinds):
                for kind, listwatch in self._listwatches.items():
                    if kind in kinds:
                        listwatch.list_again()
            case ReportProblem(change=change):
                self._metrics.unreadable.labels(change.kind).inc()
                where = f"{change.namespace}/{change.name}" if change.namespace else change.name
                self._repeated.warning(f"{change.kind} {where}", "%s %s: %s", change.kind, where, change.problem)
                self._reporter.report(effect)
            case StaleState(kind=kind, problem=problem):
                self._metrics.stale.labels(kind).inc()
                self._stale[kind] = problem
            case KindMissing(kind=kind, problem=problem):
                plural = RESOURCES[kind].plural
                self._context.health.clear(plural)
                self._listwatches[kind].list_again()  # so that all of it is published once the server serves it again
                is_rare = OBJECT_KINDS[kind] in GROUP_KINDS | DEVICE_KINDS  # many clusters lack these APIs
                level = logging.INFO if is_rare else logging.WARNING
                self._context.log.log(level, "%s: treated as empty: %s; will be requested again", plural, problem)
            case ObjectSkipped(kind=kind, problem=problem):
                self._metrics.unreadable.labels(kind).inc()
                self._repeated.warning(f"{kind} skipped", "a %s without a name: %s", kind, problem)

    async def _send(self, began: float | None = None) -> None:
        """Publish everything in order, then wait if the bus is congested. `began`: when the pods in it were read.

        A message that the bus drops keeps its number; followers notice the gap and request a listing.
        """
        last = self._outgoing.pop() if self._outgoing else None
        outgoing = self._post_all()
        if last is not None:
            outgoing.append(last)
            self._sent(last)
            await self._bus.publish(WATCH, last)
        if began is not None:
            self._spans.told(outgoing, began, self._context.clock())

    def _post_all(self) -> list[Watched | WatchBeat]:
        outgoing, self._outgoing = self._outgoing, []
        for message in outgoing:
            self._sent(message)
            self._bus.post(WATCH, message)
        return outgoing

    def _sent(self, message: Watched | WatchBeat) -> None:
        if isinstance(message, Watched):
            self._flow.sent(message.seq, ungrouped_size(message))

    async def _wait_for_followers(self) -> None:
        """Stop reading from the API server while followers are behind."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self._flow.must_wait(loop.time()):
            self._caught_up.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLOW_CHECK):
                    await self._caught_up.wait()
        self._metrics.held_up.inc(loop.time() - began)
