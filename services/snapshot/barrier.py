"""What a term does first where the store may have forgotten something: fence whatever earlier terms may have ordered.

No ledger says what was ordered, and no wait outlasts a call that is on its way. But whatever was ordered was ordered
for a pod that the listing shows without a node, at a version that it had. So each of these is given a new version, by a
condition that names this term. The term begins once the watch has shown that on each, or the pod on a node or gone:
then nothing from before can bind any of them, and what was bound before is known.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.fencing import NOT_THERE, touch
from shared.kube.notes import BINDING_FENCED, BindingFenced, PodRef
from shared.messages.watch import PodChange
from shared.model.objects import Pod, dec_hook
from shared.telemetry.logs import Repeated

MOST_AT_ONCE = 64
"""Calls to the API server."""
SHOWN_WITHIN = 2.0
"""Seconds that the watch has to show what was done; after that it is done again."""
PROGRESS = 1.0
"""Seconds between two lines about how far it is."""

_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)


class Barrier:
    def __init__(self, client: KubeClient, schedulers: frozenset[str], epoch: int, log: logging.Logger) -> None:
        """`schedulers`: whose pods are ours to schedule."""
        self._client = client
        self._schedulers = schedulers
        self._by = f"term {epoch}"
        self._mark = BindingFenced("", self._by)
        self._log = log
        self._sparingly = Repeated(log)
        self._open: dict[str, PodRef] = {}
        self._total = 0
        self._closed = False
        self._empty = asyncio.Event()

    def see(self, change: object) -> None:
        """What the watch shows, from the first message on. Pods that come after `run` was begun are nobody's yet."""
        if not isinstance(change, PodChange):
            return
        if change.gone or change.finished or change.node or self._shows_mark(change):
            self._open.pop(change.uid, None)
        elif not self._closed and change.scheduler in self._schedulers:
            self._open[change.uid] = PodRef(change.namespace, change.name, change.uid)
        if not self._open:
            self._empty.set()

    async def run(self, tell: Callable[[str], None]) -> None:
        """All that there is has been seen once. Returns when nothing of an earlier term can be bound any more."""
        self._closed, self._total = True, len(self._open)
        self._log.warning("what earlier terms have assumed is not known: %d pending pods are fenced first", self._total)
        progress = asyncio.create_task(self._report(tell))
        try:
            while self._open:
                self._empty.clear()
                await self._touch_all()
                if self._open:
                    await self._shown()
        finally:
            progress.cancel()
        self._log.info("%s", self._progress())

    def _progress(self) -> str:
        return f"fenced {self._total - len(self._open):,} of {self._total:,} pending pods"

    async def _report(self, tell: Callable[[str], None]) -> None:
        while True:
            tell(self._progress())
            await asyncio.sleep(PROGRESS)
            self._log.info("%s", self._progress())

    async def _shown(self) -> None:
        try:
            async with asyncio.timeout(SHOWN_WITHIN):
                await self._empty.wait()
        except TimeoutError:
            pass

    async def _touch_all(self) -> None:
        waiting = list(self._open.values())

        async def work() -> None:
            while waiting:
                await self._touch(waiting.pop())

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(MOST_AT_ONCE, len(waiting))):
                workers.create_task(work())

    async def _touch(self, pod: PodRef) -> None:
        if pod.uid not in self._open:
            return
        try:
            result = await touch(self._client, pod, "", self._by)
        except ClusterError as cause:
            self._sparingly.warning("fence", "%s", cause)
            return
        if result.outcome in NOT_THERE:
            self._open.pop(pod.uid, None)

    def _shows_mark(self, change: PodChange) -> bool:
        try:
            conditions = _POD.decode(change.body).status.conditions
        except msgspec.DecodeError:
            return False
        message = self._mark.fields()["message"]
        return any(each.type == BINDING_FENCED and each.message == message for each in conditions)
