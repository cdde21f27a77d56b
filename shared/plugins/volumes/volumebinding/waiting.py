"""Whether the volumes of a pod are bound by now, or never will be, as the API server tells."""

from collections.abc import Generator
from typing import TypeVar

from flotilla.results import ApiAnswer, ApiCall, Pause
from shared.cluster.volumes import VolumeDecision
from shared.errors import ClusterError
from shared.model.objects import (
    ClusterObject,
    CSINode,
    NodeSelector,
    ObjectKind,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    decode_node,
    decode_object,
    decode_pod,
)
from shared.model.selectors import node_selector_matches
from shared.plugins.volumes.migration import Untranslatable, is_migrated_on, migrated_affinity, migration_of_volume
from shared.plugins.volumes.volumebinding.paths import (
    claim_path,
    csi_node_path,
    look_at,
    node_path,
    pod_path,
    volume_path,
)

NOT_FOUND = 404

T = TypeVar("T")
Seen = TypeVar("Seen", bound=ClusterObject)
Looking = Generator[ApiCall | Pause, ApiAnswer, T]


class NeverBound(ClusterError):
    """The volumes of a pod will not be bound: it must be scheduled again."""


class _NotYet(Exception):
    """Something is still to be done, or the API server has not told."""


class _Missing(Exception):
    """There is no such object."""


class Waiting:
    """`elapsed`: when it was last looked, in seconds since PreBind began.

    A look that the API server does not answer says nothing: it is taken again, for as long as there is patience.
    """

    def __init__(self, pod: Pod, node: str, decision: VolumeDecision) -> None:
        self.elapsed = 0.0
        self._pod = pod
        self._node = node
        self._bindings = list(decision.bindings)
        self._provisions = list(decision.provisions)
        self._labels: dict[str, str] | None = None

    def look(self) -> Looking[bool]:
        """Whether all claims are bound; NeverBound if they never will be. What is bound is not looked at again."""
        try:
            while self._bindings:
                yield from self._look_at_binding(*self._bindings[0])
                del self._bindings[0]
            while self._provisions:
                yield from self._look_at_provision(self._provisions[0])
                del self._provisions[0]
        except _NotYet:
            yield from self._look_at_pod()
            return False
        return True

    def _look_at_binding(self, claim_key: str, volume_name: str) -> Looking[None]:
        try:
            volume = yield from self._volume(volume_name)
            claim = yield from self._claim(claim_key)
        except _Missing as missing:
            raise NeverBound(f"failed to check binding: {missing}") from missing
        yield from self._check_reach(volume)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise NeverBound(f'ClaimRef got reset for pv "{volume_name}"')
        if not claim.fully_bound:
            raise _NotYet

    def _look_at_provision(self, claim_key: str) -> Looking[None]:
        try:
            claim = yield from self._claim(claim_key)
        except _Missing as missing:
            raise NeverBound(f"failed to check provisioning pvc: {missing}") from missing
        if claim.selected_node != self._node:
            raise NeverBound(f'provisioning failed for PVC "{claim.name}"')
        if claim.spec.volume_name:
            try:
                volume = yield from self._volume(claim.spec.volume_name)
            except _Missing as missing:  # and if it stays away, the claim will be unbound again
                raise _NotYet from missing
            yield from self._check_reach(volume)
        if not claim.fully_bound:
            raise _NotYet

    def _look_at_pod(self) -> Looking[None]:
        """Nobody needs volumes for a pod that is gone."""
        try:
            pod = decode_pod((yield from self._read(pod_path(self._pod.namespace, self._pod.name))))
        except _NotYet:
            return
        except _Missing as missing:
            raise NeverBound(f"pod does not exist any more: {missing}") from missing
        if pod.uid != self._pod.uid:
            raise NeverBound(f'pod does not exist any more: pods "{self._pod.name}" not found')

    def _check_reach(self, volume: PersistentVolume) -> Looking[None]:
        """The node may have got other labels meanwhile, and a volume may have been made where it should not."""
        affinity = volume.spec.node_affinity
        required = None if affinity is None else affinity.required
        migration = migration_of_volume(volume)
        if migration is not None and migration.counts:
            csi_node = yield from self._csi_node()
            if is_migrated_on(csi_node, migration.plugin):
                try:
                    required = migrated_affinity(volume, migration)
                except Untranslatable as cause:
                    raise NeverBound(f"failed to translate pv to csi: could not translate pv: {cause}") from cause
        if required is not None and not (yield from self._is_selected(required)):
            raise NeverBound(
                f'pv "{volume.name}" node affinity doesn\'t match node "{self._node}": no matching NodeSelectorTerms'
            )

    def _is_selected(self, required: NodeSelector) -> Looking[bool]:
        if self._labels is None:
            try:
                self._labels = decode_node((yield from self._read(node_path(self._node)))).metadata.labels
            except _Missing as missing:
                raise NeverBound(f'failed to get node "{self._node}": {missing}') from missing
        return node_selector_matches(required, self._labels, "")

    # What the API server tells

    def _claim(self, key: str) -> Looking[PersistentVolumeClaim]:
        return (yield from self._object(ObjectKind.PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim, claim_path(key)))

    def _volume(self, name: str) -> Looking[PersistentVolume]:
        return (yield from self._object(ObjectKind.PERSISTENT_VOLUME, PersistentVolume, volume_path(name)))

    def _csi_node(self) -> Looking[CSINode | None]:
        try:
            return (yield from self._object(ObjectKind.CSI_NODE, CSINode, csi_node_path(self._node)))
        except _Missing:
            return None

    def _object(self, kind: ObjectKind, type_: type[Seen], path: str) -> Looking[Seen]:
        found = decode_object(kind, (yield from self._read(path)))
        if not isinstance(found, type_):
            raise NeverBound(f"{path}: not a {type_.__name__}")
        return found

    def _read(self, path: str) -> Looking[bytes]:
        answer = yield look_at(path)
        self.elapsed = answer.elapsed
        if answer.status == NOT_FOUND:
            raise _Missing(answer.message)
        if not answer.ok:
            raise _NotYet(answer.message)
        return answer.body
