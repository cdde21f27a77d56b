"""Gives back the devices of claims that keep their pod from being scheduled, as PostFilter decided.

The snapshot is asked before each write: an attempt that began since, or that a restarted queue does not know of, may
need the claim, and so may any pod of the group that it is reserved for, and the members that the release names. The
claim was read before, and is written only if it has not changed: an attempt that begins later finds it without
devices, or stops the write by a mark of its own.
Best effort: what fails is decided again with the pod.
"""

import logging
from collections.abc import Callable

import msgspec

from flotilla.results import ApiAnswer, ApiCall
from services.binder.worker_pool import WorkerPool
from shared.bus.bus import Bus
from shared.bus.subjects import SNAPSHOT_NOMINATED
from shared.errors import FlotillaError, ProtocolError
from shared.kube.client import KubeClient
from shared.messages.binding import ClaimRelease, IsPlaced, Notice, PlacedNow
from shared.model.codec import encode_json
from shared.plugins.devices.claim_calls import Conflict
from shared.plugins.devices.claim_release import release_claim
from shared.telemetry.logs import Repeated

ANSWER_TIMEOUT = 1.0
"""Seconds that the snapshot has to answer."""
MAX_WORKERS = 8
"""Claims that are released at the same time."""
MAX_WAITING = 1024
"""Claims that wait; further ones are dropped."""


class _Wanted(msgspec.Struct, frozen=True):
    pod_uid: str
    release: ClaimRelease

    @property
    def group(self) -> str:
        """`namespace/name` of the group that the claim is reserved for, if there is one."""
        namespace = self.release.key.partition("/")[0]
        return f"{namespace}/{self.release.group}" if self.release.group else ""


class ClaimReleases:
    def __init__(self, client: KubeClient, bus: Bus, newest_epoch: Callable[[], int], log: logging.Logger) -> None:
        """`newest_epoch`: the snapshot's, as far as this binder knows."""
        self._client = client
        self._bus = bus
        self._newest_epoch = newest_epoch
        self._log = Repeated(log)
        self._pool: WorkerPool[_Wanted] = WorkerPool(
            self._release, max_workers=MAX_WORKERS, max_waiting=MAX_WAITING, failed=self._failed
        )

    def put(self, notice: Notice) -> None:
        for release in notice.releases:
            if not self._pool.put(_Wanted(notice.uid, release)):
                self._log.warning("crowded", "claim %s keeps its devices: too many claims wait", release.key)

    @property
    def idle(self) -> bool:
        return self._pool.idle

    async def close(self) -> None:
        await self._pool.close()

    async def _release(self, wanted: _Wanted) -> None:
        steps = release_claim(wanted.pod_uid, wanted.release)
        try:
            step = next(steps)
            while True:
                assert isinstance(step, ApiCall)  # a release does not pause
                if step.method != "GET" and await self._is_needed(wanted):
                    return
                step = steps.send(await self._call(step))
        except (StopIteration, Conflict):
            return  # done, or the claim has changed: another member of a gang has released it, or an attempt needs it
        except FlotillaError as cause:
            self._log.warning(wanted.release.key, "claim %s keeps its devices: %s", wanted.release.key, cause)

    async def _is_needed(self, wanted: _Wanted) -> bool:
        for uid in (wanted.pod_uid, *wanted.release.members):
            if await self._is_placed(IsPlaced(uid, wanted.group)):
                return True
        return False

    async def _is_placed(self, asked: IsPlaced) -> bool:
        newest = self._newest_epoch()
        answer = await self._bus.request(SNAPSHOT_NOMINATED, asked, PlacedNow, timeout=ANSWER_TIMEOUT)
        if answer.epoch < newest:
            raise ProtocolError(f"a snapshot of epoch {answer.epoch} answers, not of {newest}")
        if answer.group != asked.group:
            raise ProtocolError(f"the snapshot has not looked for pods of group {asked.group}")
        return answer.placed

    async def _call(self, call: ApiCall) -> ApiAnswer:
        body = None if call.method == "GET" else encode_json(call.body)
        answer = await self._client.call(call.method, call.path, body)
        return ApiAnswer(answer.status, answer.body, "" if answer.ok else answer.message)

    def _failed(self, cause: BaseException) -> None:
        self._log.error(type(cause).__name__, "a claim is not released: %r", cause, exc_info=cause)
