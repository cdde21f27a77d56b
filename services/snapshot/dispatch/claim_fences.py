"""Fences the claims of attempts that are over, until the API server has answered for each."""

import asyncio
import logging
import secrets
from collections.abc import Callable

from services.snapshot.events import ClaimsFenced, FenceClaims
from shared.errors import FlotillaError
from shared.kube.claims import touch_claim
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import PodRef
from shared.kube.fencing import fence
from shared.messages.state import LedgerEntry, pod_uid_of
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated

PAUSE = 1.0
"""Seconds between two tries of one attempt."""
MAX_AT_ONCE = 16
"""Attempts that are fenced at the same time."""


class ClaimFences:
    def __init__(
        self, client: KubeClient, tell: Callable[[ClaimsFenced], None], log: logging.Logger, fault: Fault
    ) -> None:
        self._client = client
        self._tell = tell
        self._repeated = Repeated(log)
        self._fault = fault
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._process = secrets.token_hex(4)
        self._fenced = 0

    def begin(self, wanted: FenceClaims) -> None:
        """Does nothing if the same is under way."""
        uid = wanted.entry.uid
        if uid not in self._under_way:
            task = self._under_way[uid] = asyncio.create_task(self._run(wanted.entry))
            task.add_done_callback(lambda _: self._under_way.pop(uid, None))
            self._fault.watch(task)

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _run(self, held: LedgerEntry) -> None:
        while True:
            try:
                async with self._room:
                    versions = await self._fence(held)
            except FlotillaError as cause:
                self._repeated.warning("claims", "claims of %s cannot be fenced: %s", held.key, cause)
                await asyncio.sleep(PAUSE)
            else:
                self._tell(ClaimsFenced(held.uid, versions))
                return

    async def _fence(self, held: LedgerEntry) -> dict[str, str]:
        of, devices = held.assignment, held.assignment.devices
        assert devices is not None  # it holds some
        wanted = {each.key: each.uid for each in devices.claims if each.allocation is not None}
        if devices.special is not None:
            # A binder that creates the claim after this finds the pod changed, and does not allocate it.
            pod = PodRef(of.namespace, of.name, pod_uid_of(of.uid))
            await fence(self._client, pod, of.version, f"attempt {held.attempt}")
            wanted[f"{of.namespace}/{devices.special.name}"] = ""
        versions: dict[str, str] = {}
        for key, uid in wanted.items():
            self._fenced += 1
            claim = await touch_claim(self._client, key, uid, f"{self._process}-{self._fenced}")
            versions[key] = "" if claim is None else claim.version
        return versions
