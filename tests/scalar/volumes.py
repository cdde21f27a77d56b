"""kube-scheduler's volume plugins, slowly. Volumes of in-tree drivers that CSI took over are left out."""

from collections.abc import Sequence

import msgspec

from flotilla.results import Status, error, unresolvable, unschedulable
from shared.cluster.objects import ClusterObjects
from shared.model.objects import PersistentVolume, PersistentVolumeClaim, Pod, Volume
from shared.model.storage import SELECTED_NODE, ClaimReference
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from tests.plugins.volumes import scalar
from tests.scalar.cluster import Cluster, NodeInfo
from tests.scalar.plugins import Cycle, Plugin, Rejected, Skip

EXCLUSIVE = "ReadWriteOncePod"
GA_LABELS = {BETA_ZONE: ZONE, BETA_REGION: REGION}


def claim_names(pod: Pod, *, ephemeral: bool) -> list[str]:
    """In the order of the volumes; `ephemeral`: with those that are made for the pod."""
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif ephemeral and volume.ephemeral is not None:
            names.append(f"{pod.name}-{volume.name}")
    return names


def claim_of(cycle: Cycle, name: str) -> PersistentVolumeClaim | None:
    return cycle.cluster.objects.claims.get(f"{cycle.pod.namespace}/{name}")


def not_found(kind: str, name: str) -> Rejected:
    return Rejected(unresolvable(f'{kind} "{name}" not found'))


class VolumeRestrictions(Plugin):
    name = "VolumeRestrictions"
    unprepared = 'cannot read "PreFilterVolumeRestrictions" from cycleState'

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        exclusive: set[str] = set()
        for name in claim_names(cycle.pod, ephemeral=False):
            claim = claim_of(cycle, name)
            if claim is None:
                raise not_found("persistentvolumeclaim", name)
            if EXCLUSIVE in claim.spec.access_modes:
                exclusive.add(name)
        everywhere = [pod for info in cycle.cluster.infos() for pod in info.pods]
        in_use = sum(_uses(everywhere, cycle.pod.namespace, name) > 0 for name in exclusive)
        cycle.state[self.name] = exclusive, in_use
        if not in_use and not any(_is_disk(volume) for volume in cycle.pod.spec.volumes):
            raise Skip
        return None

    def filter(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        theirs = [volume for pod in info.pods for volume in pod.spec.volumes]
        if any(_clash(one, other) for one in cycle.pod.spec.volumes if _is_disk(one) for other in theirs):
            return unschedulable("node(s) had no available disk")
        lacking = self.lacks_state(cycle)
        if lacking is not None:
            return lacking
        exclusive, in_use = cycle.state[self.name]
        namespace = cycle.pod.namespace
        for name in exclusive:
            in_use += _uses(info.added, namespace, name) - _uses(info.removed, namespace, name)
        if in_use > 0:
            return unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use"
                " by another pod"
            )
        return None


def _uses(pods: Sequence[Pod], namespace: str, claim: str) -> int:
    return sum(claim_names(pod, ephemeral=False).count(claim) for pod in pods if pod.namespace == namespace)


def _is_disk(volume: Volume) -> bool:
    return any((volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.rbd, volume.iscsi))


def _clash(one: Volume, other: Volume) -> bool:
    if one.gce_persistent_disk and other.gce_persistent_disk:
        same = one.gce_persistent_disk.pd_name == other.gce_persistent_disk.pd_name
        if same and not (one.gce_persistent_disk.read_only and other.gce_persistent_disk.read_only):
            return True
    if one.aws_elastic_block_store and other.aws_elastic_block_store:  # noqa: SIM102
        if one.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id:
            return True
    if one.iscsi and other.iscsi:  # noqa: SIM102
        if one.iscsi.iqn == other.iscsi.iqn and not (one.iscsi.read_only and other.iscsi.read_only):
            return True
    if one.rbd and other.rbd:
        same = (one.rbd.pool, one.rbd.image) == (other.rbd.pool, other.rbd.image)
        near = bool(set(one.rbd.monitors) & set(other.rbd.monitors))
        return same and near and not (one.rbd.read_only and other.rbd.read_only)
    return False


