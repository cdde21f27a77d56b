"""PreBind of DynamicResources: write allocations into a pod's claims, reserve these for it, and wait for the devices.

Every object is read before it is written, so that doing it twice does no harm, and written only if it has not changed
since. A claim is allocated only at the version that the order names: once the attempt is over, the snapshot gives the
claim another version, and no late call allocates it.

If something fails, the reservations made here are taken back; allocations stay, as in kube-scheduler, until the pod is
scheduled elsewhere. Another run, of this attempt or of a later one, may rely on a reservation that it has found: it
marks the claim (annotation FENCED), and a run takes nothing back from a claim that was marked after its own write. So
does a run for another pod of a group that the claim is reserved for.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from flotilla.objects import Pod
from flotilla.plugin import StateKey
from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, PreBindSteps, error
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.errors import ClusterError
from shared.messages.binding import ClaimRelease
from shared.model.codec import encode_json
from shared.model.devices import EXTENDED_RESOURCE_CLAIM, FENCED, RESOURCE_VERSIONS
from shared.plugins.devices.device_readiness import NeverReady, NotReadyInTime, WaitResult, is_ready, results_of
from shared.plugins.devices.group_claims import consumers_of, read_group

FINALIZER = "resource.kubernetes.io/delete-protection"
MAX_WRITES = 5
"""Of one object, if others write it at the same time."""
POLL_SECONDS = 5.0
CONFLICT = 409
NOT_FOUND = 404
ALLOCATED = ("allocation", "reservedFor", "devices")
"""The parts of a claim's status that end with its allocation."""

Object = dict[str, Any]
"""As the API server returns it: what is written back must have all fields."""

T = TypeVar("T")
Steps = Generator[ApiCall | Pause, ApiAnswer, T]


@dataclass(frozen=True, slots=True)
class ClaimCreated:
    """The API server was asked to create the claim for extended resources; `ok`: it did."""

    ok: bool


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """The pod waits for binding conditions of its devices, though they may hold already."""


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """`drivers`: of the devices that have binding conditions."""

    drivers: tuple[str, ...]
    result: WaitResult


Progress = ClaimCreated | WaitBegan | WaitEnded


@dataclass(frozen=True, slots=True)
class DevicesToBind:
    """What was decided about the claims of a pod, and the Unix time at which its PreBind began.

    `progress`: PreBind appends to it; the binder takes it after each step, for Events and metrics.
    """

    decision: DeviceDecision
    began: float
    progress: list[Progress] = field(default_factory=list)


DEVICES = StateKey[DevicesToBind]("the decision about the pod's devices")
"""Set by the binder."""


class NotDone(ClusterError):
    """The API server refuses what was decided, or does not answer."""


class _Gone(NotDone):
    """The claim does not exist any more."""


class _Conflict(ClusterError):
    """The object has changed since it was read."""


def bind_devices(pod: Pod, devices: DevicesToBind, patience: float) -> PreBindSteps:
    """`patience`: seconds that devices have to become ready. Of a claim that the pod names twice, the first counts."""
    decision, began = devices.decision, datetime.fromtimestamp(devices.began, UTC)
    claims = {each.key: each for each in reversed(decision.claims)}
    writer = _Writer(pod, began, devices.progress)
    try:
        yield from writer.look_up_group()
        for key in dict.fromkeys(each.key for each in decision.claims):
            yield from writer.reserve(claims[key])
        if decision.special is not None:
            yield from writer.create(decision.special)
        yield from _wait_for_devices(writer, began, patience, devices.progress)
    except (NotDone, NeverReady) as cause:
        yield from writer.roll_back()
        return error(str(cause))
    return SUCCESS


def _plain(part: msgspec.Struct) -> Object:
    """As the API server is sent it."""
    return msgspec.json.decode(encode_json(part), type=Object)


def release_claim(pod_uid: str, release: ClaimRelease) -> Steps[None]:
    """Take a claim's devices back, or delete it, as PostFilter decided for this pod; NotDone if that fails.

    A claim that has another allocation by now, or that is reserved for another pod, stays as it is. Only the claim that
    was made for the pod's extended resources is ever deleted.
    """
    claims = _Claims()
    claim = yield from claims.read(release.key)
    metadata, found = claim["metadata"], claim.get("status", {}).get("allocation")
    if metadata.get("uid") != release.uid or any(each.get("uid") != pod_uid for each in _consumers(claim)):
        return
    if release.allocation is None:
        if _is_special_claim_of(pod_uid, metadata):
            yield from claims.delete(release.key, claim)
        return
    seen = _plain(release.allocation)
    if found is None or _devices(found) != _devices(seen):
        return
    if found.get("allocationTimestamp") == seen.get("allocationTimestamp"):
        claim["status"] = {name: part for name, part in claim["status"].items() if name not in ALLOCATED}
        yield from _put(claims.status_path(release.key), claim, f"deallocate claim {release.key}")


