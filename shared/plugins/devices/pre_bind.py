"""PreBind of DynamicResources: write allocations into a pod's claims, reserve these for it, and wait for the devices.

Every object is read before it is written, so that doing it twice does no harm, and written only if it has not changed
since. A claim is allocated only at the version that the order names: once the attempt is over, the snapshot gives the
claim another version, and no late call allocates it.

If something fails, the reservations made here are taken back; allocations stay, as in kube-scheduler, until the pod is
scheduled elsewhere. Another run, of this attempt or of a later one, may rely on a reservation that it has found: it
marks the claim (annotation FENCED), and a run takes nothing back from a claim that was marked after its own write. So
does a run for another pod of a group that the claim is reserved for.

Members of a gang may be given one claim: then each of their orders names the same version and allocation. The first run
marks the claim with the version that it replaces, and allocates it; the others see the mark, and wait for that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flotilla.objects import Pod
from flotilla.plugin import StateKey
from flotilla.results import SUCCESS, ApiCall, Pause, PreBindSteps, error
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.cluster.nodetable import stable_hash
from shared.errors import ClusterError
from shared.model.devices import EXTENDED_RESOURCE_CLAIM, FENCED
from shared.plugins.devices.claim_calls import (
    CONFLICT,
    FINALIZER,
    Claims,
    Conflict,
    Gone,
    NotDone,
    Object,
    Steps,
    consumers,
    decoded,
    device_names,
    devices_in,
    is_special_claim_of,
    plain,
    put,
)
from shared.plugins.devices.device_readiness import NeverReady, NotReadyInTime, WaitResult, is_ready, results_of
from shared.plugins.devices.group_claims import consumers_of, read_group

MAX_WRITES = 5
"""Of one object in a row, if others write it at the same time."""
LOOK_SECONDS, MAX_LOOKS = 0.2, 25
"""How often, and how many times, a run looks again at a claim that others write, or that another one is to allocate."""
LOOK_SLOTS = 4
"""Pauses of different lengths, so that not all pods that share a claim look again at the same time."""
POLL_SECONDS = 5.0


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


class _Begun(ClusterError):
    """Another run, of this attempt or for another member of the gang, is about to allocate the claim."""


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


class _Writer(Claims):
    def __init__(self, pod: Pod, now: datetime, progress: list[Progress]) -> None:
        super().__init__()
        self._pod = pod
        self._progress = progress
        self._look_seconds = LOOK_SECONDS * (1 + stable_hash(pod.uid) % LOOK_SLOTS)
        self._now = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._consumers: dict[str, Object] = {}
        """The group, for claims that are reserved for it, by key."""
        self._reserved: list[Object] = []
        """Claims as this run's own reservation left them. Not one for the group once the claim was marked: others rely
        on it without another mark."""
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
        writes, looks = MAX_WRITES, MAX_LOOKS
        while True:
            claim = yield from self.read(wanted.key)
            try:
                self.written[wanted.key] = yield from self._reserve(claim, wanted)
                return
            except (Conflict, _Begun) as cause:
                writes -= isinstance(cause, Conflict)
                if writes and isinstance(cause, Conflict):
                    continue
                looks -= 1
                if not looks:
                    raise NotDone(str(cause)) from cause
                writes = MAX_WRITES
                yield Pause(self._look_seconds, LOOK_SECONDS * MAX_LOOKS)

    def _reserve(self, claim: Object, wanted: ClaimAllocation) -> Steps[Object]:
        key, metadata = wanted.key, claim["metadata"]
        if (wanted.uid and metadata.get("uid") != wanted.uid) or metadata.get("deletionTimestamp"):
            raise NotDone(f"claim {key} got deleted in the meantime")
        found = claim.setdefault("status", {}).get("allocation")
        if found is None:
            return (yield from self._allocate(claim, wanted))
        is_another = wanted.allocation is not None and devices_in(found) != devices_in(plain(wanted.allocation))
        if is_another or (wanted.devices and device_names(found) != wanted.devices):
            raise NotDone(f"claim {key} got allocated elsewhere in the meantime")
        users, consumer = {each.get("uid") for each in consumers(claim)}, self._consumer(key)["uid"]
        if key in self._consumers and consumer in users and self._is_kept(claim, wanted):
            return claim
        if self._pod.uid in users or consumer in users:
            return (yield from self._mark(claim, key, "keep reservation of"))
        return (yield from self._write_reserved(claim, wanted, "add reservation to"))

    def _is_kept(self, claim: Object, wanted: ClaimAllocation) -> bool:
        """Whether a run for another member of the gang has marked the claim, which the allocating one respects."""
        return wanted.allocation is not None and _mark_of(claim) not in ("", wanted.version)

    def _allocate(self, claim: Object, wanted: ClaimAllocation) -> Steps[Object]:
        key = wanted.key
        if wanted.allocation is None:
            raise NotDone(f"claim {key} got deallocated elsewhere in the meantime")
        if claim["metadata"].get("resourceVersion") != wanted.version:
            if wanted.version and _mark_of(claim) == wanted.version:
                raise _Begun(f"another run has begun to allocate claim {key}, and not ended")
            raise NotDone(f"claim {key} has changed in the meantime")
        if self._created is None or claim["metadata"]["uid"] != self._created["metadata"]["uid"]:
            claim = yield from self._mark(claim, key, "add finalizer to")
        claim.setdefault("status", {})["allocation"] = {"allocationTimestamp": self._now, **plain(wanted.allocation)}
        return (yield from self._write_reserved(claim, wanted, "add allocation and reservation to"))

    def _mark(self, claim: Object, key: str, what: str) -> Steps[Object]:
        """Give the claim a mark that no other write gave it, so that no earlier run takes anything back from it.

        Its new version stops late releases. The finalizer keeps an allocated claim from being deleted while it is used.
        """
        metadata = claim["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), FENCED: metadata.get("resourceVersion", "")}
        metadata["finalizers"] = [*dict.fromkeys([*(metadata.get("finalizers") or ()), FINALIZER])]
        return (yield from put(self.path(key), claim, f"{what} claim {key}"))

    def _write_reserved(self, claim: Object, wanted: ClaimAllocation, what: str) -> Steps[Object]:
        claim["status"]["reservedFor"] = [*consumers(claim), self._consumer(wanted.key)]
        written = yield from put(self.status_path(wanted.key), claim, f"{what} claim {wanted.key}")
        if wanted.key not in self._consumers or _mark_of(written) == wanted.version:
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
            "spec": {"devices": {"requests": [plain(each) for each in special.requests]}},
        }
        answer = yield ApiCall("POST", self.path(key).rpartition("/")[0], body)
        if answer.status != CONFLICT:  # else an earlier run of this attempt has created it
            self._progress.append(ClaimCreated(answer.ok))
        if not answer.ok and answer.status != CONFLICT:
            raise NotDone(f"create claim for extended resources {key}: {answer.message}")
        created = (yield from self.read(key)) if answer.status == CONFLICT else decoded(answer, f"create claim {key}")
        metadata = created["metadata"]
        if not is_special_claim_of(self._pod.uid, metadata):
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
        pod = decoded((yield ApiCall("GET", path, {})), what)
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
                yield from put(f"{path}/status", pod, what)
            except Conflict as cause:
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
        claim["status"]["reservedFor"] = [each for each in consumers(claim) if each.get("uid") != consumer]
        yield from put(self.status_path(key), claim, f"remove reservation from claim {key}")

    def _take_back(self, left: Object, undo: Callable[[str, Object], Steps[None]]) -> Steps[None]:
        """Undo a write of this run's, unless the claim was marked since."""
        key = f"{left['metadata']['namespace']}/{left['metadata']['name']}"
        for _ in range(MAX_WRITES):
            try:
                claim = yield from self.read(key)
                if _identity(claim) == _identity(left):
                    yield from undo(key, claim)
                return
            except Conflict:
                continue
            except NotDone:
                return


def _identity(claim: Object) -> tuple[str, str]:
    """Differs once another claim has the name, or another run has marked the claim."""
    return claim["metadata"]["uid"], _mark_of(claim)


def _mark_of(claim: Object) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(FENCED, ""))


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
            except Gone as cause:
                raise NeverReady(str(cause)) from cause
            except NotDone:
                continue  # read again after the next pause
            if claim.get("status", {}).get("allocation") is None:
                raise NeverReady(f"claim {key} got deallocated elsewhere in the meantime")
            waiting[key] = claim
            if is_ready(claim):
                del waiting[key]
