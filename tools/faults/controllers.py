"""What the cluster needs besides its scheduler: an approver of permits, and the controller that binds claims."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

from shared.bus import Bus
from shared.bus.subjects import BINDER_PERMITS, BINDER_WAITING
from shared.messages.binding import PermitAnswer
from shared.messages.codec import Message
from shared.messages.permits import ListPermits, Permits
from shared.model.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER
from testing.simulator.cluster import Cluster
from testing.simulator.resources import builtin
from tools.faults.workload import NAMESPACE, PERMIT_PLUGIN, PERMIT_TIMEOUT

Object = dict[str, Any]
CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
POLL_INTERVAL = 0.25
IGNORED = "7"
"""Pods whose uid begins with this are ignored at first, so that their wait times out and they are retried."""
IGNORED_FOR = PERMIT_TIMEOUT + 0.5


class Poster(Protocol):
    def post(self, subject: str, message: Message) -> None: ...


class Approver:
    """Allows every pod that waits for a permit."""

    def __init__(self, bus: Poster, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self.id = secrets.token_hex(8)
        self._clock = clock
        self._listed: dict[str, tuple[float, list[str]]] = {}
        """By binder: when it replied last, and with which pods."""
        self._ignored: dict[str, float] = {}
        self.allowed = 0

    async def run(self, bus: Bus) -> None:
        await bus.subscribe(BINDER_WAITING, Permits, lambda reply, _: self.on_reply(reply))
        while True:
            self._bus.post(BINDER_PERMITS, ListPermits(self.id))
            await asyncio.sleep(POLL_INTERVAL)

    def waiting(self, recent: float) -> list[str]:
        """The waiting pods, by the replies of the last `recent` seconds."""
        since = self._clock() - recent
        return sorted(name for heard, names in self._listed.values() if heard >= since for name in names)

    def on_reply(self, reply: Permits) -> None:
        """Allow the pods that a binder lists."""
        if reply.id != self.id:
            return
        now = self._clock()
        self._listed[reply.binder] = now, [f"{pod.namespace}/{pod.name}" for pod in reply.waiting]
        for pod in reply.waiting:
            if not pod.uid.startswith(IGNORED) or now - self._ignored.setdefault(pod.uid, now) > IGNORED_FOR:
                self.allowed += 1
                self._bus.post(BINDER_PERMITS, PermitAnswer(pod.uid, PERMIT_PLUGIN, allow=True))


class ClaimController:
    """Binds each claim to the volume that the scheduler reserved for it."""

    def __init__(self, cluster: Cluster) -> None:
        self._store = cluster.store
        self._claims, self._volumes = self._store.bucket(CLAIMS), self._store.bucket(VOLUMES)

    async def run(self) -> None:
        while True:
            self.reconcile()
            await asyncio.sleep(POLL_INTERVAL)

    def reconcile(self) -> None:
        """Bind claims to their reserved volumes, and release volumes whose claim has another one."""
        for item in list(self._volumes.items()):
            volume = item.decode()
            name = volume["spec"].get("claimRef", {}).get("name")
            found = None if name is None else self._claims.get(NAMESPACE, name)
            if found is not None:
                self._bind_or_release(volume, found.decode())

    def _bind_or_release(self, volume: Object, claim: Object) -> None:
        name = volume["metadata"]["name"]
        has = claim["spec"].get("volumeName")
        if not has:
            claim["spec"]["volumeName"] = name
            claim["metadata"].setdefault("annotations", {})[BIND_COMPLETED] = "yes"
            claim["status"] = {"phase": "Bound"}
            self._store.put(CLAIMS, claim)
        elif has != name and BOUND_BY_CONTROLLER in volume["metadata"].get("annotations", {}):
            del volume["spec"]["claimRef"]
            del volume["metadata"]["annotations"][BOUND_BY_CONTROLLER]
            self._store.put(VOLUMES, volume)
