"""If the store may have lost entries of the ledger, a term first fences all that earlier terms may have ordered.

No ledger says what was ordered, and no wait is longer than every call that is on its way. But every order named a pod
that the listing shows without a node, and the version that the pod had. So each of these pods is given a new version,
by a condition that names this term. The answer says where the pod is:

    pending -> touched -+-> without a node, at a new version: fenced, no earlier call can bind it
                        +-> on a node: waits until the watch shows it there
                        +-> gone
                        +-> no answer, or a right is missing: touched again
                        +-> refused for good: set aside after MAX_TRIES

The watch may show first that a pod is on a node, finished or gone, also if the pod is unreadable.

Then claims of devices are fenced in the same way (`claim_barrier`).

A pod set aside stays assumed where the ledger, lost or not, has it; otherwise it is scheduled like any other: a binding
changes its version, too.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice

from services.snapshot.store.claim_barrier import MAX_CALLS, MAX_TRIES, ClaimBarrier
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden, Refused
from shared.kube.events_and_conditions import BindingFenced, ObservedPod, PodRef
from shared.messages.watch import AlikePods, Kind, ObjectChange, PodChange, Unreadable
from shared.model.kinds import ObjectKind
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated

RETRY_SECONDS = 1.0
"""Until pods without an answer, and bound ones that the watch has not shown, are asked for again."""
MAX_NAMED = 5
"""Pods, or claims, in one line."""
PROGRESS_SECONDS = 1.0
"""Between two lines of progress."""
SECONDS_PER_POD = 0.002
"""Measured with a real API server."""


class FencingBarrier:
    def __init__(
        self, client: KubeClient, schedulers: frozenset[str], epoch: int, log: logging.Logger, fault: Fault
    ) -> None:
        """`schedulers`: whose pods this pipeline schedules, or did."""
        self._client = client
        self._schedulers = schedulers
        # Unique, for a patch that changes nothing gives the pod no other version, and a term may be used twice.
        mark = f"term {epoch} ({secrets.token_hex(4)})"
        self._mark = BindingFenced("", mark)
        self._claims = ClaimBarrier(client, mark)
        self._log = log
        self._fault = fault
        self._repeated = Repeated(log)
        self._open: dict[str, PodRef] = {}
        self._bound: set[str] = set()
        """Of the open ones, those that are on a node by an answer, which the watch has not shown."""
        self._refusals: dict[str, int] = {}
        self.aside: dict[str, PodRef] = {}
        """Pods that the API server refuses to change, by uid. They are not fenced."""
        self._total = 0
        self._closed = False
        self._problem = ""
        self._claims_problem = ""
        self._empty = asyncio.Event()

    def on_watch(self, change: object) -> None:
        """Every change, from the first one on. No earlier term knows pods that come after `run` has begun."""
        match change:
            case ObjectChange(kind=ObjectKind.RESOURCE_CLAIM):
                self._claims.on_watch(change)
                return
            case AlikePods(pods=pods):
                for pod in pods:
                    self._drop(pod.uid)
                return
            case PodChange():
                placed = change.gone or change.finished or bool(change.node)
                is_ours = change.scheduler in self._schedulers
            case Unreadable(kind=Kind.POD):
                placed = bool(change.node)
                is_ours = not change.scheduler or change.scheduler in self._schedulers  # it may be unknown
            case _:
                return
        if placed:
            self._drop(change.uid)
        elif is_ours and not self._closed:
            self._open[change.uid] = PodRef(change.namespace, change.name, change.uid)

    async def run(self, tell: Callable[[str], None]) -> None:
        """The cluster was listed. Returns when no order of an earlier term can bind a pod any more."""
        self._closed, self._total = True, len(self._open)
        what, seconds = "what earlier terms have assumed is unknown", max(1, round(self._total * SECONDS_PER_POD))
        self._log.warning("%s: fencing %s pending pods first, in about %d s", what, f"{self._total:,}", seconds)
        progress = asyncio.create_task(self._report(tell), name="fencing progress")
        self._fault.watch(progress)
        try:
            while self._open:
                self._empty.clear()
                await self._fence_all()
                if self._open:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_SECONDS):
                            await self._empty.wait()
            while not await self._fence_claims():
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            progress.cancel()
        self._log.info("%s", self._progress())
        if self.aside:
            self._log.warning("%s: a binding of an earlier term may still come", self._named_aside())
        if self._claims.aside:
            self._log.warning(
                "%s: an allocation of an earlier term may still come", _refused(self._claims.aside.values())
            )

    async def _fence_claims(self) -> bool:
        """Whether no order of an earlier term can allocate a claim any more."""
        try:
            self._claims_problem = await self._claims.run()
        except FlotillaError as cause:
            self._claims_problem = f"claims of devices cannot be fenced: {cause}"
            self._repeated.warning("claims", "%s", self._claims_problem)
        return not self._claims_problem

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
            text += f"; {len(self._bound):,} are on a node, which the watch does not show yet"
        if self._open:
            return f"{text}; {self._problem}" if self._problem else text
        return f"{text}; {self._claims_problem}" if self._claims_problem else text

    def _named_aside(self) -> str:
        return _refused([f"{pod.namespace}/{pod.name}" for pod in self.aside.values()])

    async def _report(self, tell: Callable[[str], None]) -> None:
        while True:
            tell(self._progress())
            await asyncio.sleep(PROGRESS_SECONDS)
            self._log.info("%s", self._progress())

    async def _fence_all(self) -> None:
        waiting = list(self._open)

        async def work() -> None:
            while waiting:
                await self._fence(waiting.pop())

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(MAX_CALLS, len(waiting))):
                workers.create_task(work())

    async def _fence(self, uid: str) -> None:
        pod = self._open.get(uid)
        if pod is None:
            return
        try:
            standing = await self._ask(pod)
        except Refused as cause:
            if cause.is_final:
                self._refuse(uid, pod, cause)
            elif isinstance(cause, Forbidden):
                self._fail(f"the API server does not allow it, the snapshot needs `patch` on `pods/status`: {cause}")
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
        """Sets the pod aside after MAX_TRIES."""
        self._fail(str(cause))
        self._refusals[uid] = tries = self._refusals.get(uid, 0) + 1
        if tries >= MAX_TRIES and self._open.pop(uid, None) is not None:
            self.aside[uid] = pod

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._repeated.warning("fence", "pending pods cannot be fenced: %s", problem)

    async def _ask(self, pod: PodRef) -> ObservedPod | None:
        """Touches the pod. Only looks it up if it was bound, and may be gone, or if it cannot be touched."""
        if pod.uid in self._bound:
            return await self._client.observe_pod(pod.namespace, pod.name)
        try:
            return await self._client.patch_and_observe(pod, self._mark)
        except FlotillaError as cause:
            if isinstance(cause, Forbidden) and not cause.is_final:
                raise
            standing = await self._client.observe_pod(pod.namespace, pod.name)
            if standing is None or standing.uid != pod.uid or standing.node:
                return standing
            raise


def _refused(keys: Collection[str]) -> str:
    names = list(islice(keys, MAX_NAMED))
    more = f" and {len(keys) - len(names):,} more" if len(keys) > len(names) else ""
    return f"the API server refuses to change {', '.join(names)}{more}"
