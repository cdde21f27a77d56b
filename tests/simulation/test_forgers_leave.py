"""What a process has forged in the name of its service does not outlive it for long."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from shared.bus import subjects
from shared.messages.binding import BindingOrders, BindingOutcomes, Notices, Recall
from shared.messages.queue import Absorbed, Outcomes, Take
from shared.messages.rounds import Propose
from shared.messages.state import EPOCH_SHIFT, Commit, Committed, Heartbeat
from shared.messages.watch import Kind, ListingBegins, WatchBeat, Watched, WatchSeen
from shared.messages.workers import Assign, WorkerBeat
from testing.builders import pod
from testing.simulation.drawing import PROCESSES
from testing.simulation.mishaps import PREFIX
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

PODS = 3
HUGE_PODS = 8
"""That fit nowhere."""
AHEAD = 1000
HUGE = 1 << 62
TIME_TO_RECOVER = 60.0
TIME_TO_BIND = 90.0
"""At most, and to tell owners of pods that fit nowhere."""


class Forger:
    """Knows what went over the network, and the present terms."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.last: dict[type, Any] = {}
        world.network.on_post.append(lambda sender, subject, message: self.last.update({type(message): message}))

    def term(self, service: str) -> int:
        return int(self.world.leading(service).core.epoch)

    def post(self, subject: str, message: Any) -> None:
        self.world.network.post("forger", subject, message)

    def post_often(self, subject: str, message: Any) -> None:
        for _ in range(40):
            self.post(subject, message)

    def post_to_workers(self, message: Any) -> None:
        for worker in ("w1", "w2"):
            self.post(subjects.worker(worker), message)

    def recall_binders(self, epoch: int) -> None:
        for binder in ("b1", "b2"):
            core = self.world.processes[binder].core
            self.post(subjects.binder(binder), Recall(epoch, 1, core.incarnation))

    def order_binders(self, epoch: int, number: int) -> None:
        for binder in ("b1", "b2"):
            self.post(subjects.binder(binder), BindingOrders(epoch, [], number=number))

    def write_lease(self, service: str) -> None:
        server = self.world.server
        lease = server.leases[f"{PREFIX}-{service}"]
        server.version += 1
        lease["spec"] |= {"leaseTransitions": (1 << 31) - 1000, "holderIdentity": ""}
        lease["metadata"]["resourceVersion"] = str(server.version)


Forgery = Callable[[Forger], None]

OF_A_LEADER: dict[str, tuple[str, Forgery]] = {
    "take": ("cycle", lambda f: f.post(subjects.QUEUE_TAKE, Take(f.term("cycle") + AHEAD, 1, 1))),
    "outcomes": ("cycle", lambda f: f.post(subjects.QUEUE_OUTCOMES, Outcomes(f.term("cycle") + AHEAD, 1, []))),
    "assign": ("cycle", lambda f: f.post_to_workers(Assign(f.term("cycle") + AHEAD, 1, [], 4))),
    "propose": (
        "cycle",
        lambda f: f.post_to_workers(replace(f.last[Propose], epoch=f.term("cycle") + AHEAD)),
    ),
    "commit": (
        "cycle",
        lambda f: f.post(subjects.SNAPSHOT_COMMITS, Commit(f.term("cycle") + AHEAD, 1, [], [], cycle="x")),
    ),
    "cycle's Lease": ("cycle", lambda f: f.write_lease("cycle")),
    "notices": (
        "queue",
        lambda f: f.post_often(subjects.BINDER_NOTICES, Notices([], f.term("queue") + AHEAD)),
    ),
    "queue's Lease": ("queue", lambda f: f.write_lease("queue")),
    "seen versions": ("queue", lambda f: f.post(subjects.WATCHER_SEEN, WatchSeen("q", 0, 0, {"pod": HUGE}))),
    "seen epoch": ("queue", lambda f: f.post(subjects.WATCHER_SEEN, WatchSeen("q", f.term("watcher") + AHEAD, 0, {}))),
    "watched version": (
        "watcher",
        lambda f: f.post(
            subjects.WATCH,
            Watched(f.last[WatchBeat].epoch, f.last[WatchBeat].seq + 1, [ListingBegins(Kind.POD)], HUGE),
        ),
    ),
    "watch beat epoch": ("watcher", lambda f: f.post(subjects.WATCH, WatchBeat(f.last[WatchBeat].epoch + AHEAD, 1))),
    "watch beat number": ("watcher", lambda f: f.post(subjects.WATCH, WatchBeat(f.last[WatchBeat].epoch, HUGE))),
    "watcher's Lease": ("watcher", lambda f: f.write_lease("watcher")),
    "worker beat epoch": (
        "worker",
        lambda f: f.post(subjects.WORKER_BEATS, replace(f.last[WorkerBeat], epoch=f.term("cycle") + AHEAD)),
    ),
    "worker beat number": (
        "worker",
        lambda f: f.post(subjects.WORKER_BEATS, replace(f.last[WorkerBeat], assignment=HUGE)),
    ),
    "absorbed": (
        "snapshot",
        lambda f: f.post(subjects.QUEUE_FORGOTTEN, Absorbed(f.term("snapshot") + AHEAD, HUGE, HUGE, HUGE)),
    ),
    "heartbeat to workers": (
        "snapshot",
        lambda f: f.post(subjects.SNAPSHOT_DELTAS, Heartbeat(f.term("snapshot") + AHEAD, 1)),
    ),
    "heartbeat to the cycle": (
        "snapshot",
        lambda f: f.post(
            subjects.CYCLE_COMMITTED,
            Heartbeat(f.term("snapshot") + AHEAD, (f.term("snapshot") + AHEAD) << EPOCH_SHIFT),
        ),
    ),
    "recall": ("snapshot", lambda f: f.recall_binders(f.term("snapshot") + AHEAD)),
    "snapshot's Lease": ("snapshot", lambda f: f.write_lease("snapshot")),
}
"""The service in whose name it is sent, all of whose processes are then replaced."""

