"""What a term does first where the store may have forgotten something: fence whatever earlier terms may have ordered.

No ledger says what was ordered, and no wait outlasts a call that is on its way. But every order named a pod that the
listing shows without a node, and the version that the pod had. So each of these pods is given a new version, by a
condition that names this term. The answer to that says how it went on:

    pending -> touch -+-> without a node, at a new version: fenced, nothing from before can bind it
                      +-> on a node: waits until the watch shows it there, so that its place is known
                      +-> gone
                      +-> no answer, or not allowed: touched again
                      +-> refused for good: set aside after TRIES times

The watch may say first that a pod is on a node, finished or gone. Of pods that cannot be read it tells as much. So
neither a pod that becomes unreadable nor one whose condition is removed is waited for.

A pod set aside keeps the place that the ledger names, however doubtful it is, and otherwise is scheduled as any other:
a binding, too, changes its version.
"""

import asyncio
import logging
from collections.abc import Callable

from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden, Refused
from shared.kube.events_and_conditions import BindingFenced, ObservedPod, PodRef
from shared.messages.watch import Kind, PodChange, Unreadable
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated

MOST_AT_ONCE = 64
"""Calls to the API server."""
AGAIN = 1.0
"""Seconds until what was not answered, or what the watch has not shown, is looked at again."""
TRIES = 3
"""Times that a pod is touched which the API server refuses to change."""
MOST_NAMED = 5
"""Pods in one line."""
PROGRESS = 1.0
"""Seconds between two lines about how far it is."""
SECONDS_A_POD = 0.002
"""About, as measured with a real API server."""

REFUSED_FOR_GOOD = (400, 413, 422)
"""Answers that say that this change of this pod is not accepted; others may be over soon."""
NO_RIGHT = "cannot patch resource"
"""What the API server says where a right is missing; admission says something else."""


class Barrier:
    def __init__(
        self, client: KubeClient, schedulers: frozenset[str], epoch: int, log: logging.Logger, fault: Fault
    ) -> None:
        """`schedulers`: whose pods are ours to schedule."""
        self._client = client
        self._schedulers = schedulers
        self._mark = BindingFenced("", f"term {epoch}")
        self._log = log
        self._fault = fault
        self._sparingly = Repeated(log)
        self._open: dict[str, PodRef] = {}
        self._bound: set[str] = set()
        """Of the open ones, those that are on a node by an answer; the watch is still to show that."""
        self._refusals: dict[str, int] = {}
        self.aside: dict[str, PodRef] = {}
        """Pods that the API server refuses to change, by uid. They are not fenced."""
        self._total = 0
        self._closed = False
        self._problem = ""
        self._empty = asyncio.Event()

    def see(self, change: object) -> None:
        """What the watch shows, from the first message on. Pods that come after `run` was begun are nobody's yet."""
        match change:
            case PodChange():
                placed = change.gone or change.finished or bool(change.node)
            case Unreadable(kind=Kind.POD):
                placed = bool(change.node)
            case _:
                return
        if placed:
            self._drop(change.uid)
        elif not self._closed and self._may_be_ours(change):
            self._open[change.uid] = PodRef(change.namespace, change.name, change.uid)

    async def run(self, tell: Callable[[str], None]) -> None:
        """All that there is has been seen once. Returns when nothing of an earlier term can be bound any more."""
        self._closed, self._total = True, len(self._open)
        what, seconds = "what earlier terms have assumed is not known", max(1, round(self._total * SECONDS_A_POD))
        self._log.warning("%s: %d pending pods are fenced first, in about %d s", what, self._total, seconds)
        progress = asyncio.create_task(self._report(tell), name="telling how far the fence is")
        self._fault.watch(progress)
        try:
            while self._open:
                self._empty.clear()
                await self._fence_all()
                if self._open:
                    await self._pause()
        finally:
            progress.cancel()
        self._log.info("%s", self._progress())
        if self.aside:
            self._log.warning("%s: a binding of an earlier term may still come", self._named_aside())

    def _may_be_ours(self, change: PodChange | Unreadable) -> bool:
        """Of a pod that cannot be read it may be unknown whose it is."""
        return change.scheduler in self._schedulers or (isinstance(change, Unreadable) and not change.scheduler)

    def _drop(self, uid: str) -> None:
        self.aside.pop(uid, None)
        self._bound.discard(uid)
        if self._open.pop(uid, None) is not None and not self._open:
            self._empty.set()

    def _progress(self) -> str:
        fenced = self._total - len(self._open) - len(self.aside)
        text = f"fenced {fenced:,} of {self._total:,} pending pods"
        if self.aside:
            text += f"; {self._named_aside()}"
        if self._bound:
            text += f"; {len(self._bound):,} are on a node, which the watch has not shown yet"
        return f"{text}; {self._problem}" if self._problem and self._open else text

    def _named_aside(self) -> str:
        names = [f"{pod.namespace}/{pod.name}" for pod in list(self.aside.values())[:MOST_NAMED]]
        more = f" and {len(self.aside) - len(names):,} more" if len(self.aside) > len(names) else ""
        return f"the API server refuses to change {', '.join(names)}{more}"

    async def _report(self, tell: Callable[[str], None]) -> None:
        while True:
            tell(self._progress())
            await asyncio.sleep(PROGRESS)
            self._log.info("%s", self._progress())

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(AGAIN):
                await self._empty.wait()
        except TimeoutError:
            pass

    async def _fence_all(self) -> None:
        waiting = list(self._open)

        async def work() -> None:
            while waiting:
                await self._fence(waiting.pop())

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(MOST_AT_ONCE, len(waiting))):
                workers.create_task(work())

    async def _fence(self, uid: str) -> None:
        pod = self._open.get(uid)
        if pod is None:
            return
        try:
            standing = await self._ask(pod)
        except Forbidden as cause:
            if _is_about_the_pod(cause):
                self._refuse(uid, pod, cause)
            else:
                self._fail(f"the API server does not allow it, the snapshot needs `patch` on `pods/status`: {cause}")
        except Refused as cause:
            if cause.status in REFUSED_FOR_GOOD:
                self._refuse(uid, pod, cause)
            else:
                self._fail(str(cause))
        except FlotillaError as cause:
            self._fail(str(cause))
        else:
            self._problem = ""
            if standing is not None and standing.uid == uid and standing.node:
                self._bound.add(uid)
            else:
                self._drop(uid)

    def _refuse(self, uid: str, pod: PodRef, cause: Refused) -> None:
        """It is set aside once it was tried often enough."""
        self._fail(str(cause))
        self._refusals[uid] = tries = self._refusals.get(uid, 0) + 1
        if tries >= TRIES and self._open.pop(uid, None) is not None:
            self.aside[uid] = pod

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._sparingly.warning("fence", "pending pods cannot be fenced: %s", problem)

    async def _ask(self, pod: PodRef) -> ObservedPod | None:
        """A pod that is known to be bound is only looked at: it may be gone by now. So is one that cannot be touched,
        as it may have another uid."""
        if pod.uid in self._bound:
            return await self._client.observe_pod(pod.namespace, pod.name)
        try:
            return await self._client.patch_and_observe(pod, self._mark)
        except FlotillaError as cause:
            if isinstance(cause, Forbidden) and not _is_about_the_pod(cause):
                raise
            standing = await self._client.observe_pod(pod.namespace, pod.name)
            if standing is None or standing.uid != pod.uid or standing.node:
                return standing
            raise


def _is_about_the_pod(cause: Forbidden) -> bool:
    """An admission webhook or policy refuses the change; nobody lacks a right."""
    return "denied" in cause.message and NO_RIGHT not in cause.message
