"""In-tree volumes as the volumes of the CSI drivers that have taken them over."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from shared.errors import ClusterError
from shared.model.objects import (
    CSINode,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeSpec,
    Volume,
)
from shared.model.storage import MIGRATED_PLUGINS
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE

BETWEEN_ZONES = "__"
"""Separates the zones in a label of a volume that is in several."""

EBS, GCE_PD, AZURE_DISK = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk"
CINDER, PORTWORX = "kubernetes.io/cinder", "kubernetes.io/portworx-volume"

_UNSPECIFIED = "UNSPECIFIED"
_EBS_ID = re.compile(r"vol-[^/]*")


class Untranslatable(ClusterError):
    """An in-tree volume that no CSI driver can use."""


@dataclass(frozen=True, slots=True)
class Migration:
    """`source`: the field of a volume for this kind. `topology`: the driver's label for zones.

    `counts`: whether scheduling treats the volume as the driver's; not all that can be translated are.
    """

    source: str
    plugin: str
    driver: str
    topology: str = ""
    counts: bool = True


MIGRATIONS = (
    Migration("aws_elastic_block_store", EBS, "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    Migration("gce_persistent_disk", GCE_PD, "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    Migration("azure_disk", AZURE_DISK, "disk.csi.azure.com"),
    Migration("cinder", CINDER, "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    Migration("portworx_volume", PORTWORX, "pxd.portworx.com"),
    Migration("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", counts=False),
    Migration("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", counts=False),
)
BY_PLUGIN = {migration.plugin: migration for migration in MIGRATIONS}


def migration_of_volume(volume: PersistentVolume) -> Migration | None:
    return migration_of_inline(volume.spec)


def migration_of_inline(volume: Volume | PersistentVolumeSpec) -> Migration | None:
    return next((each for each in MIGRATIONS if getattr(volume, each.source) is not None), None)


def is_migrated_on(node: CSINode | None, plugin: str) -> bool:
    """Whether the node's kubelet leaves volumes of an in-tree plugin to the CSI driver."""
    return node is not None and plugin in node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")


def handle_of_inline(volume: Volume) -> str:
    """The driver's handle of an in-tree volume that counts; Untranslatable where there can be none."""
    return _handle(volume, ())


def handle_of_volume(volume: PersistentVolume) -> str:
    labels = volume.metadata.labels
    zones = labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    return _handle(volume.spec, tuple(zones.split(BETWEEN_ZONES)) if zones else ())


def migrated_affinity(volume: PersistentVolume, migration: Migration) -> NodeSelector | None:
    """Which nodes reach it, in the driver's own labels; Untranslatable if the volume as a whole is."""
    handle_of_volume(volume)
    affinity = volume.spec.node_affinity
    required = None if affinity is None else affinity.required
    if not migration.topology:
        return required
    terms = [] if required is None else required.node_selector_terms
    labels = volume.metadata.labels
    zone, region = _zone_and_region(terms, labels)
    if _values(terms, zone):
        terms = _renamed(terms, zone, migration.topology)
    elif zone in labels:
        zones = sorted({each.strip() for each in labels[zone].split(BETWEEN_ZONES)} - {""})
        if zones:
            added = NodeSelectorRequirement(key=migration.topology, operator="In", values=zones)
            terms = [_with(term, [*term.match_expressions, added]) for term in terms or [NodeSelectorTerm()]]
    if region == BETA_REGION and _values(terms, region):
        terms = _renamed(terms, region, REGION)
    return NodeSelector(node_selector_terms=terms) if terms or required is not None else None


def _handle(source: Volume | PersistentVolumeSpec, zones: tuple[str, ...]) -> str:
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.gce_persistent_disk is not None:
        name = source.gce_persistent_disk.pd_name
        if len(zones) > 1:
            return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{name}"
        return f"projects/{_UNSPECIFIED}/zones/{zones[0] if zones else _UNSPECIFIED}/disks/{name}"
    if source.azure_disk is not None:
        return source.azure_disk.disk_uri
    if source.cinder is not None:
        return source.cinder.volume_id
    if source.portworx_volume is not None:
        return source.portworx_volume.volume_id
    raise Untranslatable("no CSI driver counts such a volume")


def _ebs_handle(volume_id: str) -> str:
    """Of `vol-...`, `aws://zone/vol-...` and `aws:///vol-...` the last part."""
    if not volume_id.startswith("aws://"):
        return volume_id
    name = urlsplit(volume_id).path.strip("/")
    if _EBS_ID.fullmatch(name) is None:
        fault = f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({volume_id})"
        raise Untranslatable(fault)
    return name


def _gce_region(zones: tuple[str, ...]) -> str:
    """Zones are named after their region: `europe-west1-b` is in `europe-west1`."""
    regions: set[str] = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise Untranslatable(
                "failed to get region from zones: "
                f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise Untranslatable(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: {regions}"
        )
    return regions.pop()


def _zone_and_region(terms: Iterable[NodeSelectorTerm], labels: dict[str, str]) -> tuple[str, str]:
    """The labels for a volume's topology: its affinity's before its own, the current ones before the beta ones."""
    keys = {requirement.key for term in terms for requirement in term.match_expressions}
    for known in (keys, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _values(terms: Iterable[NodeSelectorTerm], key: str) -> set[str]:
    return {value for term in terms for each in term.match_expressions if each.key == key for value in each.values}


def _renamed(terms: Iterable[NodeSelectorTerm], old: str, new: str) -> list[NodeSelectorTerm]:
    return [
        _with(term, [msgspec.structs.replace(e, key=new) if e.key == old else e for e in term.match_expressions])
        for term in terms
    ]


def _with(term: NodeSelectorTerm, requirements: list[NodeSelectorRequirement]) -> NodeSelectorTerm:
    return msgspec.structs.replace(term, match_expressions=requirements)
