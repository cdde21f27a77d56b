"""What a cluster has beside its scheduler: somebody who gives permits, and the controller that completes claims."""

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
from tools.cli.faults.load import NAMESPACE
from tools.cli.faults.scheduler import PERMIT_PATIENCE, PERMIT_PLUGIN

Object = dict[str, Any]
CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
LOOK_EVERY = 0.25
"""Seconds between two looks, at who waits for a permit and at volumes."""
OVERLOOKED = "7"
"""A pod whose uid begins so is overlooked at first: its wait times out, and it is tried again."""
OVERLOOKED_FOR = PERMIT_PATIENCE + 0.5


class Posting(Protocol):
    def post(self, subject: str, message: Message) -> None: ...


class Approver:
    """Allows whoever waits for a permit. `waiting`: the pods that the binders named last, by binder."""

    def __init__(self, bus: Posting, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self.id = secrets.token_hex(8)
        self._clock = clock
        self._named: dict[str, tuple[float, list[str]]] = {}
        self._overlooked: dict[str, float] = {}
        self.allowed = 0

    async def run(self, bus: Bus) -> None:
        await bus.subscribe(BINDER_WAITING, Permits, lambda told, _: self.hear(told))
        while True:
            self._bus.post(BINDER_PERMITS, ListPermits(self.id))
            await asyncio.sleep(LOOK_EVERY)

    def waiting(self, recent: float) -> list[str]:
        """The pods that wait, by what the binders said in so many last seconds."""
        since = self._clock() - recent
        return sorted(name for heard, names in self._named.values() if heard >= since for name in names)

    def hear(self, told: Permits) -> None:
        """Answer what a binder says of who waits there."""
        if told.id != self.id:
            return
        now = self._clock()
        self._named[told.binder] = now, [f"{pod.namespace}/{pod.name}" for pod in told.waiting]
        for pod in told.waiting:
            if not pod.uid.startswith(OVERLOOKED) or now - self._overlooked.setdefault(pod.uid, now) > OVERLOOKED_FOR:
                self.allowed += 1
                self._bus.post(BINDER_PERMITS, PermitAnswer(pod.uid, PERMIT_PLUGIN, allow=True))


class ClaimController:
    """Completes what the scheduler has begun: a claim gets the volume that was reserved for it."""

    def __init__(self, cluster: Cluster) -> None:
        self._store = cluster.store
        self._claims, self._volumes = self._store.bucket(CLAIMS), self._store.bucket(VOLUMES)

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Complete every claim for which a volume is reserved, and free volumes whose claim has got another one."""
        for item in list(self._volumes.items()):
            volume = item.decode()
            name = volume["spec"].get("claimRef", {}).get("name")
            found = None if name is None else self._claims.get(NAMESPACE, name)
            if found is not None:
                self._settle(volume, found.decode())

    def _settle(self, volume: Object, claim: Object) -> None:
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
