"""What is answered is what then happens: random questions about a whole pipeline that then does what was asked."""

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from shared.model.objects import PersistentVolumeClaim, Pod, group_of
from shared.plugins.volumes.own_claims import volume_claims
from testing.simulation.loop import end_all_tasks
from testing.simulation.substitutes import run_on_virtual_time
from tests.whatif.extender import asked_by_the_cycle, converse
from tests.whatif.world import MADE, World
from tools import live_state
from tools.live_state import LiveState
from tools.whatif.answer import Answer, Question, nodes_to_read
from tools.whatif.answering import answer as whatif
from tools.whatif.engine import Engine

WORLDS, QUESTIONS, PARTS = 12, 10, 4
DIFFERED_ONCE = [3248925152, 7013, 30228, 40030, 40088, 40095, 50045, 60072]
"""Seeds in which something else happened than was answered."""


def a_question(world: World) -> Question:
    draw, names = world.draw, list(world.server.nodes)
    manifests = [each for _ in range(draw.randrange(0, 5)) for each in world.some(5)]
    question = Question(manifests=[*manifests])
    match draw.choice(["", "", "add", "drain", "remove"]):
        case "add":
            return replace(question, add_nodes=draw.randrange(1, 3), like=draw.choice(names))
        case "drain":
            return replace(question, drain=[draw.choice(names)])
        case "remove" if len(names) > 2:
            return replace(question, remove=[draw.choice(names)])
    return question


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_answered_is_what_then_happens(part: int) -> None:
    seed = random.randrange(1 << 32)
    for number in range(seed, seed + WORLDS // PARTS):
        print(f"seed {number}")
        run_on_virtual_time(partial(ask_and_do, number), number)


@pytest.mark.parametrize("seed", DIFFERED_ONCE)
def test_what_differed_once_is_answered_right(seed: int) -> None:
    run_on_virtual_time(partial(ask_and_do, seed), seed)


async def ask_and_do(seed: int) -> None:
    world, stack = World(seed), ExitStack()
    if world.has_extender:
        stack.enter_context(asked_by_the_cycle())
    try:
        await world.begin()
        for number in range(QUESTIONS):
            print(f"  question {number}")
            await compare(world, number)
            world.churn()
            await world.settle()
    finally:
        stack.close()
        for process in world.processes.values():
            process.kill()
        await end_all_tasks()


async def compare(world: World, number: int) -> None:
    question = a_question(world)
    pods_on = {name: await world.pods_on(name) for name in nodes_to_read(question)}
    live = await world.live()
    with world.other_uids():
        engine = Engine(live, question, pods_on, converse=converse)
    answer = engine.answer()
    if number == 0:
        await from_a_dump(world, live, question, answer)
    before = {pod.key: pod for pod in world.server.pods.values()}
    await world.do(engine)
    if shares_a_volume_that_is_made(engine):
        return  # a provisioner decides which nodes it reaches, and so where the other pod may go
    gone = [before[key] for key in {*world.went, *(victim.pod for victim in answer.victims)} if key in before]
    if claims_of(gone) & claims_of(each.pod for each in engine.asked()):
        return  # when controllers free what victims claimed decides who of those that want it finds it
    if gone and any(each.rejected is not None for each in engine.asked()):
        return  # whether the back-offs of new pods are over when victims leave decides if a pod that waits goes first
    if are_members_rejected_together(engine):
        return  # which of them is tried first is open, once each is decided by itself
    if world.has_extender and (answer.victims or world.went):
        return  # any event wakes pods that an extender rejected, so when they hear of it decides who preempts first
    there = {pod.name: pod for pod in world.server.pods.values()}
    asked = [there.get(each.pod.name) for each in engine.asked()]
    said = [(each.name, each.node) for each in answer.pods]
    then = [
        (each.pod.name, "" if pod is None else pod.spec.node_name)
        for each, pod in zip(engine.asked(), asked, strict=True)
    ]
    assert said == then, f"said {said}, then {then}: {question}"
    keys = {pod.uid: pod.key for pod in asked if pod is not None}
    foretold = {victim.pod: victim.preemptor for victim in answer.victims}
    went = {victim: keys.get(preemptor, preemptor) for victim, preemptor in world.went.items()}
    assert foretold == went, f"said {foretold}, then {went}: {question}"
    if answer.victims:
        return  # which pods are tried again when a victim leaves does not matter, but shows in their messages
    for pod, each in zip(asked, answer.pods, strict=True):
        info = None if pod is None else world.queued(pod.uid)
        if info is not None and info.attempts > 1:
            continue  # for a volume that was provisioned for another pod, which shows in its message likewise
        if info is not None and each.verdict == "unschedulable" and each.origin == "new":
            assert each.message == info.last_failure, f"{each.name}: {question}"


def shares_a_volume_that_is_made(engine: Engine) -> bool:
    """Whether pods that are decided name one claim for which a volume is provisioned."""
    objects = (*engine.live.state.objects, *engine.objects)
    claims = {each.key: each for each in objects if isinstance(each, PersistentVolumeClaim)}
    users = Counter(claim for asked in engine.asked() for claim in volume_claims(asked.pod))
    shared = (claims[key] for key, count in users.items() if count > 1 and key in claims)
    return any(claim.storage_class == MADE and not claim.fully_bound for claim in shared)


def are_members_rejected_together(engine: Engine) -> bool:
    """Whether members of one group wait since the same moment, and so stand at one place in the queue."""
    waiting = [each for each in engine.asked() if each.rejected is not None]
    places = Counter((group_of(each.pod), each.since) for each in waiting if group_of(each.pod) is not None)
    return any(count > 1 for count in places.values())


def claims_of(pods: Iterable[Pod]) -> set[str]:
    """Claims of volumes by name; of devices, whether there are any, as all pods here want the same."""
    found: set[str] = set()
    for pod in pods:
        found |= {*volume_claims(pod), *(["devices"] if pod.spec.resource_claims else [])}
    return found


async def from_a_dump(world: World, live: LiveState, question: Question, answer: Answer) -> None:
    """A dump of the same moment gives the same answer."""
    with TemporaryDirectory() as name, world.same_uids():
        folder = Path(name)
        live_state.save(live, folder)
        live_state.save_pods(await world.pods_on_all(), folder)
        read, pods_on = live_state.read(folder), live_state.read_pods(folder, nodes_to_read(question))
        again = whatif(read, question, pods_on, converse=converse)
        assert again == answer, f"{again}\n{answer}"
