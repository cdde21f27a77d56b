"""Claims, volumes and what goes with them, in a readable line each; and how one plugin judges a pod."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flotilla.plugin import ClassState, FilterPlugin, PreFilterPlugin, SummaryPlugin
from flotilla.results import Status
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Hypothesis, TableView
from shared.config.args import UtilizationShapePoint, VolumeBindingArgs
from shared.config.feature_gates import FeatureGates
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, object_from
from shared.plugins.volumes.volumebinding import VolumeBinding
from testing.builders import NodeBuilder, PodBuilder, class_state
from tests.plugins.cluster import rejected, table_of

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BETA_ZONE, REGION = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region"


def claim(
    name: str = "data",
    of_class: str | None = "delayed",
    size: str | None = "10Gi",
    *,
    volume: str = "",
    bound: bool = True,
    modes: Sequence[str] = ("ReadWriteOnce",),
    **more: Any,
) -> ClusterObject:
    """Bound to `volume`, if one is named and binding is finished. `more`: phase, selected, owner, selector ..."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume and bound else {}
    if "selected" in more:
        annotations["volume.kubernetes.io/selected-node"] = more["selected"]
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    if more.get("deleted"):
        metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    if "owner" in more:
        metadata["ownerReferences"] = [{"kind": "Pod", "uid": more["owner"], "controller": True}]
    spec: dict[str, Any] = {"accessModes": list(modes), "volumeName": volume}
    if of_class is not None:
        spec["storageClassName"] = of_class
    if size is not None:
        spec["resources"] = {"requests": {"storage": size}}
    spec |= {key: more[key] for key in ("selector", "volumeMode", "volumeAttributesClassName") if key in more}
    status = {"phase": more.get("phase", "Bound" if volume and bound else "Pending")}
    return object_from(ObjectKind.PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": spec, "status": status})


def volume(
    name: str,
    of_class: str = "delayed",
    size: str = "10Gi",
    *,
    nodes: Mapping[str, Sequence[str]] | None = None,
    kept_for: str = "",
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Available",
    modes: Sequence[str] = ("ReadWriteOnce",),
    **spec: Any,
) -> ClusterObject:
    """`nodes`: label -> values of the nodes that reach it. `kept_for`: the claim in its claimRef."""
    made: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "storageClassName": of_class,
        **spec,
    }
    if nodes is not None:
        expressions = [{"key": key, "operator": "In", "values": list(values)} for key, values in nodes.items()]
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    if kept_for:
        made["claimRef"] = {
            "namespace": "default",
            "name": kept_for,
            "uid": f"uid-{kept_for}" if uid is None else uid,
        }
    metadata = {"name": name, "labels": dict(labels or {})}
    return object_from(ObjectKind.PERSISTENT_VOLUME, {"metadata": metadata, "spec": made, "status": {"phase": phase}})


def csi(handle: str, driver: str = "csi.example.com") -> dict[str, str]:
    return {"driver": driver, "volumeHandle": handle}


def storage_class(
    name: str = "delayed",
    provisioner: str = "csi.example.com",
    mode: str | None = "WaitForFirstConsumer",
    topologies: Sequence[Mapping[str, Sequence[str]]] = (),
) -> ClusterObject:
    terms = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]}
        for term in topologies
    ]
    fields = {"metadata": {"name": name}, "provisioner": provisioner, "allowedTopologies": terms}
    return object_from(ObjectKind.STORAGE_CLASS, fields | ({"volumeBindingMode": mode} if mode else {}))


def csi_node(name: str, limits: Mapping[str, int] | None = None, *, migrated: str = "") -> ClusterObject:
    """`limits`: by driver."""
    drivers = [
        {"name": driver, "nodeID": "x", "allocatable": {"count": count}} for driver, count in (limits or {}).items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    metadata = {"name": name, "annotations": annotations}
    return object_from(ObjectKind.CSI_NODE, {"metadata": metadata, "spec": {"drivers": drivers}})


def csi_driver(name: str = "csi.example.com", *, capacity: bool = True, needed: bool = False) -> ClusterObject:
    """`needed`: pods with its volumes go to no node on which it is not installed."""
    spec = {"storageCapacity": capacity, "preventPodSchedulingIfMissing": needed}
    return object_from(ObjectKind.CSI_DRIVER, {"metadata": {"name": name}, "spec": spec})


def capacity(name: str, room: str | None, labels: Mapping[str, str] | None, **more: Any) -> ClusterObject:
    fields: dict[str, Any] = {"metadata": {"name": name, "namespace": "kube-system"}, "storageClassName": "delayed"}
    if labels is not None:
        fields["nodeTopology"] = {"matchLabels": dict(labels)}
    if room is not None:
        fields["capacity"] = room
    return object_from(ObjectKind.CSI_STORAGE_CAPACITY, fields | more)


def attachment(node: str, volume_name: str, attacher: str = "csi.example.com") -> ClusterObject:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume_name}}
    return object_from(ObjectKind.VOLUME_ATTACHMENT, {"metadata": {"name": f"{node}-{volume_name}"}, "spec": spec})


def scoring(*shape: tuple[int, int]) -> VolumeBinding:
    """With StorageCapacityScoring."""
    points = tuple(UtilizationShapePoint(utilization, score) for utilization, score in shape)
    return VolumeBinding(VolumeBindingArgs(shape=points), FeatureGates.parse("StorageCapacityScoring=true"))


def cluster(
    *nodes: NodeBuilder | Node, objects: Sequence[ClusterObject] = (), pods: Sequence[PodBuilder | Pod] = ()
) -> NodeTable:
    table = table_of(*nodes, pods=pods)
    for obj in objects:
        table.objects.upsert(obj)
    return table


def state_of(plugin: FilterPlugin, pod: PodBuilder | Pod, table: NodeTable, *others: NodeTable) -> ClassState | Status:
    """After PreFilter, and with the summary of all shards. A status if PreFilter has rejected the pod."""
    state = class_state(pod if isinstance(pod, Pod) else pod.build(), table.objects)
    if isinstance(plugin, PreFilterPlugin):
        status = plugin.pre_filter(state).status
        if not (status.ok or status.skipped):
            return status
    if isinstance(plugin, SummaryPlugin):
        merged = plugin.summarize(state, TableView(table))
        for other in others:
            merged = plugin.merge(merged, plugin.summarize(state, TableView(other)))
        state.summaries[plugin.name] = merged
    return state


def judged(
    plugin: FilterPlugin,
    pod: PodBuilder | Pod,
    table: NodeTable,
    *others: NodeTable,
    hypothesis: Hypothesis | None = None,
) -> dict[str, Status] | Status:
    """Why the plugin rejects nodes of the first table, by name; or why it rejects the pod."""
    state = state_of(plugin, pod, table, *others)
    if isinstance(state, Status):
        return state
    if is_skipped(plugin, state):
        return {}
    rows = np.flatnonzero(table.valid[: table.size])
    found = zip(rows.tolist(), rejected(plugin, state, TableView(table, rows, hypothesis)), strict=True)
    return {table.names[row]: status for row, status in found if status is not None}


def is_skipped(plugin: FilterPlugin, state: ClassState) -> bool:
    return isinstance(plugin, PreFilterPlugin) and plugin.pre_filter(state).status.skipped