class VolumeZone(Plugin):
    name = "VolumeZone"

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        if not self._zones(cycle):
            raise Skip
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        if not cycle.pod.spec.volumes:
            return None
        try:
            zones = self._zones(cycle)
        except Rejected as cause:
            return cause.status
        labels = info.node.metadata.labels
        if not any(label in labels for label in (*GA_LABELS, *GA_LABELS.values())):
            return None
        for label, values in zones:
            value = labels.get(label, labels.get(GA_LABELS.get(label, label)))
            if value not in values:
                return unresolvable("node(s) had no available volume zone")
        return None

    def _zones(self, cycle: Cycle) -> list[tuple[str, set[str]]]:
        found: list[tuple[str, set[str]]] = []
        for name in claim_names(cycle.pod, ephemeral=False):
            claim = claim_of(cycle, name)
            if claim is None:
                raise not_found("persistentvolumeclaim", name)
            volume = self._volume(cycle.cluster.objects, claim)
            if volume is not None:
                for label in (*GA_LABELS, *GA_LABELS.values()):
                    text = volume.metadata.labels.get(label)
                    values = set() if text is None else {value.strip() for value in text.split("__")}
                    if values and "" not in values:
                        found.append((label, values))
        return found

    def _volume(self, objects: ClusterObjects, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        if claim.spec.volume_name:
            volume = objects.persistent_volumes.get(claim.spec.volume_name)
            if volume is None:
                raise not_found("persistentvolume", claim.spec.volume_name)
            return volume
        if not claim.storage_class:
            raise Rejected(unresolvable("PersistentVolumeClaim had no pv name and storageClass name"))
        of_class = objects.storage_classes.get(claim.storage_class)
        if of_class is None:
            raise not_found("storageclass.storage.k8s.io", claim.storage_class)
        if of_class.volume_binding_mode is None:
            text = f'VolumeBindingMode not set for StorageClass "{claim.storage_class}"'
            raise Rejected(unresolvable(text))
        if of_class.volume_binding_mode != "WaitForFirstConsumer":
            raise Rejected(unresolvable("PersistentVolume had no name"))
        return None


class VolumeBinding(Plugin):
    name = "VolumeBinding"
    unprepared = "not found"

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        claims = self._claims(cycle)
        if not claims:
            cycle.prepared.add(self.name)  # kube-scheduler writes an empty state, though it skips Filter
            raise Skip
        for claim in claims:
            if not claim.fully_bound and not self._is_delayed(cycle, claim):
                raise Rejected(unresolvable("pod has unbound immediate PersistentVolumeClaims"))
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        found = scalar.find(cycle.pod, cycle.cluster.objects, info.node)
        return unresolvable(*found.reasons) if found.reasons else None

    def pre_score(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> None:
        raise Skip

    def _claims(self, cycle: Cycle) -> list[PersistentVolumeClaim]:
        claims: list[PersistentVolumeClaim] = []
        named = claim_names(cycle.pod, ephemeral=False)
        for name in claim_names(cycle.pod, ephemeral=True):
            claim = claim_of(cycle, name)
            if claim is None:
                if name in named:
                    raise not_found("persistentvolumeclaim", name)
                text = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                raise Rejected(unresolvable(text))
            if claim.status.phase == "Lost":
                gone = claim.spec.volume_name
                text = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{gone}"'
                raise Rejected(unresolvable(text))
            if claim.metadata.deletion_timestamp is not None:
                raise Rejected(unresolvable(f'persistentvolumeclaim "{name}" is being deleted'))
            if name not in named and not _belongs(claim, cycle.pod):
                text = f"PVC {claim.key} was not created for pod {cycle.pod.key} (pod is not owner)"
                raise Rejected(unresolvable(text))
            claims.append(claim)
        return claims

    def _is_delayed(self, cycle: Cycle, claim: PersistentVolumeClaim) -> bool:
        of_class = cycle.cluster.objects.storage_classes.get(claim.storage_class)
        waits = of_class is not None and of_class.volume_binding_mode == "WaitForFirstConsumer"
        return waits and not claim.spec.volume_name


def _belongs(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    return any(owner.controller and owner.uid == pod.uid for owner in claim.metadata.owner_references)


def assume(cluster: Cluster, pod: Pod, node: str) -> None:
    """What VolumeBinding reserves: volumes for claims, and the node for claims whose volumes are to be made."""
    found = scalar.find(pod, cluster.objects, cluster.nodes[node])
    for key, name in found.bindings:
        claim, volume = cluster.objects.claims[key], cluster.objects.persistent_volumes[name]
        reference = ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        cluster.replace(msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, claim_ref=reference)))
    for key in found.provisions:
        claim = cluster.objects.claims[key]
        annotations = {**claim.metadata.annotations, SELECTED_NODE: node}
        metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
        cluster.replace(msgspec.structs.replace(claim, metadata=metadata))


class NodeVolumeLimits(Plugin):
    name = "NodeVolumeLimits"

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        if not claim_names(cycle.pod, ephemeral=True):
            raise Skip
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        objects, pod = cycle.cluster.objects, cycle.pod
        named = claim_names(pod, ephemeral=False)
        for name in claim_names(pod, ephemeral=True):
            claim = claim_of(cycle, name)
            if claim is None:
                return unresolvable(f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found')
            if name not in named and not _belongs(claim, pod):
                return error(f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)")
        of_node = objects.csi_nodes.get(info.node.name)
        drivers = [] if of_node is None else of_node.spec.drivers
        limits = {
            each.name: each.allocatable.count
            for each in drivers
            if each.allocatable is not None and each.allocatable.count is not None
        }
        attached: dict[str, str] = {}
        for there in info.pods:
            attached |= _volumes(objects, there)
        for each in objects.volume_attachments.values():
            volume = objects.persistent_volumes.get(each.spec.source.persistent_volume_name or "")
            if each.spec.node_name == info.node.name and volume is not None and volume.spec.csi is not None:
                csi = volume.spec.csi
                if csi.driver == each.spec.attacher:
                    attached[f"{csi.driver}/{csi.volume_handle}"] = csi.driver
        wanted = {key: driver for key, driver in _volumes(objects, pod).items() if key not in attached}
        for driver in set(wanted.values()):
            count = list(wanted.values()).count(driver) + list(attached.values()).count(driver)
            if driver in limits and count > limits[driver]:
                return unschedulable("node(s) exceed max volume count")
        return None


def _volumes(objects: ClusterObjects, pod: Pod) -> dict[str, str]:
    """The drivers of a pod's volumes, by driver and handle."""
    found: dict[str, str] = {}
    for name in claim_names(pod, ephemeral=True):
        claim = objects.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            continue
        volume = objects.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            if volume.spec.csi is not None and volume.spec.csi.volume_handle:
                found[f"{volume.spec.csi.driver}/{volume.spec.csi.volume_handle}"] = volume.spec.csi.driver
            continue
        of_class = objects.storage_classes.get(claim.storage_class)
        if of_class is not None and of_class.provisioner:
            found[f"{of_class.provisioner}/to be made for {claim.key}"] = of_class.provisioner
    return found
