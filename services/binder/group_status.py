"""Writes to PodGroups and CompositePodGroups whether they were placed.

The group is read first, in whichever version of the API the server has: the condition is called PodGroupScheduled in
v1alpha2 and PodGroupInitiallyScheduled since. Nothing is written to a group that was placed before, that shows the
condition already, or that was created again. The patch names the version that was read, so a write that is late changes
nothing. Best effort: the queue re-sends what the group does not show.
"""

import logging
from collections.abc import Callable

import msgspec

from services.binder.group_reader import GroupReader
from services.binder.worker_pool import WorkerPool
from shared.errors import FlotillaError
from shared.kube.client import STRATEGIC_MERGE_PATCH, KubeClient
from shared.kube.errors import Refused
from shared.kube.events_and_conditions import FALSE, TRUE, ObservedCondition, condition_fields
from shared.messages.binding import GroupNotice
from shared.model.codec import encode_json
from shared.model.composite_groups import COMPOSITE_CONDITION
from shared.telemetry.logs import Repeated

MAX_WORKERS = 4
"""Groups that are written to at the same time."""
MAX_WAITING = 4096
"""Groups that wait; the queue sends further ones again later."""
MAX_TRIES = 3
"""Reads of a group that changes at the same time."""
NOT_FOUND, CHANGED = 404, 409
CONDITIONS = {
    "v1beta1": "PodGroupInitiallyScheduled",
    "v1alpha3": "PodGroupInitiallyScheduled",
    "v1alpha2": "PodGroupScheduled",
}
"""What the condition is called, by version."""


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    generation: int = 0


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[ObservedCondition] = []


class _Group(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class GroupStatusWriter:
    def __init__(self, client: KubeClient, reader: GroupReader, wall: Callable[[], float], log: logging.Logger) -> None:
        self._client = client
        self._reader = reader
        self._wall = wall
        self._log = Repeated(log)
        self._pool: WorkerPool[GroupNotice] = WorkerPool(
            self._write, max_workers=MAX_WORKERS, max_waiting=MAX_WAITING, failed=self._failed
        )

    def put(self, notice: GroupNotice) -> None:
        if not self._pool.put(notice):
            self._log.warning("crowded", "pod group %s: status not written: too many groups wait", notice.key)

    @property
    def idle(self) -> bool:
        return self._pool.idle

    async def close(self) -> None:
        await self._pool.close()

    async def _write(self, notice: GroupNotice) -> None:
        try:
            for _ in range(MAX_TRIES):
                if await self._try(notice):
                    return
        except FlotillaError as cause:
            self._log.warning(type(cause).__name__, "pod group %s: status not written: %s", notice.key, cause)

    async def _try(self, notice: GroupNotice) -> bool:
        """Whether it is done; not if the group has changed since it was read."""
        namespace, _, name = notice.key.partition("/")
        if notice.composite:
            path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{namespace}/compositepodgroups/{name}"
            raw = await self._client.get(path)
            path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{namespace}/compositepodgroups/{name}/status"
            return raw is None or await self._patch(path, COMPOSITE_CONDITION, _read(raw, notice.key), notice)
        found = await self._reader.find(namespace, name)
        if found is None:
            return True
        path = f"/apis/scheduling.k8s.io/{found[0]}/namespaces/{namespace}/podgroups/{name}/status"
        return await self._patch(path, CONDITIONS[found[0]], _read(found[1], notice.key), notice)

    async def _patch(self, path: str, type_: str, group: _Group, notice: GroupNotice) -> bool:
        meta = group.metadata
        before = next((each for each in group.status.conditions if each.type == type_), None)
        status = TRUE if notice.is_placed else FALSE
        if meta.uid != notice.uid or (before is not None and before.status == TRUE):
            return True
        wanted = (status, notice.reason, notice.message)
        if before is not None and (before.status, before.reason, before.message) == wanted:
            return True
        since = None if before is not None and before.status == status else self._wall()
        condition = condition_fields(type_, status, notice.reason, notice.message, since, meta.generation)
        fence = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = encode_json({"metadata": fence, "status": {"conditions": [condition]}})
        answer = await self._client.call("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)
        if answer.status == CHANGED:
            return False
        if not answer.ok and answer.status != NOT_FOUND:
            raise Refused(self._client.server, f"PATCH {path}", answer.status, answer.message)
        return True

    def _failed(self, cause: BaseException) -> None:
        self._log.error(type(cause).__name__, "a group's status is not written: %r", cause, exc_info=cause)


def _read(raw: bytes, key: str) -> _Group:
    try:
        return msgspec.json.decode(raw, type=_Group)
    except msgspec.DecodeError as cause:
        raise FlotillaError(f"pod group {key}: {cause}") from cause
