"""Inspects a pipeline that should be idle (over NATS, in Redis and in the cluster), and checks a run at its end."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from shared.bus.subjects import SNAPSHOT_LIST
from shared.errors import FlotillaError
from shared.messages.inspection import (
    CacheCompared,
    CachedPod,
    CacheListed,
    CompareCache,
    DescribedPod,
    ListCache,
    ListQueue,
    QueueListed,
)
from shared.messages.state import LedgerEntry
from shared.model.objects import Pod
from shared.store.link import RedisLink, connect
from shared.store.schema import Keys, decode_entry
from shared.telemetry.logs import logger
from testing.auditor.usage import demand_of
from testing.auditor.violations import Invariant, Violation
from tools.cli.processes import MIB
from tools.cli.queue import queue_pages
from tools.cli.service_client import COMPARISON_TIMEOUT, ServiceClient
from tools.faults.environment import Environment
from tools.faults.workload import FILLER, FILLER_MISFIT, MISFITS, TIGHT, kind_of

IDLE = frozenset({"unschedulable", "gated"})
CONDITION, UNSCHEDULABLE = "PodScheduled", "Unschedulable"
POLL_INTERVAL = 0.3
IDLE_POLLS = 3
"""Consecutive idle polls required."""
CRASHES = ("Traceback (most recent call last)", "InvariantBroken")
"""What no service may log, even under faults."""
RECENT = 2.0
"""Seconds for which a binder's reply about permits counts."""
MAX_GROWTH, MAX_GROWTH_MIB = 0.25, 16
"""Allowed memory growth of a process: this share plus this many MiB."""
MAX_SHOWN = 5
MAX_DETAIL = 400


class Inspector:
    """`last_activity`: what became idle last."""

    def __init__(self, environment: Environment, redis: RedisLink, nodes: int) -> None:
        self.last_activity = ""
        self._nodes = nodes
        self._environment = environment
        self._redis = redis
        self._settings = environment.pipeline.options.settings
        self._client = ServiceClient(environment.bus, self._settings)

    async def wait_until_idle(self, timeout: float) -> str:
        """Returns an empty string once idle, or the activity that is left after the time-out."""
        deadline, polls = time.monotonic() + timeout, 0
        self.last_activity = ""
        while True:
            activity = await self.activity()
            self.last_activity = activity or self.last_activity
            polls = 0 if activity else polls + 1
            if polls == IDLE_POLLS or (activity and time.monotonic() > deadline):
                return activity
            await asyncio.sleep(POLL_INTERVAL)

    async def activity(self) -> str:
        """What is going on now; empty if the pipeline is idle."""
        fitting = [pod for pod in self.waiting() if self.misfit(pod) is None]
        if fitting:
            return f"{len(fitting)} pods that fit are not bound: {await self.describe(fitting[0])}"
        if terminating := self._environment.witness.terminating():
            return f"{terminating} pods are being deleted"
        if unready := await self._environment.pipeline.unready():
            return f"not ready: {unready}"
        try:
            busy = {place: count for place, count in (await self.counts()).items() if count and place not in IDLE}
            assumed = await self.assumed()
        except FlotillaError as cause:
            return str(cause)
        if busy:
            return f"in the queue: {busy}"
        if assumed:
            return f"{len(assumed)} pods are in the ledger: {assumed[0]}"
        wrong = [pod for pod in self.waiting() if self.wrong_condition(pod)]
        return f"{len(wrong)} pods have no condition that says why, such as {wrong[0].name}" if wrong else ""

    def waiting(self) -> list[Pod]:
        """The pending pods that are not being deleted."""
        return [pod for pod in self._environment.witness.waiting() if pod.metadata.deletion_timestamp is None]

    def misfit(self, pod: Pod) -> str | None:
        """What the condition of a pod that fits nowhere must contain; None if the pod fits."""
        kind = kind_of(pod.name)
        if kind == FILLER:
            return None if self._environment.witness.has_room(demand_of(pod), TIGHT) else FILLER_MISFIT
        return MISFITS.get(kind)

    def wrong_condition(self, pod: Pod) -> str:
        """What is wrong with the condition of a pod that fits nowhere; empty if it is right."""
        why = self.misfit(pod)
        subject = f"pod {pod.name} ({pod.uid}) fits nowhere, but"
        condition = next((each for each in pod.status.conditions if each.type == CONDITION), None)
        if condition is None:
            return f"{subject} has no condition {CONDITION}"
        said = (condition.status, condition.reason) == ("False", UNSCHEDULABLE)
        if said and f"0/{self._nodes} nodes are available" in condition.message and (why or "") in condition.message:
            return ""
        return f"{subject} its condition is {condition.status}, {condition.reason}: {condition.message!r}"

    async def counts(self) -> dict[str, int]:
        """The number of queued pods by place."""
        async for page in queue_pages(self._client, ListQueue(), limit=1):
            return page.counts
        return {}

    async def queue(self, name: str = "", namespace: str = "") -> list[tuple[DescribedPod, QueueListed]]:
        """The queued pods, or those of this name with their histories."""
        request = ListQueue(namespace=namespace, name=name)
        return [(pod, page) async for page in queue_pages(self._client, request) for pod in page.pods]

    async def describe(self, pod: Pod) -> str:
        """Where a pod is, in a few words."""
        try:
            found = await self.queue(pod.name, pod.metadata.namespace)
        except FlotillaError as cause:
            return f"{pod.name} ({cause})"
        if not found:
            return f"{pod.name} is not in the queue"
        queued, page = found[0]
        return f"{pod.name} is {queued.place} for {page.now - queued.since:.1f} s ({queued.gate or queued.why})"

    async def assumed(self) -> list[str]:
        """Descriptions of the entries of the ledger in Redis."""
        values = await self._redis.call("HVALS", Keys(self._settings.prefix).ledger)
        return [self._described(entry) for entry in map(decode_entry, values)]

    def _described(self, entry: LedgerEntry) -> str:
        seen = self._environment.witness.pods.get(entry.uid)
        state = "is gone" if seen is None else f"is on {seen.node}" if seen.node else "is on no node"
        left = entry.deadline - time.monotonic()
        return f"{entry.key} ({entry.uid}), assumed on {entry.node}, {state}, {left:.1f} s left"

    async def compared(self) -> CacheCompared:
        return await self._client.request("snapshot", SNAPSHOT_LIST, CompareCache(), CacheCompared, COMPARISON_TIMEOUT)

    async def nominated(self) -> list[tuple[str, CachedPod]]:
        """The pods for which the snapshot reserves a node, with its name."""
        pages = self._client.pages("snapshot", SNAPSHOT_LIST, ListCache(), CacheListed)
        return [(node.name, pod) async for page in pages for node in page.nodes for pod in node.nominated]


