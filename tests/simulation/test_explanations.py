"""Explanations asked for at random while mishaps happen: they disturb no decision, and are true.

Nor do hints and a recorder disturb any.
"""

import asyncio
import random
from collections import Counter
from typing import Any, get_args

import msgspec
import pytest

from shared.bus import Envelope
from shared.bus.subjects import CYCLE_DECISIONS, CYCLE_RECORD
from shared.config.settings import HINTS_IN_EVENTS, Settings
from shared.errors import ClusterError
from shared.messages.queue import Outcomes
from shared.messages.recording import RecordDecisions, Recorded, RoundDecided
from shared.messages.watch import Kind
from shared.model.objects import Pod
from testing.simulation.apiserver import Change
from testing.simulation.drawing import CALM, MISHAPS, draw
from testing.simulation.loop import Gate
from testing.simulation.network import SimBus
from testing.simulation.running import make_world
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World
from tools.cli.service_client import ServiceClient
from tools.explain.client import LiveSources, explain
from tools.explain.explanation import Explanation

LIES = frozenset({"lies", "forge"})
PAUSES = (0.02, 0.6)
"""Seconds between two questions."""


class Asker:
    """Asks about any pod, as `flotilla explain` does, and to be told of decisions, as `flotilla record` does.

    `told`: answers by state, and those that did not come; rounds that were recorded; hints for Events.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.told: Counter[str] = Counter()
        self._world = world
        self._dice = random.Random(f"{seed} asker")
        bus: Any = SimBus(world.network, "asker", Gate(self))
        self._bus = bus
        self._sources = LiveSources(ServiceClient(bus, Settings()))
        world.around.hints = HINTS_IN_EVENTS
        world.network.overhears.append(self._overhear)

    async def ask_on(self) -> None:
        await self._bus.subscribe(CYCLE_DECISIONS, get_args(Recorded), self._on_recorded)
        while True:
            if self._dice.random() < 0.2:
                self._bus.post(CYCLE_RECORD, RecordDecisions("r", self._dice.choice((1.0, 15.0))))
            await asyncio.sleep(self._dice.uniform(*PAUSES))
            pods = sorted(self._world.server.pods)
            if pods:
                await self._ask(self._world.server.pods[self._dice.choice(pods)])

    def _on_recorded(self, message: Recorded, envelope: Envelope) -> None:
        self.told["recorded rounds"] += isinstance(message, RoundDecided)

    def _overhear(self, message: object) -> None:
        self.told["hints"] += len(message.hints) if isinstance(message, Outcomes) else 0

    async def ask_all(self) -> None:
        """Once everything is settled: every pod is explained where it is."""
        for pod in list(self._world.server.pods.values()):
            told = await self._ask(pod)
            now = self._world.server.pods.get(pod.uid)
            if told is None:
                assert self._world.around.releases, f"nobody explains {pod.name}"
                continue
            if now is None or self._is_ambiguous(pod) or now.status.phase in ("Succeeded", "Failed"):
                continue
            expected = f"{pod.key} is on node {now.spec.node_name}" if now.spec.node_name else pod.key
            assert told.sentence.startswith(expected), (told.state, told.sentence)
            assert told.state == ("placed" if now.spec.node_name else "pending"), told.sentence

    async def _ask(self, pod: Pod) -> Explanation | None:
        try:
            told = await explain(self._sources, pod.namespace, pod.name)
        except ClusterError:
            self.told["no answer"] += 1
            return None
        self.told[told.state] += 1
        now = self._world.server.pods.get(pod.uid)
        begins = f"{pod.key} is on node "
        if now is not None and told.sentence.startswith(begins) and not self._is_ambiguous(pod):
            where = told.sentence.removeprefix(begins).replace(":", " ").split()[0].rstrip(",;.")
            assert where == now.spec.node_name, f"{told.sentence}; it is on {now.spec.node_name!r}"
        return told

    def _is_ambiguous(self, pod: Pod) -> bool:
        return sum(each.name == pod.name for each in self._world.server.pods.values()) > 1


def played(schedule: Schedule, *, asks: bool = True) -> tuple[list[tuple[str, str]], Counter[str]]:
    """The bindings in their order, and how often each answer was given. AssertionError if an invariant is broken."""
    bound: dict[str, str] = {}

    def on_change(change: Change) -> None:
        if change.kind is Kind.POD and (node := msgspec.json.decode(change.raw)["spec"].get("nodeName")):
            bound.setdefault(change.key, node)

    async def run() -> Counter[str]:
        world = make_world(schedule)
        world.server.followers.append(on_change)
        if not asks:
            await world.run()
            return Counter()
        asker = Asker(world, schedule.seed)
        world.on_settled.append(asker.ask_all)
        asking = asyncio.create_task(asker.ask_on())
        try:
            await world.run()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if asking.done() and not asking.cancelled() and (cause := asking.exception()) is not None:
            raise cause
        return asker.told

    told = run_on_virtual_time(run, schedule.seed)
    return list(bound.items()), told


@pytest.mark.parametrize(("seed", "scene"), [(100, "plain"), (104, "waits"), (113, "gangs")])
def test_mishaps_make_no_explanation_wrong_and_explanations_break_nothing(seed: int, scene: str) -> None:
    print(f"seed {seed}")
    mishaps = frozenset(MISHAPS) - LIES
    _, told = played(draw(seed, scene=scene, mishaps=mishaps, seconds=6.0, mishap_every=0.8))
    assert told["placed"], told
    assert told["pending"], told
    assert told["no answer"], told
    assert told["recorded rounds"], told


@pytest.mark.parametrize(("seed", "scene"), [(42, "wishes"), (43, "preemption")])
def test_without_mishaps_the_same_pods_go_to_the_same_nodes_in_the_same_order(seed: int, scene: str) -> None:
    print(f"seed {seed}")
    schedule = draw(seed, scene=f"{scene}{CALM}", seconds=6.0)
    quiet, _ = played(schedule, asks=False)
    asked, told = played(schedule)
    assert told["placed"] > 5
    assert told["recorded rounds"]
    assert told["hints"] or scene != "preemption"
    assert asked == quiet
