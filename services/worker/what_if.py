"""Evaluates as if pods were placed already that are decided but not committed; or as if the cluster were another.

A gang is placed whole or not at all. Its members are decided one after the other, and each is judged with the ones
before it in place; the state shows none of them until all are committed.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from shared.cluster.devices import Created, DeviceDecision, changes_of_claims
from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.cluster.volumes import VolumeDecision, changes_of
from shared.messages.explaining import NodeEdit, Supposed
from shared.messages.rounds import Given
from shared.model.devices import ResourceClaim
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, PersistentVolumeClaim
from shared.model.quantity import MILLI, UNIT, Quantity
from shared.model.storage import BIND_COMPLETED
from shared.model.wellknown import HOSTNAME

CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""The taint that the node controller adds to cordoned nodes."""


@contextmanager
def cluster_changed(table: NodeTable, supposed: Supposed) -> Iterator[None]:
    """Changes nodes, removes and adds pods within the context as far as they are in this table; restores it on exit."""
    with ExitStack() as undo:
        for number, edit in enumerate(supposed.nodes):
            row = table.row_of(edit.node)
            if row is not None:
                _edit(table, table.node_at(row), edit, number, undo)
        _remove(table, supposed.gone, undo)
        for number, pod in enumerate(supposed.pods):
            if pod.node in table:
                uid = f"supposed {number}"
                table.add_pod(uid, pod.node, PodLoad(pod.namespace, pod.labels))
                undo.callback(table.remove_pod, uid)
        yield


def _remove(table: NodeTable, gone: Iterable[str], undo: ExitStack) -> None:
    for uid in gone:
        node = table.node_of(uid)
        row = None if node is None else table.row_of(node)
        if node is not None and row is not None:
            placed = dict(table.placed_at(row))[uid]
            table.remove_pod(uid)
            undo.callback(table.add_pod, uid, node, placed.kind, placed.key, placed.started)


@contextmanager
def pods_evicted(table: NodeTable, gone: Iterable[str], unreserved: Iterable[str]) -> Iterator[None]:
    """Removes these pods within the context, and the nominations of others; restores them on exit."""
    with ExitStack() as undo:
        evict(table, gone, unreserved, undo)
        yield


def evict(table: NodeTable, gone: Iterable[str], unreserved: Iterable[str], undo: ExitStack) -> None:
    """As `pods_evicted`, until `undo` is closed."""
    _remove(table, gone, undo)
    for uid in unreserved:
        _denominate(table, uid, undo)


def _denominate(table: NodeTable, uid: str, undo: ExitStack) -> None:
    node = table.nominations.node_of(uid)
    if node is not None:
        nominated = table.nominations.of(node)[uid]
        table.denominate(uid)
        undo.callback(table.nominate, uid, node, nominated.kind.load, nominated.key)


def _edit(table: NodeTable, node: Node, edit: NodeEdit, number: int, undo: ExitStack) -> None:
    metadata, spec = node.metadata, node.spec
    name, labels = metadata.name, {**metadata.labels, **edit.labels}
    if edit.copy:
        name = f"{metadata.name}-copy-{number}"
        if HOSTNAME in labels:
            labels[HOSTNAME] = name
    if edit.schedulable:
        taints = [taint for taint in spec.taints if taint.key != CORDON_TAINT]
        spec = msgspec.structs.replace(spec, unschedulable=False, taints=taints)
    more = {name: Quantity(units * (MILLI if name == "cpu" else UNIT)) for name, units in edit.amounts.items()}
    status = msgspec.structs.replace(node.status, allocatable={**node.status.allocatable, **more})
    metadata = msgspec.structs.replace(metadata, name=name, labels=labels)
    table.upsert_node(msgspec.structs.replace(node, metadata=metadata, spec=spec, status=status))
    if edit.copy:
        undo.callback(table.remove_node, name)
    else:
        undo.callback(table.upsert_node, node)


@contextmanager
def pods_placed(table: NodeTable, given: Sequence[Given], loads: Sequence[PodLoad]) -> Iterator[None]:
    """Places the given pods within the context, and restores the table on exit, also after an exception."""
    with ExitStack() as undo:
        for each in given:
            place(table, each, loads[each.load], undo)
        yield


def place(table: NodeTable, given: Given, load: PodLoad, undo: ExitStack) -> None:
    """Places a pod until `undo` is closed.

    A pod on a node of another shard changes only the volumes here. A pod that the table already shows on its node is
    counted once. One on another node has an attempt that is about to be forgotten: it counts on both, because either
    may be the one that the snapshot knows when the decision comes to it.
    """
    if table.node_of(given.uid) == given.node:
        return
    _denominate(table, given.uid, undo)  # a placed pod needs no reserved room
    if given.node in table:
        uid = given.uid if table.node_of(given.uid) is None else f"{given.uid} again"
        table.add_pod(uid, given.node, load)
        undo.callback(table.remove_pod, uid)
    if given.volumes is not None:
        _take_volumes(table.objects, given.node, given.volumes, undo)
    if given.devices is not None:
        _take_devices(table.objects, load.namespace, given, given.devices, undo)


def _take_volumes(objects: ClusterObjects, node: str, volumes: VolumeDecision, undo: ExitStack) -> None:
    """Shows claims and volumes as they will be once the decision is carried out, with the claims bound.

    A claim that was only promised a volume might be provisioned another one where that volume is out of reach.
    """
    decided = (*(claim for claim, _ in volumes.bindings), *volumes.provisions)
    uids = {key: claim.uid for key in decided if (claim := objects.claims.get(key)) is not None}
    for (kind, key), change in changes_of(node, msgspec.structs.replace(volumes, uids=uids)):
        shown = objects.of(kind).get(key)
        if shown is not None:
            _replace(objects, shown, change.over(shown), undo)
    for key, volume in volumes.bindings:
        claim = objects.claims.get(key)
        if claim is not None and not claim.spec.volume_name:
            _replace(objects, claim, _bound(claim, volume), undo)


def _take_devices(
    objects: ClusterObjects, namespace: str, given: Given, devices: DeviceDecision, undo: ExitStack
) -> None:
    """Shows claims as they will be once the decision is carried out.

    They are not promised: other members of the gang, which is committed as a whole, may share them.
    """
    for (kind, key), change in changes_of_claims(namespace, given.name, given.uid, devices):
        shown = objects.of(kind).get(key)
        if shown is not None:
            expected = change.over(shown)
            if isinstance(expected, ResourceClaim) and expected is not shown:
                expected = msgspec.structs.replace(expected, promised=False)
            _replace(objects, shown, expected, undo)
        elif isinstance(change, Created):
            objects.upsert(change.claim)
            undo.callback(objects.remove, kind, key)


def _replace(objects: ClusterObjects, shown: ClusterObject, expected: ClusterObject, undo: ExitStack) -> None:
    if expected is not shown:
        objects.upsert(expected)
        undo.callback(objects.upsert, shown)


def _bound(claim: PersistentVolumeClaim, volume: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
    spec = msgspec.structs.replace(claim.spec, volume_name=volume)
    return msgspec.structs.replace(claim, metadata=metadata, spec=spec)