@asynccontextmanager
async def inspecting(environment: Environment, nodes: int) -> AsyncIterator[Inspector]:
    """`nodes`: the number of nodes."""
    redis = await connect(environment.redis.url, logger("faults"))
    try:
        yield Inspector(environment, redis, nodes)
    finally:
        await redis.close()


@dataclass(frozen=True, slots=True)
class Check:
    """`broken`: failures with their evidence; `pods`: names of pods whose history is worth keeping."""

    what: str
    count: str
    broken: Sequence[str] = ()
    pods: Sequence[str] = field(default=())


class Checks:
    """`nodes`: the number of nodes."""

    def __init__(self, environment: Environment, inspector: Inspector, nodes: int) -> None:
        self._environment = environment
        self._inspector = inspector
        self._nodes = nodes

    async def all(self, activity: str) -> list[Check]:
        """`activity`: what has not become idle."""
        may_wait = {pod.uid for pod in self._inspector.waiting() if self._inspector.misfit(pod) is not None}
        found = await self._environment.auditor.finish(unbound=lambda record: record.uid in may_wait)
        witness = self._environment.witness
        bindings = f"{witness.bindings:,} bindings"
        checks = [
            Check("everything becomes idle, and all services are ready", "", [activity] if activity else []),
            self._bound(found),
            self._waiting(),
            Check(
                *("no pod was bound twice", bindings),
                [*witness.moved, *_broken(found, Invariant.BOUND_ONCE)],
            ),
            Check(
                *("no node ever exceeded its capacity", f"{self._nodes:,} nodes"),
                [*witness.overfull, *_broken(found, Invariant.CAPACITY)],
            ),
            Check(
                *("every binding met its constraints: labels, taints, host ports, affinity, volumes", bindings),
                [*witness.misplaced, *_broken(found, Invariant.CONSTRAINTS, Invariant.HOST_PORTS)],
            ),
            Check(
                *("every gang is bound completely or not at all", f"{len(witness.gangs()):,} gangs"),
                [*witness.torn, *witness.partial_gangs()],
            ),
            Check(
                "no volume was bound to two claims, and every claim kept its volume",
                f"{len(witness.volumes.bound):,} claims",
                witness.volumes.broken,
            ),
            self._permits(found),
        ]
        for what, check in (
            ("the ledger of assumed pods is empty", self._ledger),
            ("the snapshot's cache matches the API server", self._cache),
            ("the queue holds the pending pods and no others", self._queue),
            ("no nomination is left over", self._nominations),
        ):
            checks.append(await _answered(what, check, found))
        return [*checks, self._no_crash()]

    def _bound(self, found: Iterable[Violation]) -> Check:
        fitting = [pod for pod in self._inspector.waiting() if self._inspector.misfit(pod) is None]
        bound = sum(bool(seen.node) for seen in self._environment.witness.pods.values())
        broken = [f"pod {pod.name} ({pod.uid}) fits, but is not bound" for pod in fitting]
        broken += _broken(found, Invariant.ALL_BOUND)
        return Check("every pod that fits is bound", f"{bound:,} pods", broken, [pod.name for pod in fitting])

    def _waiting(self) -> Check:
        expected = [pod for pod in self._inspector.waiting() if self._inspector.misfit(pod) is not None]
        broken = {pod.name: what for pod in expected if (what := self._inspector.wrong_condition(pod))}
        what = "every pod that does not fit is pending, and its condition says why"
        return Check(what, f"{len(expected):,} pods", list(broken.values()), list(broken))

    def _permits(self, found: Iterable[Violation]) -> Check:
        """The approver polls both binders several times a second."""
        waiting = [f"pod {key} is waiting for a permit" for key in self._environment.approver.waiting(RECENT)]
        violations = _broken(found, Invariant.PERMIT_ENDS)
        return Check(
            "every wait for a permit ends", f"{self._environment.approver.allowed:,} permits", [*waiting, *violations]
        )

    async def _ledger(self, what: str, found: Iterable[Violation]) -> Check:
        assumed = await self._inspector.assumed()
        broken = [*assumed, *_broken(found, Invariant.LEDGER_ENDS)]
        return Check(what, f"{len(assumed)} entries", broken)

    async def _cache(self, what: str, found: Iterable[Violation]) -> Check:
        compared = await self._inspector.compared()
        broken = [str(difference) for difference in compared.differences]
        broken += [f"{compared.more} more"] if compared.more else []
        broken += [compared.failure] if compared.failure else []
        names = [difference.name.rpartition("/")[2] for difference in compared.differences if difference.kind == "pod"]
        return Check(what, f"{compared.nodes:,} nodes, {compared.pods:,} pods", broken, names)

    async def _queue(self, what: str, found: Iterable[Violation]) -> Check:
        waiting = {pod.uid: pod.name for pod in self._inspector.waiting()}
        queue = {pod.uid: pod for pod, _ in await self._inspector.queue()}
        missing = {uid: name for uid, name in waiting.items() if uid not in queue}
        broken = {name: f"pod {name} ({uid}) is pending, but missing" for uid, name in missing.items()}
        for uid, pod in queue.items():
            if uid not in waiting:
                broken[pod.name] = f"pod {pod.name} ({uid}) is not pending, but {pod.place}"
            elif pod.place not in IDLE:
                broken[pod.name] = f"pod {pod.name} ({uid}) is {pod.place}"
        violations = _broken(found, Invariant.ACCOUNTED_FOR, Invariant.QUEUED_AND_BOUND)
        return Check(what, f"{len(queue):,} pods", [*broken.values(), *violations], list(broken))

    async def _nominations(self, what: str, found: Iterable[Violation]) -> Check:
        """All preemptors are bound by now, so there should be none."""
        kept = [f"{node} is reserved for pod {pod.key} ({pod.uid})" for node, pod in await self._inspector.nominated()]
        said = [
            f"pod {pod.name} ({pod.uid}) is nominated to {pod.status.nominated_node_name}"
            for pod in self._inspector.waiting()
            if pod.status.nominated_node_name
        ]
        return Check(what, f"{len(kept) + len(said)} nominations", [*kept, *said])

    def _no_crash(self) -> Check:
        lines = self._environment.pipeline.log_lines
        broken = [before for before, line in pairwise(lines) if any(text in line for text in CRASHES)]
        return Check("no service crashed by itself", f"{len(lines):,} log lines", broken)