class _Claims:
    def __init__(self) -> None:
        self.written: dict[str, Object] = {}
        """The pod's claims, as written or found last, by key."""
        self._version = RESOURCE_VERSIONS[0]

    def path(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"/apis/resource.k8s.io/{self._version}/namespaces/{namespace}/resourceclaims/{name}"

    def status_path(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"/apis/resource.k8s.io/{self._version}/namespaces/{namespace}/resourceclaims/{name}/status"

    def read(self, key: str) -> Steps[Object]:
        """Read a claim, in the newest version that the server has."""
        answer = yield ApiCall("GET", self.path(key), {})
        if answer.status == NOT_FOUND and not self.written:
            for self._version in RESOURCE_VERSIONS[1:]:
                older = yield ApiCall("GET", self.path(key), {})
                if older.status != NOT_FOUND:
                    answer = older
                    break
            else:
                self._version = RESOURCE_VERSIONS[0]
        if answer.status == NOT_FOUND:
            raise _Gone(f"get claim {key}: {answer.message}")
        return _decoded(answer, f"get claim {key}")

    def delete(self, key: str, claim: Object) -> Steps[None]:
        """Delete a claim in the version that was read."""
        if FINALIZER in (claim["metadata"].get("finalizers") or ()):
            _unprotect(claim)
            claim = yield from _put(self.path(key), claim, f"remove finalizer from claim {key}")
        metadata = claim["metadata"]
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        answer = yield ApiCall("DELETE", self.path(key), {"preconditions": preconditions})
        if not answer.ok and answer.status != NOT_FOUND:
            raise NotDone(f"delete claim {key}: {answer.message}")


class _Writer(_Claims):
    def __init__(self, pod: Pod, now: datetime, progress: list[Progress]) -> None:
        super().__init__()
        self._pod = pod
        self._progress = progress
        self._now = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._consumers: dict[str, Object] = {}
        """The group, for claims that are reserved for it, by key."""
        self._reserved: list[Object] = []
        """Claims as this run's own reservation left them."""
        self._created: Object | None = None
        """The claim for extended resources, as this run has made it."""

    # Reservations

    def look_up_group(self) -> Steps[None]:
        """Whether claims are reserved for the pod's group."""
        try:
            group = yield from read_group(self._pod)
        except ClusterError as cause:
            raise NotDone(str(cause)) from cause
        self._consumers = consumers_of(self._pod, group)

    def _consumer(self, key: str) -> Object:
        """Whom the claim is reserved for."""
        of_pod = {"resource": "pods", "name": self._pod.name, "uid": self._pod.uid}
        return self._consumers.get(key, of_pod)

    def reserve(self, wanted: ClaimAllocation) -> Steps[None]:
        claim = yield from self.read(wanted.key)
        for left in reversed(range(MAX_WRITES)):
            try:
                self.written[wanted.key] = yield from self._reserve(claim, wanted)
                return
            except _Conflict as cause:
                if not left:
                    raise NotDone(str(cause)) from cause
            claim = yield from self.read(wanted.key)

    def _reserve(self, claim: Object, wanted: ClaimAllocation) -> Steps[Object]:
        key, metadata = wanted.key, claim["metadata"]
        if (wanted.uid and metadata.get("uid") != wanted.uid) or metadata.get("deletionTimestamp"):
            raise NotDone(f"claim {key} got deleted in the meantime")
        found = claim.setdefault("status", {}).get("allocation")
        if found is None:
            return (yield from self._allocate(claim, wanted))
        is_another = wanted.allocation is not None and _devices(found) != _devices(_plain(wanted.allocation))
        if is_another or (wanted.devices and _names(found) != wanted.devices):
            raise NotDone(f"claim {key} got allocated elsewhere in the meantime")
        if any(each.get("uid") in (self._pod.uid, self._consumer(key)["uid"]) for each in _consumers(claim)):
            return (yield from self._mark(claim, key, "keep reservation of"))
        return (yield from self._write_reserved(claim, wanted, "add reservation to"))

    def _allocate(self, claim: Object, wanted: ClaimAllocation) -> Steps[Object]:
        key = wanted.key
        if wanted.allocation is None:
            raise NotDone(f"claim {key} got deallocated elsewhere in the meantime")
        if claim["metadata"].get("resourceVersion") != wanted.version:
            raise NotDone(f"claim {key} has changed in the meantime")
        if self._created is None or claim["metadata"]["uid"] != self._created["metadata"]["uid"]:
            claim = yield from self._mark(claim, key, "add finalizer to")
        claim.setdefault("status", {})["allocation"] = {"allocationTimestamp": self._now, **_plain(wanted.allocation)}
        return (yield from self._write_reserved(claim, wanted, "add allocation and reservation to"))

    def _mark(self, claim: Object, key: str, what: str) -> Steps[Object]:
        """Give the claim a mark that no other write gave it, so that no earlier run takes anything back from it.

        Its new version stops late releases. The finalizer keeps an allocated claim from being deleted while it is used.
        """
        metadata = claim["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), FENCED: metadata.get("resourceVersion", "")}
        metadata["finalizers"] = [*dict.fromkeys([*(metadata.get("finalizers") or ()), FINALIZER])]
        return (yield from _put(self.path(key), claim, f"{what} claim {key}"))

    def _write_reserved(self, claim: Object, wanted: ClaimAllocation, what: str) -> Steps[Object]:
        claim["status"]["reservedFor"] = [*_consumers(claim), self._consumer(wanted.key)]
        written = yield from _put(self.status_path(wanted.key), claim, f"{what} claim {wanted.key}")
        self._reserved.append(written)
        return written

    # The claim for extended resources

    def create(self, special: SpecialClaim) -> Steps[None]:
        """The pod's status is written before the claim is allocated.

        That fails if the attempt is fenced, and the snapshot fences pods before it looks for their special claims.
        """
        namespace, name = self._pod.namespace, special.name
        key = f"{namespace}/{name}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": self._pod.name, "uid": self._pod.uid, "controller": True}
        body = {
            "apiVersion": f"resource.k8s.io/{self._version}",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": [_plain(each) for each in special.requests]}},
        }
        answer = yield ApiCall("POST", self.path(key).rpartition("/")[0], body)
        if answer.status != CONFLICT:  # else an earlier run of this attempt has created it
            self._progress.append(ClaimCreated(answer.ok))
        if not answer.ok and answer.status != CONFLICT:
            raise NotDone(f"create claim for extended resources {key}: {answer.message}")
        created = (yield from self.read(key)) if answer.status == CONFLICT else _decoded(answer, f"create claim {key}")
        metadata = created["metadata"]
        if not _is_special_claim_of(self._pod.uid, metadata):
            raise NotDone(f"create claim for extended resources {key}: another claim has this name")
        self._created = created if answer.ok else None
        yield from self._write_status(special, is_new=answer.ok)
        version = metadata["resourceVersion"] if answer.ok else ""
        yield from self.reserve(ClaimAllocation(key, metadata["uid"], special.allocation, version))

    def _write_status(self, special: SpecialClaim, *, is_new: bool) -> Steps[None]:
        """Write into the pod's status which claim has its extended resources.

        If the claim `is_new`, the pod must be as the order names it.
        """
        of = self._pod
        path = f"/api/v1/namespaces/{of.namespace}/pods/{of.name}"
        what = f"update pod {of.namespace}/{of.name} ExtendedResourceClaimStatus"
        mappings = [
            {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
            for each in special.mappings
        ]
        wanted = {"resourceClaimName": special.name, "requestMappings": mappings}
        pod = _decoded((yield ApiCall("GET", path, {})), what)
        if pod["metadata"].get("uid") != of.uid:
            raise NotDone(f'{what}: pods "{of.name}" not found')
        status = pod.setdefault("status", {})
        is_written = status.get("extendedResourceClaimStatus") == wanted
        if is_written and not is_new:
            return
        if pod["metadata"].get("resourceVersion") != of.metadata.resource_version:
            raise NotDone(f"{what}: the pod has changed in the meantime")
        if not is_written:
            status["extendedResourceClaimStatus"] = wanted
            try:
                yield from _put(f"{path}/status", pod, what)
            except _Conflict as cause:
                raise NotDone(str(cause)) from cause

    # Roll-back

    def roll_back(self) -> Steps[None]:
        """Take back what was done here, as far as the server allows it: what remains is found at the next attempt."""
        created = "" if self._created is None else self._created["metadata"]["uid"]
        for claim in self._reserved:
            if claim["metadata"]["uid"] != created:
                yield from self._take_back(claim, self._release)
        if self._created is not None:
            yield from self._take_back(self._created, self.delete)

    def _release(self, key: str, claim: Object) -> Steps[None]:
        consumer = self._consumer(key)["uid"]
        claim["status"]["reservedFor"] = [each for each in _consumers(claim) if each.get("uid") != consumer]
        yield from _put(self.status_path(key), claim, f"remove reservation from claim {key}")

    def _take_back(self, left: Object, undo: Callable[[str, Object], Steps[None]]) -> Steps[None]:
        """Undo a write of this run's, unless the claim was marked since."""
        key = f"{left['metadata']['namespace']}/{left['metadata']['name']}"
        for _ in range(MAX_WRITES):
            try:
                claim = yield from self.read(key)
                if _identity(claim) == _identity(left):
                    yield from undo(key, claim)
                return
            except _Conflict:
                continue
            except NotDone:
                return


def _identity(claim: Object) -> tuple[str, str]:
    """Differs once another claim has the name, or another run has marked the claim."""
    metadata = claim["metadata"]
    return metadata["uid"], (metadata.get("annotations") or {}).get(FENCED, "")


def _is_special_claim_of(pod_uid: str, metadata: Object) -> bool:
    if (metadata.get("annotations") or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
        return False
    return any(each.get("uid") == pod_uid for each in metadata.get("ownerReferences") or ())


def _unprotect(claim: Object) -> None:
    metadata = claim["metadata"]
    metadata["finalizers"] = [each for each in metadata.get("finalizers") or () if each != FINALIZER]


# Waiting


def _wait_for_devices(writer: _Writer, now: datetime, patience: float, progress: list[Progress]) -> Steps[None]:
    results = [each for claim in writer.written.values() for each in results_of(claim)]
    drivers = tuple(sorted({each["driver"] for each in results if each.get("bindingConditions")}))
    if not drivers:
        return
    progress.append(WaitBegan())
    try:
        yield from _poll_until_ready(writer, now, patience)
    except NeverReady as cause:
        progress.append(WaitEnded(drivers, cause.result))
        raise
    progress.append(WaitEnded(drivers, WaitResult.SUCCESS))


def _poll_until_ready(writer: _Writer, now: datetime, patience: float) -> Steps[None]:
    """A claim that was allocated earlier has that much less time."""
    waiting, elapsed = {key: claim for key, claim in writer.written.items() if not is_ready(claim)}, 0.0
    while waiting:
        for claim in waiting.values():
            since = claim["status"]["allocation"].get("allocationTimestamp")
            if since is not None and (now - datetime.fromisoformat(since)).total_seconds() + elapsed > patience:
                raise NotReadyInTime(f"device binding timeout: claim={claim['metadata']['name']}")
        elapsed = (yield Pause(POLL_SECONDS, patience)).elapsed
        if elapsed >= patience:
            raise NotReadyInTime("device binding timeout: context deadline exceeded")
        for key in list(waiting):
            try:
                claim = yield from writer.read(key)
            except _Gone as cause:
                raise NeverReady(str(cause)) from cause
            except NotDone:
                continue  # read again after the next pause
            if claim.get("status", {}).get("allocation") is None:
                raise NeverReady(f"claim {key} got deallocated elsewhere in the meantime")
            waiting[key] = claim
            if is_ready(claim):
                del waiting[key]


# Calls


def _decoded(answer: ApiAnswer, what: str) -> Object:
    if not answer.ok:
        raise NotDone(f"{what}: {answer.message}")
    found = msgspec.json.decode(answer.body, type=Object)
    if not isinstance(found.get("metadata"), dict):
        raise NotDone(f"{what}: not an object with metadata")
    return found


def _put(path: str, body: Object, what: str) -> Steps[Object]:
    """With the version that was read, so that the server refuses it if there is a newer one."""
    answer = yield ApiCall("PUT", path, body)
    if answer.status == CONFLICT:
        raise _Conflict(f"{what}: {answer.message}")
    return _decoded(answer, what)


def _consumers(claim: Object) -> list[Object]:
    return claim.get("status", {}).get("reservedFor") or []


def _names(allocation: Mapping[str, Any]) -> list[str]:
    results = allocation.get("devices", {}).get("results") or ()
    return ["/".join(each.get(field, "") for field in ("driver", "pool", "device")) for each in results]


def _devices(allocation: Mapping[str, Any]) -> list[Object]:
    """What was allocated, without what the server or a later reservation adds."""
    results = allocation.get("devices", {}).get("results") or ()
    return [{field: value for field, value in each.items() if field != "shareID"} for each in results]
