"""Host ports that several pods of one node have.

kube-scheduler knows which host ports of a node are taken, and not how often: to it such a port is free as soon as one
of these pods is gone. No scheduler brings two of them together, but whoever places pods without one may.
"""

from collections.abc import Sequence

import numpy as np

from shared.cluster.changes import Rows
from shared.cluster.nodetable import PODS, LoadKind, NodeTable, Placed
from shared.framework.view import Changes
from shared.model.load import PodLoad
from shared.model.resources import HostPort


class FreedPorts(Changes):
    """Takes ports from rows, and no pod."""

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        return there

    def take(self, at: Rows) -> "FreedPorts":
        some = Changes.take(self, at)
        return FreedPorts(some.nodes, some.at, some.which, some.count, some.kinds)


def freed_ports(table: NodeTable, rows: Rows, gone: Sequence[Sequence[tuple[str, Placed]]]) -> FreedPorts | None:
    """The ports that pods which stay have in common with pods of the same row that are gone; None if there are none."""
    kinds: dict[HostPort, LoadKind] = {}
    at: list[int] = []
    ports: list[HostPort] = []
    for i, (row, pods) in enumerate(zip(rows.tolist(), gone, strict=True)):
        freed = {port for _, pod in pods for port in pod.kind.load.ports}
        if freed:
            leave = {uid for uid, _ in pods}
            staying = [pod for uid, pod in table.placed_at(row) if uid not in leave]
            shared = [(port, pod.kind) for pod in staying for port in pod.kind.load.ports if port in freed]
            at += [i] * len(shared)
            ports += [port for port, _ in shared]
            for port, kind in shared:
                kinds.setdefault(port, _bare(port, kind))
    if not ports:
        return None
    number = {port: k for k, port in enumerate(kinds)}
    which = np.array([number[port] for port in ports], dtype=np.intp)
    count = np.full(len(ports), -1, dtype=np.int64)
    return FreedPorts(len(rows), np.array(at, dtype=np.intp), which, count, list(kinds.values()))


def _bare(port: HostPort, of_kind: LoadKind) -> LoadKind:
    """A load that is nothing but a port: it does not even count as a pod."""
    kind = LoadKind(PodLoad(namespace="", ports=(port,)), of_kind.label_class)
    kind.resources, kind.amounts = np.array([PODS], dtype=np.intp), np.zeros(1, dtype=np.int64)
    return kind