OF_A_STANDBY: dict[str, Forgery] = {
    "take number": lambda f: f.post(subjects.QUEUE_TAKE, Take(f.term("cycle"), HUGE, 1)),
    "take": lambda f: f.post(subjects.QUEUE_TAKE, Take(f.term("cycle") + AHEAD, 1, 1)),
    "outcomes number": lambda f: f.post(subjects.QUEUE_OUTCOMES, Outcomes(f.term("cycle"), HUGE, [])),
    "commit round": lambda f: f.post(
        subjects.SNAPSHOT_COMMITS, Commit(f.term("cycle"), HUGE, [], [], cycle=f.last[Committed].cycle)
    ),
    "assign number": lambda f: f.post_to_workers(Assign(f.term("cycle"), HUGE, [], 4)),
    "assign": lambda f: f.post_to_workers(Assign(f.term("cycle") + AHEAD, 1, [], 4)),
    "propose round": lambda f: f.post_to_workers(replace(f.last[Propose], round=HUGE)),
    "propose": lambda f: f.post_to_workers(replace(f.last[Propose], epoch=f.term("cycle") + AHEAD)),
    "outcomes of bindings": lambda f: f.post(
        subjects.SNAPSHOT_BOUND, replace(f.last[BindingOutcomes], number=HUGE, outcomes=[])
    ),
    "recall": lambda f: f.recall_binders(f.term("snapshot") + AHEAD),
    "absorbed": lambda f: f.post(subjects.QUEUE_FORGOTTEN, Absorbed(f.term("snapshot") + AHEAD, HUGE, HUGE, HUGE)),
    "heartbeat to workers": lambda f: f.post(subjects.SNAPSHOT_DELTAS, Heartbeat(f.term("snapshot") + AHEAD, 1)),
    "orders number": lambda f: f.order_binders(f.term("snapshot"), HUGE),
    "orders": lambda f: f.order_binders(f.term("snapshot") + AHEAD, 1),
    "heartbeat to the cycle": lambda f: f.post(subjects.CYCLE_COMMITTED, Heartbeat(f.term("snapshot"), HUGE)),
    "notices": lambda f: f.post_often(subjects.BINDER_NOTICES, Notices([], f.term("queue") + AHEAD)),
    "watch beat epoch": lambda f: f.post(subjects.WATCH, WatchBeat(f.last[WatchBeat].epoch + AHEAD, 1)),
    "watch beat number": lambda f: f.post(subjects.WATCH, WatchBeat(f.last[WatchBeat].epoch, HUGE)),
    "watched version": lambda f: f.post(
        subjects.WATCH,
        Watched(f.last[WatchBeat].epoch, f.last[WatchBeat].seq + 1, [ListingBegins(Kind.POD)], HUGE),
    ),
}
"""No leader is replaced; the forger is silent from then on."""


async def _after(forgery: Forgery, replaced: Iterable[str]) -> list[str]:
    """What is wrong once there was time to recover: pods left pending, or fitting nowhere without a word."""
    world = World(Schedule(1, "plain", 3, 0.0, ()))
    world.around.lied = True
    forger = Forger(world)
    world.furnish()
    for name in PROCESSES:
        world.start(name)
    keeping = asyncio.create_task(world.keep())
    await asyncio.sleep(8.0)
    for _ in range(PODS):
        world.create()
    await asyncio.sleep(5.0)
    forgery(forger)
    await asyncio.sleep(0.5)
    for process in world.processes.values():
        if process.service in replaced:
            process.kill()
    await asyncio.sleep(TIME_TO_RECOVER)
    for _ in range(PODS):
        world.create()
    for number in range(HUGE_PODS):
        world.server.put_pod(pod(f"huge{number}").uid(f"u-huge{number}").request(cpu="900").build())
    ends = world.now + TIME_TO_BIND
    while (wrong := _wrong(world)) and world.now < ends:
        await asyncio.sleep(1.0)
    keeping.cancel()
    await world.end()
    return wrong + [str(failure) for failure in world.around.failures]


def _wrong(world: World) -> list[str]:
    huge = [each for each in world.server.pods.values() if "huge" in each.name]
    untold = [each for each in huge if not any(one.type == "PodScheduled" for one in each.status.conditions)]
    pending = [f"{name} is pending" for name in world.pending() if "huge" not in name]
    return pending + [f"{each.name} fits nowhere and is not told so" for each in untold]


@pytest.mark.parametrize("what", OF_A_LEADER)
def test_what_a_replaced_process_forged_does_not_outlive_it(what: str) -> None:
    service, forgery = OF_A_LEADER[what]
    assert run_on_virtual_time(lambda: _after(forgery, [service])) == []


@pytest.mark.parametrize("what", OF_A_STANDBY)
def test_what_a_standby_forged_does_not_outlive_it(what: str) -> None:
    assert run_on_virtual_time(lambda: _after(OF_A_STANDBY[what], [])) == []
