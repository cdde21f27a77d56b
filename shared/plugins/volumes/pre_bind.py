"""PreBind of VolumeBinding: ask the API server to bind a pod's volumes, and wait until controllers have bound them.

A volume that is there is reserved for its claim; for one that is to be provisioned, the claim gets the node's name.
Controllers do the rest. Every object is read before it is written, so that doing it twice does no harm, and written
only if it has not changed meanwhile.
"""

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, PreBindSteps, error
from shared.cluster.volumes import VolumeDecision
from shared.errors import ClusterError
from shared.model.objects import (
    ClusterObject,
    CSINode,
    ObjectKind,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    decode_node,
    decode_object,
    decode_pod,
)
from shared.model.selectors import node_selector_matches
from shared.model.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from shared.plugins.volumes.migration import Untranslatable, is_migrated_on, migrated_affinity, migration_of_volume

FIRST_PAUSE = 0.25
"""Seconds until the first check whether all is bound; each pause is half as long again as the one before."""
LONGEST_PAUSE = 5.0
NOT_FOUND = 404

Object = dict[str, Any]
"""As the API server returns it: what is written back must have all fields."""

T = TypeVar("T")
Seen = TypeVar("Seen", bound=ClusterObject)
Steps = Generator[ApiCall | Pause, ApiAnswer, T]


class NotDone(ClusterError):
    """The API server refuses what was decided."""


class NeverBound(ClusterError):
    """The volumes of a pod will not be bound: it must be scheduled again."""


class _NotYet(Exception):
    """Something is still to be done, or the API server did not answer."""


class _Missing(Exception):
    """There is no such object."""


def claim_path(key: str) -> str:
    """`key`: `namespace/name`."""
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def volume_path(name: str) -> str:
    return f"/api/v1/persistentvolumes/{name}"


def bind_volumes(pod: Pod, node: str, decision: VolumeDecision, patience: float) -> PreBindSteps:
    """`patience`: seconds that all of it may take."""
    try:
        for claim, volume in decision.bindings:
            yield from _reserve(claim, volume, decision.uids.get(claim, ""))
        for claim in decision.provisions:
            yield from _select_node(claim, node, decision.uids.get(claim, ""))
    except NotDone as cause:
        return error(str(cause))
    waiting, pause = Waiting(pod, node, decision), FIRST_PAUSE
    while True:
        now = yield Pause(pause, patience)
        try:
            if (yield from waiting.check()):
                return SUCCESS
        except NeverBound as cause:
            return error(f"binding volumes: {cause}")
        if max(now.elapsed, waiting.elapsed) >= patience:
            return error("binding volumes: context deadline exceeded")
        pause = min(1.5 * pause, LONGEST_PAUSE)


# Writing


