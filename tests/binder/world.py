"""A binder as it runs: a real NATS, an API server, and a snapshot that is played by the test."""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from services.binder.core import BinderCore
from services.binder.service import Shell, main
from shared.bus import Bus, Envelope
from shared.cluster.devices import DeviceDecision
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.config.settings import ApiSettings, Settings
from shared.extenders.client import ExtenderClient
from shared.framework.profile import Framework
from shared.kube.client import KubeClient
from shared.messages.binding import (
    BinderBeat,
    BindingOrders,
    BindingOutcome,
    BindingOutcomes,
    Displaced,
    Evict,
    Evicted,
    IsNominated,
    IsPlaced,
    Nominated,
    NominationOf,
    Permits,
    PlacedNow,
)
from shared.messages.queue import Received
from shared.messages.state import Assignment, BindingOrder
from shared.runtime import Context, Health
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.simulator.errors import ApiError
from testing.simulator.service import Simulator, SimulatorOptions
from tests.servers import nats_server

NOT_THERE = "1"
"""The version that orders name of a pod which is not there."""
PATIENCE = 10.0
PREFIX = "test"
BINDER = "b1"
PROFILE = "default-scheduler"
HIGH = 1000
"""The priority of the pod `high`."""


class World:
    def __init__(self, simulator: Simulator, bus: Bus, context: Context) -> None:
        self.simulator = simulator
        self.bus = bus
        self.context = context
        self.outcomes: list[BindingOutcome] = []
        self.reports: list[BindingOutcomes] = []
        self.beats: list[BinderBeat] = []
        self.evicted: list[Evicted] = []
        self.permits: list[Permits] = []
        self.acknowledges = True
        self.snapshot_epoch: int | None = 1
        """The epoch of the snapshot that answers that a nomination stands; None: it does not answer."""
        self.stands = True
        self.stands_until = math.inf
        """How often it answers that a nomination stands."""
        self.asked: list[NominationOf] = []
        """The questions that were read."""
        self.messages_asked = 0
        """The messages that these came in."""
        self.answers_more = True
        """Whether all questions of a message are read, or only the first, as by a snapshot of the last release."""
        self.assumed_asked: list[str] = []
        self.assumed: set[str] = set()
        """The uids of pods of which the snapshot answers that they are assumed, and groups with such pods."""
        self.looks_at_groups = True
        """Whether the snapshot looks for pods of groups, as one of the last release does not."""
        self._orders: dict[tuple[str, int], BindingOrder] = {}

    # The API server

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        nominated: str = "",
        priority: int | None = None,
        policy: str = "",
        group: str = "",
    ) -> str:
        """Creates one; its uid. On a node it runs, and takes its time to end. `high` is above all others."""
        if priority is None:
            priority = HIGH if name == "high" else 0
        spec: dict[str, Any] = {
            "schedulerName": PROFILE,
            "containers": [{"name": "c", "image": "i"}],
            "priority": priority,
        }
        if policy:
            spec["preemptionPolicy"] = policy
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        status = {"phase": "Running" if node else "Pending"}
        if node:
            spec["nodeName"] = node
        if nominated:
            status["nominatedNodeName"] = nominated
        self.simulator.store_raw(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
                "spec": spec,
                "status": status,
            },
        )
        return f"uid-{name}"

    def node_of(self, name: str) -> str:
        node: str = self.simulator.stored("pods", name, "default")["spec"].get("nodeName", "")
        return node

    def condition_of(self, name: str, type_: str = "PodScheduled") -> dict[str, Any] | None:
        conditions = self.simulator.stored("pods", name, "default").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == type_), None)

    def nominated(self, name: str) -> str:
        node: str = self.simulator.stored("pods", name, "default")["status"].get("nominatedNodeName", "")
        return node

    def terminating(self, name: str) -> bool:
        return "deletionTimestamp" in self.simulator.stored("pods", name, "default")["metadata"]

    async def events(self) -> list[dict[str, Any]]:
        client = await KubeClient.open(ApiSettings(server=self.simulator.url))
        try:
            raw = await client.get("/apis/events.k8s.io/v1/namespaces/default/events")
            items: list[dict[str, Any]] = msgspec.json.decode(raw or b"{}")["items"]
            return items
        finally:
            await client.close()

    async def event(self, reason: str) -> dict[str, Any]:
        """Waits for the first Event of this reason."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            for event in await self.events():
                if event["reason"] == reason:
                    return event
            await asyncio.sleep(0.01)
        raise AssertionError(f"no Event says {reason}")

    # The snapshot

    def order(
        self,
        name: str,
        node: str = "n1",
        *,
        uid: str | None = None,
        seconds: float = 30.0,
        devices: DeviceDecision | None = None,
    ) -> None:
        of = (uid or f"uid-{name}", "default", name, PROFILE, node, self.version(name))
        assignment = Assignment(*of, devices=devices)
        order = BindingOrder(assignment, 1, len(self._orders) + 1, seconds)
        self._orders[order.uid, order.attempt] = order
        self.bus.post(f"binder.{BINDER}", BindingOrders(1, [order]))

    def version(self, name: str) -> str:
        try:
            return str(self.simulator.stored("pods", name, "default")["metadata"]["resourceVersion"])
        except ApiError:
            return NOT_THERE

    def victim(self, name: str) -> Displaced:
        return Displaced(f"uid-{name}", "default", name)

    def evict(
        self,
        *victims: Displaced,
        attempt: int = 7,
        denominated: tuple[Displaced, ...] = (),
        window: float = 0.0,
        waits: bool = True,
        gang: str = "",
    ) -> None:
        """Makes room on n1 for the pod `high`, which `waits` for it."""
        if waits and self.version("high") == NOT_THERE:
            self.pod("high", nominated="n1")
        of = ("uid-high", "default", "high", PROFILE, "n1")
        order = Evict(1, attempt, *of, list(victims), list(denominated), window, gang)
        self.bus.post("binder.evictions", order)

    async def evicted_of(self, attempt: int = 7) -> Evicted:
        """Without its preemption."""
        return replace(await self.report_of(attempt), preemption=None)

    async def report_of(self, attempt: int = 7) -> Evicted:
        await until(lambda: any(evicted.attempt == attempt for evicted in self.evicted))
        return next(evicted for evicted in self.evicted if evicted.attempt == attempt)

    async def outcome(self, name: str) -> BindingOutcome:
        """Of the attempt; not that the pod has changed."""
        uid = f"uid-{name}"
        await until(lambda: any(outcome.uid == uid and not outcome.found for outcome in self.outcomes))
        return next(outcome for outcome in self.outcomes if outcome.uid == uid and not outcome.found)

    def on_outcomes(self, message: BindingOutcomes, envelope: Envelope) -> None:
        self.reports.append(message)
        if not self.acknowledges:
            return
        self.outcomes += message.outcomes
        envelope.respond(Received(message.epoch, message.number))
        for outcome in message.outcomes:
            if outcome.found:
                order = self._orders[outcome.uid, outcome.attempt]
                renewed = replace(order, assignment=replace(order.assignment, version=outcome.found))
                self.bus.post(f"binder.{BINDER}", BindingOrders(1, [renewed]))

    def on_beat(self, message: BinderBeat, envelope: Envelope) -> None:
        self.beats.append(message)

    def on_evicted(self, message: Evicted, envelope: Envelope) -> None:
        self.evicted.append(message)
        if self.acknowledges:
            envelope.respond(Received(0, message.attempt))

    def on_asked(self, message: IsNominated | IsPlaced, envelope: Envelope) -> None:
        if isinstance(message, IsPlaced):
            self.assumed_asked.append(message.uid)
            is_placed = message.uid in self.assumed or message.group in self.assumed
            envelope.respond(
                PlacedNow(self.snapshot_epoch or 0, is_placed, message.group if self.looks_at_groups else "")
            )
            return
        first = NominationOf(message.uid, message.attempt, message.node, message.victims)
        self.messages_asked += 1
        self.asked += [first, *message.more] if self.answers_more else [first]
        if self.snapshot_epoch is not None:
            stands = self.stands and len(self.asked) <= self.stands_until
            more = [stands for _ in message.more] if self.answers_more else []
            envelope.respond(Nominated(self.snapshot_epoch, stands, more))

    def on_permits(self, message: Permits, envelope: Envelope) -> None:
        self.permits.append(message)

    def metric(self, name: str, **labels: str) -> float:
        return self.context.metrics.registry.get_sample_value(name, labels) or 0.0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


def telemetry(name: str) -> Telemetry:
    tracer = Tracer("binder", name, ids=random.Random(1))
    return Telemetry(Metrics(), tracer, logger("binder"))


@asynccontextmanager
async def world(
    *,
    api_calls: bool = True,
    nodes: tuple[str, ...] = ("n1", "n2"),
    framework: Framework | None = None,
    gates: FeatureGates = DEFAULT_GATES,
) -> AsyncIterator[World]:
    """With a binder that is ready, and ends as a process does that gets SIGTERM.

    `framework`: of its one profile; without, that of no configuration file.
    """
    async with nats_server() as nats, _simulator(nodes) as simulator:
        buses: list[Bus] = []
        try:
            buses.append(await Bus.connect(nats.url, PREFIX, BINDER, telemetry(BINDER)))
            buses.append(await Bus.connect(nats.url, PREFIX, "snapshot", telemetry("snapshot")))
            api = ApiSettings(server=simulator.url)
            settings = Settings(name=BINDER, prefix=PREFIX, api=api, feature_gates=gates)
            context = Context(
                service="binder",
                name=BINDER,
                settings=settings,
                bus=buses[0],
                telemetry=telemetry(BINDER),
                health=Health(),
                http_url="",
                validates=True,
            )
            made = World(simulator, buses[1], context)
            await buses[1].subscribe("snapshot.bound", BindingOutcomes, made.on_outcomes)
            await buses[1].subscribe("binder.beats", BinderBeat, made.on_beat)
            await buses[1].subscribe("snapshot.nominated", (IsNominated, IsPlaced), made.on_asked)
            await buses[1].subscribe("queue.evicted", Evicted, made.on_evicted)
            await buses[1].subscribe("binder.waiting", Permits, made.on_permits)
            running = main(context, api_calls=api_calls) if framework is None else _run(context, framework)
            binder = asyncio.create_task(running)
            try:
                await until(lambda: bool(made.beats) or binder.done())
                yield made
            finally:
                binder.cancel()
                (ended,) = await asyncio.gather(binder, return_exceptions=True)
                if not isinstance(ended, asyncio.CancelledError):
                    raise AssertionError(f"the binder has ended by itself: {ended!r}")
        finally:
            for bus in buses:
                await bus.close()


async def _run(context: Context, framework: Framework) -> None:
    client = await KubeClient.open(context.settings.api, context.telemetry)
    extenders = ExtenderClient(())
    core = BinderCore(context.name, {PROFILE: framework}, clock=time.perf_counter)
    try:
        await Shell(context, core, client, extenders).run()
    finally:
        await extenders.close()
        await client.close()


@asynccontextmanager
async def _simulator(nodes: tuple[str, ...]) -> AsyncIterator[Simulator]:
    simulator = Simulator(SimulatorOptions(kubelet=False))
    await simulator.start()
    try:
        for name in nodes:
            simulator.store_raw("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        yield simulator
    finally:
        await simulator.stop()
