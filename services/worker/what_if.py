"""Pods that are supposed to be where they are to go, for the time of one evaluation.

A gang is placed whole or not at all. While its members are decided one after the other, those that come later are
judged as if those before them were there; the state shows none of them until all are committed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.cluster.volumes import VolumeDecision, changes_of
from shared.errors import ProtocolError
from shared.messages.rounds import Given, Propose
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, PersistentVolumeClaim
from shared.model.storage import BIND_COMPLETED


def check_given(propose: Propose) -> None:
    """ProtocolError if a load is named that did not come along."""
    for each in propose.given:
        if not 0 <= each.load < len(propose.loads):
            raise ProtocolError(f"given pod {each.uid}: load: {each.load} of {len(propose.loads)}")


@contextmanager
def supposed(table: NodeTable, given: Sequence[Given], loads: Sequence[PodLoad]) -> Iterator[None]:
    """Within the context the given pods are placed; on exit everything is restored, after exceptions too.

    Nodes of other shards are the business of others; volumes are everybody's. A pod that the table shows somewhere is
    left there.
    """
    with ExitStack() as undo:
        for each in given:
            if table.place_of(each.uid) is None:
                _suppose(table, each, loads[each.load], undo)
        yield


def _suppose(table: NodeTable, given: Given, load: PodLoad, undo: ExitStack) -> None:
    if table.nominations:
        _denominate(table, given.uid, undo)
    if given.node in table:
        table.add_pod(given.uid, given.node, load)
        undo.callback(table.remove_pod, given.uid)
    if given.volumes is not None:
        _promise(table, given.node, given.volumes, undo)


def _denominate(table: NodeTable, uid: str, undo: ExitStack) -> None:
    """Who is there needs no room to be kept for it."""
    for node in table.nominations:
        nominated = table.nominations.of(node).get(uid)
        if nominated is not None:
            table.denominate(uid)
            undo.callback(table.nominate, uid, node, nominated.kind.load, nominated.key)
            return


def _promise(table: NodeTable, node: str, volumes: VolumeDecision, undo: ExitStack) -> None:
    """Claims and volumes look as they will once the pod's decision is taken, and those bound that are to be.

    Were a claim only promised a volume, then where that is out of reach another one might be made for it.
    """
    claims = table.objects.claims
    known = {key: claim.uid for key in _claims(volumes) if (claim := claims.get(key)) is not None}
    for (kind, key), change in changes_of(node, msgspec.structs.replace(volumes, uids=known)):
        shown = table.objects.of(kind).get(key)
        if shown is not None:
            _replace(table.objects, shown, change.over(shown), undo)
    for key, volume in volumes.bindings:
        claim = claims.get(key)
        if claim is not None and not claim.spec.volume_name:
            _replace(table.objects, claim, _bound(claim, volume), undo)


def _replace(objects: ClusterObjects, shown: ClusterObject, expected: ClusterObject, undo: ExitStack) -> None:
    if expected is not shown:
        objects.upsert(expected)
        undo.callback(objects.upsert, shown)


def _bound(claim: PersistentVolumeClaim, volume: str) -> PersistentVolumeClaim:
    metadata = msgspec.structs.replace(
        claim.metadata, annotations={**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    )
    return msgspec.structs.replace(
        claim, metadata=metadata, spec=msgspec.structs.replace(claim.spec, volume_name=volume)
    )


def _claims(volumes: VolumeDecision) -> Iterator[str]:
    yield from (claim for claim, _ in volumes.bindings)
    yield from volumes.provisions