def _reserve(claim_key: str, volume_name: str, uid: str) -> Steps[None]:
    """Reserve a volume for a claim."""
    claim = yield from _get(claim_path(claim_key))
    bound_to = claim["spec"].get("volumeName", "")
    if not _is_same(claim, uid) or bound_to not in ("", volume_name):
        raise _changed_claim(claim_key)
    if bound_to and BIND_COMPLETED in _annotations(claim):
        return
    volume = yield from _get(volume_path(volume_name))
    metadata = claim["metadata"]
    fields = {field: metadata.get(field, "") for field in ("namespace", "name", "uid", "resourceVersion")}
    reserved_for = volume["spec"].get("claimRef")
    if reserved_for is None:
        _annotations(volume).setdefault(BOUND_BY_CONTROLLER, "yes")
    else:
        same_name = (reserved_for.get("namespace"), reserved_for.get("name")) == (fields["namespace"], fields["name"])
        reserved_uid = reserved_for.get("uid")
        if not same_name or (reserved_uid and reserved_uid != fields["uid"]):
            raise _changed("persistentvolumes", volume_name)
        if reserved_uid:
            return
    volume["spec"]["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **fields}
    yield from _put(volume_path(volume_name), volume)


def _select_node(claim_key: str, node: str, uid: str) -> Steps[None]:
    """Write into the claim for which node its volume is to be provisioned."""
    claim = yield from _get(claim_path(claim_key))
    selected = _annotations(claim).get(SELECTED_NODE)
    if not _is_same(claim, uid) or selected not in (None, node):
        raise _changed_claim(claim_key)
    if selected is not None:
        return
    if claim["spec"].get("volumeName"):
        raise _changed_claim(claim_key)
    _annotations(claim)[SELECTED_NODE] = node
    yield from _put(claim_path(claim_key), claim)


def _get(path: str) -> Steps[Object]:
    answer = yield ApiCall("GET", path, {})
    if not answer.ok:
        raise NotDone(answer.message)
    found = msgspec.json.decode(answer.body, type=Object)
    if not (isinstance(found.get("metadata"), dict) and isinstance(found.get("spec"), dict)):
        raise NotDone(f"{path}: not an object with metadata and spec")
    return found


def _put(path: str, body: Object) -> Steps[None]:
    """With the version that was read, so that the server refuses it if there is a newer one."""
    answer = yield ApiCall("PUT", path, body)
    if not answer.ok:
        raise NotDone(answer.message)


def _annotations(obj: Object) -> dict[str, str]:
    annotations: dict[str, str] = obj["metadata"].setdefault("annotations", {})
    return annotations


def _is_same(claim: Object, uid: str) -> bool:
    """Whether it is the claim of the decision, and not another one of that name."""
    return not uid or claim["metadata"].get("uid") == uid


def _changed_claim(key: str) -> NotDone:
    return _changed("persistentvolumeclaims", key.partition("/")[2])


def _changed(resource: str, name: str) -> NotDone:
    """In the API server's words for a conflicting write."""
    return NotDone(
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


# Waiting


class Waiting:
    """`elapsed`: when it last checked, in seconds since PreBind began.

    A check that the API server does not answer is repeated until the deadline.
    """

    def __init__(self, pod: Pod, node: str, decision: VolumeDecision) -> None:
        self.elapsed = 0.0
        self._pod = pod
        self._node = node
        self._bindings = list(decision.bindings)
        self._provisions = list(decision.provisions)
        self._labels: dict[str, str] | None = None

    def check(self) -> Steps[bool]:
        """Whether all claims are bound; NeverBound if they never will be. Bound claims are not checked again."""
        try:
            while self._bindings:
                yield from self._check_binding(*self._bindings[0])
                del self._bindings[0]
            while self._provisions:
                yield from self._check_provision(self._provisions[0])
                del self._provisions[0]
        except _NotYet:
            yield from self._check_pod()
            return False
        return True

    def _check_binding(self, claim_key: str, volume_name: str) -> Steps[None]:
        try:
            volume = yield from self._volume(volume_name)
            claim = yield from self._claim(claim_key)
        except _Missing as missing:
            raise NeverBound(f"failed to check binding: {missing}") from missing
        yield from self._check_reach(volume)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise NeverBound(f'ClaimRef got reset for pv "{volume_name}"')
        if claim.spec.volume_name not in ("", volume_name):
            # A call of an earlier attempt, carried out late, may have reserved another volume for it.
            yield from self._check_reach_of(claim.spec.volume_name)
        if not claim.fully_bound:
            raise _NotYet

    def _check_provision(self, claim_key: str) -> Steps[None]:
        try:
            claim = yield from self._claim(claim_key)
        except _Missing as missing:
            raise NeverBound(f"failed to check provisioning pvc: {missing}") from missing
        if claim.selected_node != self._node:
            raise NeverBound(f'provisioning failed for PVC "{claim.name}"')
        if claim.spec.volume_name:
            yield from self._check_reach_of(claim.spec.volume_name)
        if not claim.fully_bound:
            raise _NotYet

    def _check_pod(self) -> Steps[None]:
        """A pod that is gone needs no volumes."""
        path = f"/api/v1/namespaces/{self._pod.namespace}/pods/{self._pod.name}"
        try:
            pod = decode_pod((yield from self._read(path)))
        except _NotYet:
            return
        except _Missing as missing:
            raise NeverBound(f"pod does not exist any more: {missing}") from missing
        if pod.uid != self._pod.uid:
            raise NeverBound(f'pod does not exist any more: pods "{self._pod.name}" not found')

    def _check_reach_of(self, volume_name: str) -> Steps[None]:
        try:
            volume = yield from self._volume(volume_name)
        except _Missing as missing:  # if it stays missing, the claim will be unbound again
            raise _NotYet from missing
        yield from self._check_reach(volume)

    def _check_reach(self, volume: PersistentVolume) -> Steps[None]:
        """The node's labels may have changed, and a volume may have been provisioned where it should not."""
        affinity = volume.spec.node_affinity
        required = None if affinity is None else affinity.required
        migration = migration_of_volume(volume)
        if migration is not None and migration.counts:
            path = f"/apis/storage.k8s.io/v1/csinodes/{self._node}"
            try:
                csi_node = yield from self._object(ObjectKind.CSI_NODE, CSINode, path)
            except _Missing:
                csi_node = None
            if is_migrated_on(csi_node, migration.plugin):
                try:
                    required = migrated_affinity(volume, migration)
                except Untranslatable as cause:
                    raise NeverBound(f"failed to translate pv to csi: could not translate pv: {cause}") from cause
        if required is None:
            return
        if self._labels is None:
            try:
                self._labels = decode_node((yield from self._read(f"/api/v1/nodes/{self._node}"))).metadata.labels
            except _Missing as missing:
                raise NeverBound(f'failed to get node "{self._node}": {missing}') from missing
        if not node_selector_matches(required, self._labels, ""):
            raise NeverBound(
                f'pv "{volume.name}" node affinity doesn\'t match node "{self._node}": no matching NodeSelectorTerms'
            )

    def _claim(self, key: str) -> Steps[PersistentVolumeClaim]:
        return (yield from self._object(ObjectKind.PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim, claim_path(key)))

    def _volume(self, name: str) -> Steps[PersistentVolume]:
        return (yield from self._object(ObjectKind.PERSISTENT_VOLUME, PersistentVolume, volume_path(name)))

    def _object(self, kind: ObjectKind, type_: type[Seen], path: str) -> Steps[Seen]:
        found = decode_object(kind, (yield from self._read(path)))
        if not isinstance(found, type_):
            raise NeverBound(f"{path}: not a {type_.__name__}")
        return found

    def _read(self, path: str) -> Steps[bytes]:
        answer = yield ApiCall("GET", path, {})
        self.elapsed = answer.elapsed
        if answer.status == NOT_FOUND:
            raise _Missing(answer.message)
        if not answer.ok:
            raise _NotYet(answer.message)
        return answer.body
