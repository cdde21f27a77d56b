"""A cluster and its scheduler on virtual time: runs a schedule and judges the outcome."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from services.queue.scheduling.counters import OVERDUE, TIME_LIMIT
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.limits import PREEMPTION_TIMEOUT
from shared.model.kinds import UNPUBLISHED_KINDS
from shared.model.load import PodLoad, load_of
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, PodGroup, key_of, kind_of
from testing.simulation.actions import APP, Actions
from testing.simulation.apiserver import FINISHED
from testing.simulation.auditor import Auditor
from testing.simulation.drawing import CALM, PROCESSES
from testing.simulation.loop import end_all_tasks
from testing.simulation.mishaps import Mishaps
from testing.simulation.processes import RESTART, Process
from testing.simulation.schedule import Entry, Schedule

SETTLED_WITHIN = 150.0
"""Seconds of quiet after which every pod that fits anywhere must be bound; includes the longest back-off."""
PATIENCE = 330.0
"""Additional seconds after a lie or a loss of terms: a pod may have been rejected for a reason that no event undoes."""
SOON = 60.0
"""Seconds to settle in a calm scene."""


class World(Actions):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.processes: dict[str, Process] = {}
        self.on_settled: list[Callable[[], Awaitable[None]]] = []
        self.on_end: list[Callable[[], None]] = []
        self.is_calm = schedule.scene.endswith(CALM)
        self.mishaps = Mishaps(self.around, self.processes, self.start)
        transport = self.around.transport
        self.auditor = Auditor(self.around, lambda: self.leading("snapshot"))
        self.network.overhears.append(self.auditor.overhear)
        transport.deleted.append(self.auditor.on_deleted)
        transport.deletes.append(lambda uid, name: self.auditor.on_delete(uid, self.processes[name]))
        self._violations: list[str] = []

    # The run

    async def run(self) -> None:
        """Run all entries, end mishaps and let everything settle. AssertionError once an invariant is violated."""
        self.furnish()
        for name in PROCESSES:
            self.start(name)
        keeper = asyncio.create_task(self.keep())
        try:
            for entry in self.schedule.entries:
                await self._wait_until(entry.at)
                self.happen(entry)
            await self._wait_until(max(self.schedule.seconds, self.mishaps.last_ends))
            self._note("quiet from here on")
            self.mishaps.heal()
            await self._settle()
            for on_settled in self.on_settled:
                await on_settled()
        finally:
            keeper.cancel()
            await self.end()

    async def _wait_until(self, at: float) -> None:
        while self.now < at:
            await asyncio.sleep(min(at - self.now, 0.5))
            self._judge()
        self._judge()

    def _judge(self) -> None:
        broken = self._broken()
        assert not broken, "\n".join(broken)

    def happen(self, entry: Entry) -> None:
        self._begin(entry)
        if self.mishaps.happen(entry):
            self._note(entry.told)
        else:
            self.act(entry)

    def start(self, name: str) -> None:
        self.processes[name] = Process(name, self.around)

    async def keep(self) -> None:
        """Restart processes that have ended."""
        while True:
            await asyncio.sleep(RESTART)
            for name, process in self.processes.items():
                if not process.running and self.now >= self.mishaps.restarts_from:
                    self._note(f"{name} starts again {process.ended_with}".rstrip())
                    self.start(name)

    async def end(self) -> None:
        for on_end in self.on_end:
            on_end()
        for process in self.processes.values():
            process.kill()
        left = await end_all_tasks()
        assert not left, f"these were killed and have not ended: {left}"

    def leading(self, service: str) -> Process:
        """The process that leads or is about to; of several, that of the latest term."""
        of_it = [each for each in self.processes.values() if each.service == service]
        return max(of_it, key=lambda each: (each.core is not None, getattr(each.core, "epoch", 0)))

    def pending(self) -> list[str]:
        return [each.name for each in self.server.pods.values() if not each.spec.node_name]

    # What must hold

    async def _settle(self) -> None:
        began = self.now
        within = (
            SOON if self.is_calm else SETTLED_WITHIN + (PATIENCE if self.around.lied or self.around.lost_terms else 0.0)
        )
        while self._is_unsettled() and not self._broken() and self.now < began + within:
            await asyncio.sleep(0.5)
        wrong = self.wrong()
        assert not wrong, "\n".join(wrong)

    def _is_unsettled(self) -> bool:
        """Whether any check fails, cheap ones first."""
        return any(check() for check in reversed(self.checks()))

    def wrong(self) -> list[str]:
        """What does not hold at the end of the run."""
        return [text for check in self.checks() for text in check()]

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return self._broken, self._left_over, self._not_alike, self._kept

    def _broken(self) -> list[str]:
        """Violations of invariants that hold at any time."""
        late = self._moved_by_time() if self.is_calm else []
        around = self.server.broken + self.redis.broken + self.auditor.broken + self.around.failures
        return around + late + self._violations

    def _report(self, what: str) -> None:
        self._violations.append(f"at {self.now:.3f} {what}")

    def _moved_by_time(self) -> list[str]:
        """Pods that the queue moved, or is about to move, because of a time limit: in calm scenes events must do it."""
        process = self.leading("queue")
        queue = process.core
        if queue is None:
            return []
        counters = queue.counters
        late = {why: sum(counters.incoming[state, why] for state in PodState) for why in (TIME_LIMIT, OVERDUE)}
        wrong = [f"{count} pods were moved only by a time limit: {why}" for why, count in late.items() if count]
        if counters.scheduled_after_flush:
            wrong.append(f"{counters.scheduled_after_flush} pods were bound after the time limit had moved them")
        due = queue._queue.preemptions.next_deadline()
        if due is not None and due < process.clock() + PREEMPTION_TIMEOUT / 2:
            wrong.append("the end of a preemption is not reported")
        return wrong

    def _left_over(self) -> list[str]:
        """Pods that fit on a node and are not bound."""
        free = [each for each in self.server.nodes.values() if not each.spec.unschedulable]
        left = [
            f"{each.name} ({each.uid}) fits and is not bound"
            for each in self.server.pods.values()
            if not each.spec.node_name and self._is_due(each) and any(self._is_free(where, each) for where in free)
        ]
        return [*left[:3], f"and {len(left) - 3} more"] if len(left) > 3 else left

    def _is_due(self, pod: Pod) -> bool:
        """Whether only a lack of room can keep the pod pending."""
        return APP not in pod.metadata.labels

    def _is_free(self, where: Node, pod: Pod) -> bool:
        """Whether the pod fits beside the pods on the node and those nominated to it."""
        waiting = (each for each in self.server.pods.values() if not each.spec.node_name and each.uid != pod.uid)
        nominated = [each for each in waiting if each.status.nominated_node_name == where.name]
        return self.server.has_room(where, *(each for each in nominated if each.priority >= pod.priority), pod)

    def _not_alike(self) -> list[str]:
        """Differences between the API server, the snapshot and the workers."""
        snapshot = self.leading("snapshot").core
        if snapshot is None:
            return ["no snapshot"]
        truth = {
            each.uid: each.spec.node_name
            for each in self.server.pods.values()
            if each.spec.node_name and each.status.phase != FINISHED
        }
        found = {uid: place.node for uid, place in snapshot.cluster.pods.items()}
        wrong = [f"places differ: {sorted(truth.items() ^ found.items())}"] if truth != found else []
        loads = {uid: self._load_of(self.server.pods[uid]) for uid in truth}
        seen = {uid: (where, load) for w in ("w1", "w2") for uid, where, load in self._placed(w)}
        expected = {uid: (where, loads[uid]) for uid, where in truth.items() if where in self.server.nodes}
        if seen != expected:
            wrong.append(f"the workers see other pods: {sorted(seen.keys() ^ expected.keys())}")
        return wrong + self._objects_not_alike()

    def _objects_not_alike(self) -> list[str]:
        wrong = []
        nominated = {
            each.uid: each.status.nominated_node_name
            for each in self.server.pods.values()
            if each.status.nominated_node_name and not each.spec.node_name
        }
        found: dict[str, str] = {}
        for worker in ("w1", "w2"):
            if (core := self.processes[worker].core) is not None:
                objects = {(kind_of(obj), key_of(obj)): _unversioned(obj) for obj in core.table.objects.all()}
                truth = {
                    (kind, name): _unversioned(obj)
                    for (kind, name), obj in self.server.objects.items()
                    if kind not in UNPUBLISHED_KINDS
                }
                if not self._knows_groups:
                    objects, truth = _without_groups(objects), _without_groups(truth)
                if objects != truth:
                    wrong.append(f"{worker} knows other objects: {sorted(objects.keys() ^ truth.keys())}")
                nominations = core.table.nominations
                found |= {uid: node for node in nominations for uid in nominations.of(node)}
        if found != nominated:
            wrong.append(f"nominations differ: {sorted(found.items() ^ nominated.items())}")
        return wrong

    @property
    def _knows_groups(self) -> bool:
        """Whether no process is of the last release, which passes on neither groups of loads nor most of a PodGroup."""
        return "last" not in self.around.releases.values()

    def _load_of(self, pod: Pod) -> PodLoad:
        return load_of(pod) if self._knows_groups else replace(load_of(pod), group="")

    def _placed(self, worker: str) -> list[tuple[str, str, PodLoad]]:
        core = self.processes[worker].core
        placed = [] if core is None else list(core.table.placed())
        return placed if self._knows_groups else [(uid, where, replace(load, group="")) for uid, where, load in placed]

    def _kept(self) -> list[str]:
        """State kept of orders and pods that are done."""
        snapshot, binders = self.leading("snapshot"), [self.processes[name] for name in ("b1", "b2")]
        wrong = []
        if snapshot.core is not None and snapshot.core.ledger:
            wrong.append(f"the ledger still has {sorted(snapshot.core.ledger)}")
        if snapshot.shell is not None:
            dispatcher = snapshot.shell._binders.dispatcher
            if dispatcher.held or dispatcher.waiting:
                wrong.append(f"{dispatcher.held} orders are held, {dispatcher.waiting} wait")
        cycle = self.leading("cycle").core
        if cycle is not None and cycle.pods_held:
            wrong.append(f"cycle holds {cycle.pods_held} pods")
        wrong += [f"{b.name} holds {b.core.held} orders" for b in binders if b.core is not None and b.core.held]
        return wrong


def _unversioned(obj: ClusterObject) -> ClusterObject:
    """As it is compared: the trees of groups that the snapshot adds are compared by their keys only."""
    if isinstance(obj, PodGroup):
        obj = replace(obj, tree=None)
    return replace(obj, metadata=replace(obj.metadata, resource_version=""))


def _without_groups(
    objects: dict[tuple[ObjectKind, str], ClusterObject],
) -> dict[tuple[ObjectKind, str], ClusterObject]:
    return {key: obj for key, obj in objects.items() if key[0] is not ObjectKind.POD_GROUP}
