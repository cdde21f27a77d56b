"""Inspects a pipeline that should be idle (over NATS, in Redis and in the cluster), and checks a run at its end."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from shared.bus.subjects import SNAPSHOT_LIST
from shared.errors import FlotillaError
from shared.messages.inspection import (
    CacheCompared,
    CacheListed,
    CompareCache,
    DescribedPod,
    ListCache,
    ListQueue,
    QueueListed,
)
from shared.model.objects import Pod, group_of
from shared.store.link import RedisLink, connect
from shared.store.schema import Keys, decode_entry
from shared.telemetry.logs import logger
from testing.auditor.usage import demand_of
from testing.auditor.violations import Invariant, Violation
from tools.cli.processes import MIB
from tools.cli.queue_listing import queue_pages
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


@dataclass(frozen=True, slots=True)
class Check:
    """`broken`: failures with their evidence; `pods`: names of pods whose history is worth keeping."""

    what: str
    count: str
    broken: Sequence[str] = ()
    pods: Sequence[str] = ()


class Inspector:
    """`last_activity`: what became idle last."""

    def __init__(self, environment: Environment, redis: RedisLink) -> None:
        self.last_activity = ""
        self._environment = environment
        self._witness = environment.witness
        self._redis = redis
        self._settings = environment.pipeline.options.settings
        self._client = ServiceClient(environment.bus, self._settings)

    @classmethod
    @asynccontextmanager
    async def of(cls, environment: Environment) -> AsyncIterator["Inspector"]:
        redis = await connect(environment.redis.url, logger("faults"))
        try:
            yield cls(environment, redis)
        finally:
            await redis.close()

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
        fitting, _ = self._pending()
        if fitting:
            return f"{len(fitting)} pods that fit are not bound: {await self._describe(fitting[0])}"
        if terminating := self._witness.terminating():
            return f"{terminating} pods are being deleted"
        if unready := await self._environment.pipeline.unready():
            return f"not ready: {unready}"
        counts: dict[str, int] = {}
        try:
            async for page in queue_pages(self._client, ListQueue(), limit=1):
                counts = page.counts
            assumed = await self._assumed()
        except FlotillaError as cause:
            return str(cause)
        busy = {place: count for place, count in counts.items() if count and place not in IDLE}
        if busy:
            return f"in the queue: {busy}"
        if assumed:
            return f"{len(assumed)} pods are in the ledger: {assumed[0]}"
        wrong = [pod for pod in self._waiting() if self._wrong_condition(pod)]
        return f"{len(wrong)} pods have no condition that says why, such as {wrong[0].name}" if wrong else ""

    async def queue(self, name: str = "", namespace: str = "") -> list[tuple[DescribedPod, QueueListed]]:
        """The queued pods, or those of this name with their histories."""
        request = ListQueue(namespace=namespace, name=name)
        return [(pod, page) async for page in queue_pages(self._client, request) for pod in page.pods]

    async def checks(self, activity: str) -> list[Check]:
        """`activity`: what has not become idle."""
        fitting, misfits = self._pending()
        may_wait = {pod.uid for pod in misfits}
        found = await self._environment.auditor.finish(unbound=lambda record: record.uid in may_wait)
        witness, approver, lines = self._witness, self._environment.approver, self._environment.pipeline.log_lines
        bound = sum(bool(seen.node) for seen in witness.pods.values())
        bindings = f"{witness.bindings:,} bindings"
        unbound = [f"pod {pod.name} ({pod.uid}) fits, but is not bound" for pod in fitting]
        wrong = {pod.name: what for pod in misfits if (what := self._wrong_condition(pod))}
        waiting = [f"pod {key} is waiting for a permit" for key in approver.waiting(RECENT)]
        checks = [
            Check("everything becomes idle, and all services are ready", "", [activity] if activity else []),
            Check(
                *("every pod that fits is bound", f"{bound:,} pods"),
                [*unbound, *_broken(found, Invariant.ALL_BOUND)],
                [pod.name for pod in fitting],
            ),
            Check(
                *("every pod that does not fit is pending, and its condition says why", f"{len(misfits):,} pods"),
                list(wrong.values()),
                list(wrong),
            ),
            Check("no pod was bound twice", bindings, [*witness.moved, *_broken(found, Invariant.BOUND_ONCE)]),
            Check(
                *("no node ever exceeded its capacity", f"{witness.nodes:,} nodes"),
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
            Check(
                *("every wait for a permit ends", f"{approver.allowed:,} permits"),
                [*waiting, *_broken(found, Invariant.PERMIT_ENDS)],
            ),
        ]
        for what, check in (
            ("the ledger of assumed pods is empty", self._check_ledger),
            ("the snapshot's cache matches the API server", self._check_cache),
            ("the queue holds the pending pods and no others", self._check_queue),
            ("no nomination is left over", self._check_nominations),
        ):
            try:
                checks.append(await check(what, found))
            except FlotillaError as cause:  # a service does not reply
                checks.append(Check(what, "", [str(cause)]))
        crashes = [before for before, line in pairwise(lines) if any(text in line for text in CRASHES)]
        return [*checks, Check("no service crashed by itself", f"{len(lines):,} log lines", crashes)]

    async def _check_ledger(self, what: str, found: Iterable[Violation]) -> Check:
        assumed = await self._assumed()
        return Check(what, f"{len(assumed)} entries", [*assumed, *_broken(found, Invariant.LEDGER_ENDS)])

    async def _check_cache(self, what: str, found: Iterable[Violation]) -> Check:
        compared = await self._client.request(
            "snapshot", SNAPSHOT_LIST, CompareCache(), CacheCompared, COMPARISON_TIMEOUT
        )
        broken = [str(difference) for difference in compared.differences]
        broken += [f"{compared.more} more"] if compared.more else []
        broken += [compared.failure] if compared.failure else []
        names = [difference.name.rpartition("/")[2] for difference in compared.differences if difference.kind == "pod"]
        return Check(what, f"{compared.nodes:,} nodes, {compared.pods:,} pods", broken, names)

    async def _check_queue(self, what: str, found: Iterable[Violation]) -> Check:
        waiting = {pod.uid: pod.name for pod in self._waiting()}
        queue = {pod.uid: pod for pod, _ in await self.queue()}
        missing = {uid: name for uid, name in waiting.items() if uid not in queue}
        broken = {name: f"pod {name} ({uid}) is pending, but missing" for uid, name in missing.items()}
        for uid, pod in queue.items():
            if uid not in waiting:
                broken[pod.name] = f"pod {pod.name} ({uid}) is not pending, but {pod.state}"
            elif pod.state not in IDLE:
                broken[pod.name] = f"pod {pod.name} ({uid}) is {pod.state}"
        violations = _broken(found, Invariant.ACCOUNTED_FOR, Invariant.QUEUED_AND_BOUND)
        return Check(what, f"{len(queue):,} pods", [*broken.values(), *violations], list(broken))

    async def _check_nominations(self, what: str, found: Iterable[Violation]) -> Check:
        """All preemptors are bound by now, so no node should be reserved or named in a status."""
        pages = self._client.pages("snapshot", SNAPSHOT_LIST, ListCache(), CacheListed)
        broken = [
            f"{node.name} is reserved for pod {pod.key} ({pod.uid})"
            async for page in pages
            for node in page.nodes
            for pod in node.nominated
        ]
        broken += [
            f"pod {pod.name} ({pod.uid}) is nominated to {pod.status.nominated_node_name}"
            for pod in self._waiting()
            if pod.status.nominated_node_name
        ]
        return Check(what, f"{len(broken)} nominations", broken)

    def _waiting(self) -> list[Pod]:
        """The pending pods that are not being deleted."""
        return [pod for pod in self._witness.waiting() if pod.metadata.deletion_timestamp is None]

    def _pending(self) -> tuple[list[Pod], list[Pod]]:
        """The waiting pods that fit, and those that fit nowhere."""
        fitting: list[Pod] = []
        misfits: list[Pod] = []
        for pod in self._waiting():
            (fitting if self._misfit(pod) is None else misfits).append(pod)
        return fitting, misfits

    def _misfit(self, pod: Pod) -> str | None:
        """What the condition of a pod that fits nowhere must contain; None if the pod fits."""
        kind = kind_of(pod.name)
        if kind == FILLER:
            return None if self._witness.has_room(demand_of(pod), TIGHT) else FILLER_MISFIT
        return MISFITS.get(kind)

    def _wrong_condition(self, pod: Pod) -> str:
        """What is wrong with the condition of a pod that fits nowhere; empty if it is right."""
        why = self._misfit(pod)
        subject = f"pod {pod.name} ({pod.uid}) fits nowhere, but"
        condition = next((each for each in pod.status.conditions if each.type == CONDITION), None)
        if condition is None:
            return f"{subject} has no condition {CONDITION}"
        stated = (condition.status, condition.reason) == ("False", UNSCHEDULABLE)
        nodes = str(self._witness.nodes) if group_of(pod) is None else r"\d+"  # a gang is judged on nodes of one domain
        is_counted = re.search(f"0/{nodes} nodes are available", condition.message) is not None
        if stated and is_counted and (why or "") in condition.message:
            return ""
        return f"{subject} its condition is {condition.status}, {condition.reason}: {condition.message!r}"

    async def _describe(self, pod: Pod) -> str:
        """Where a pod is, in a few words."""
        try:
            found = await self.queue(pod.name, pod.metadata.namespace)
        except FlotillaError as cause:
            return f"{pod.name} ({cause})"
        if not found:
            return f"{pod.name} is not in the queue"
        queued, page = found[0]
        return f"{pod.name} is {queued.state} for {page.now - queued.since:.1f} s ({queued.gate or queued.why})"

    async def _assumed(self) -> list[str]:
        """Descriptions of the entries of the ledger in Redis."""
        described = []
        for entry in map(decode_entry, await self._redis.call("HVALS", Keys(self._settings.prefix).ledger)):
            seen = self._witness.pods.get(entry.uid)
            state = "is gone" if seen is None else f"is on {seen.node}" if seen.node else "is on no node"
            left = entry.deadline - time.monotonic()
            described.append(f"{entry.key} ({entry.uid}), assumed on {entry.node}, {state}, {left:.1f} s left")
        return described


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