async def _answered(
    what: str, check: Callable[[str, Iterable[Violation]], Awaitable[Check]], found: Iterable[Violation]
) -> Check:
    """The check fails if a service does not reply."""
    try:
        return await check(what, found)
    except FlotillaError as cause:
        return Check(what, "", [str(cause)])


def _broken(found: Iterable[Violation], *invariants: Invariant) -> list[str]:
    return [str(violation) for violation in found if violation.invariant in invariants]


def memory_growth(before: Mapping[str, int], after: Mapping[str, int]) -> Check:
    broken: list[str] = []
    for name, bytes_before in before.items():
        bytes_after = after.get(name)
        if bytes_after is None:
            broken.append(f"{name} is no longer running")
        elif bytes_after > bytes_before * (1 + MAX_GROWTH) + MAX_GROWTH_MIB * MIB:
            broken.append(f"{name} grew from {_mib(bytes_before)} to {_mib(bytes_after)}")
    count = f"{_mib(sum(before.values()))} before, {_mib(sum(after.values()))} after"
    return Check("no process has grown", count, broken)


def memory_table(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [f"{name:<16} {_mib(before[name]):>10} {_mib(after.get(name, 0)):>10}" for name in before]


def _mib(count: int) -> str:
    return f"{count / MIB:,.0f} MiB"


def verdicts(checks: Sequence[Check]) -> list[str]:
    lines: list[str] = []
    for check in checks:
        count = f" ({check.count})" if check.count else ""
        lines.append(f"  {'✗' if check.broken else '✓'} {check.what}{count}")
        lines += [f"      {text.splitlines()[0][:MAX_DETAIL]}" for text in check.broken[:MAX_SHOWN]]
        if len(check.broken) > MAX_SHOWN:
            lines.append(f"      and {len(check.broken) - MAX_SHOWN} more")
    return lines
