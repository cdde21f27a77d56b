"""Whether everything is as it should be once all is quiet. Every check says at how much it has looked."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from shared.errors import FlotillaError
from testing.auditor.violations import Invariant, Violation
from tools.cli.faults.looking import AT_REST, Looking
from tools.cli.faults.stage import Stage

BREAKDOWNS = ("Traceback (most recent call last)", "InvariantBroken")
"""What no service may say, whatever is done to it."""
RECENT = 2.0
"""Seconds: what binders said before that of who waits for permits counts no more."""


@dataclass(frozen=True, slots=True)
class Check:
    """`broken`: what does not hold, with its evidence; `pods`: the names of those whose stories tell more."""

    what: str
    count: str
    broken: Sequence[str] = ()
    pods: Sequence[str] = field(default=())


class Checking:
    """`nodes`: how many there are."""

    def __init__(self, stage: Stage, look: Looking, nodes: int) -> None:
        self._stage = stage
        self._look = look
        self._nodes = nodes

    async def all(self, unrest: str) -> list[Check]:
        """`unrest`: what did not come to rest."""
        may_wait = {pod.uid for pod in self._look.waiting() if self._look.misfit(pod) is not None}
        found = await self._stage.auditor.finish(unbound=lambda record: record.uid in may_wait)
        checks = [
            Check("everything comes to rest, and all services are ready", "", [unrest] if unrest else []),
            self._bound(found),
            self._waiting(),
            self._once(found),
            self._within(found),
            self._allowed(found),
            self._gangs(),
            self._volumes(),
            self._permits(found),
        ]
        for what, check in (
            ("the ledger of assumed pods is empty", self._ledger),
            ("the snapshot's cache is what the API server says", self._cache),
            ("the queue holds the pods that wait, and no others", self._queue),
            ("nobody is nominated without reason", self._nominations),
        ):
            checks.append(await _answered(what, check, found))
        return [*checks, self._sane()]

    def _bound(self, found: Iterable[Violation]) -> Check:
        fitting = [pod for pod in self._look.waiting() if self._look.misfit(pod) is None]
        bound = sum(bool(seen.node) for seen in self._stage.witness.pods.values())
        broken = [f"pod {pod.name} ({pod.uid}) fits, and is not bound" for pod in fitting]
        broken += _told(found, Invariant.ALL_BOUND)
        return Check("every pod that fits is bound", f"{bound:,} pods", broken, [pod.name for pod in fitting])

    def _waiting(self) -> Check:
        expected = [pod for pod in self._look.waiting() if self._look.misfit(pod) is not None]
        broken = {pod.name: what for pod in expected if (what := self._look.untold(pod))}
        what = "every pod that does not fit waits, and its condition says why"
        return Check(what, f"{len(expected):,} pods", list(broken.values()), list(broken))

    def _once(self, found: Iterable[Violation]) -> Check:
        witness = self._stage.witness
        broken = [*witness.moved, *_told(found, Invariant.BOUND_ONCE)]
        return Check("no pod was bound twice", f"{witness.bindings:,} bindings", broken)

    def _within(self, found: Iterable[Violation]) -> Check:
        broken = [*self._stage.witness.overfull, *_told(found, Invariant.CAPACITY)]
        what = "no node held more than it has, at any time"
        return Check(what, f"{self._nodes:,} nodes", broken)

    def _allowed(self, found: Iterable[Violation]) -> Check:
        broken = [*self._stage.witness.misplaced, *_told(found, Invariant.CONSTRAINTS, Invariant.HOST_PORTS)]
        what = "every pod was bound where it may be: labels, taints, host ports, affinity between pods"
        return Check(what, f"{self._stage.witness.bindings:,} bindings", broken)

    def _gangs(self) -> Check:
        witness = self._stage.witness
        what = "every gang is on nodes whole, or not at all"
        return Check(what, f"{len(witness.gangs()):,} gangs", [*witness.torn, *witness.halves()])

    def _volumes(self) -> Check:
        volumes = self._stage.witness.volumes
        what = "no volume went to two claims, and every claim keeps what it has"
        return Check(what, f"{len(volumes.bound):,} claims", volumes.broken)

    def _permits(self, found: Iterable[Violation]) -> Check:
        """Both binders are asked several times a second."""
        waiting = [f"pod {key} waits for a permit" for key in self._stage.approver.waiting(RECENT)]
        told = _told(found, Invariant.PERMIT_ENDS)
        return Check("every wait for a permit ends", f"{self._stage.approver.allowed:,} permits", [*waiting, *told])

    async def _ledger(self, what: str, found: Iterable[Violation]) -> Check:
        assumed = await self._look.assumed()
        broken = [*assumed, *_told(found, Invariant.LEDGER_ENDS)]
        return Check(what, f"{len(assumed)} entries", broken)

    async def _cache(self, what: str, found: Iterable[Violation]) -> Check:
        compared = await self._look.compared()
        broken = [str(difference) for difference in compared.differences]
        broken += [f"{compared.more} more"] if compared.more else []
        broken += [compared.failure] if compared.failure else []
        names = [difference.name.rpartition("/")[2] for difference in compared.differences if difference.kind == "pod"]
        return Check(what, f"{compared.nodes:,} nodes, {compared.pods:,} pods", broken, names)

    async def _queue(self, what: str, found: Iterable[Violation]) -> Check:
        waiting = {pod.uid: pod.name for pod in self._look.waiting()}
        queue = {pod.uid: pod for pod, _ in await self._look.queue()}
        missing = {uid: name for uid, name in waiting.items() if uid not in queue}
        broken = {name: f"pod {name} ({uid}) waits, and is not there" for uid, name in missing.items()}
        for uid, pod in queue.items():
            if uid not in waiting:
                broken[pod.name] = f"pod {pod.name} ({uid}) does not wait, and is there as {pod.place}"
            elif pod.place not in AT_REST:
                broken[pod.name] = f"pod {pod.name} ({uid}) is there as {pod.place}"
        told = _told(found, Invariant.ACCOUNTED_FOR, Invariant.QUEUED_AND_BOUND)
        return Check(what, f"{len(queue):,} pods", [*broken.values(), *told], list(broken))

    async def _nominations(self, what: str, found: Iterable[Violation]) -> Check:
        """All who preempt are bound by now, so nobody needs to be."""
        kept = [f"room is kept for pod {pod.key} ({pod.uid}) on {node}" for node, pod in await self._look.nominated()]
        said = [
            f"pod {pod.name} ({pod.uid}) waits, and is nominated to {pod.status.nominated_node_name}"
            for pod in self._look.waiting()
            if pod.status.nominated_node_name
        ]
        return Check(what, f"{len(kept) + len(said)} nominations", [*kept, *said])

    def _sane(self) -> Check:
        lines = self._stage.pipeline.log_lines
        broken = [before for before, line in pairwise(lines) if any(text in line for text in BREAKDOWNS)]
        return Check("no service broke down by itself", f"{len(lines):,} lines of log", broken)


async def _answered(
    what: str, check: Callable[[str, Iterable[Violation]], Awaitable[Check]], found: Iterable[Violation]
) -> Check:
    """Who does not answer does not hold either."""
    try:
        return await check(what, found)
    except FlotillaError as cause:
        return Check(what, "", [str(cause)])


def _told(found: Iterable[Violation], *invariants: Invariant) -> list[str]:
    return [str(violation) for violation in found if violation.invariant in invariants]
