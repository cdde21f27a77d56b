"""NodeTable: the state of a set of nodes as columns, one row a node.

Two kinds of change are distinguished, because most plugins read only one of them: a change of the node *object*
(labels, taints, allocatable ...) and a change of its *load* (a pod came or went). Each has a ChangeLog; an object
change is also written to the load log, so that the load log alone names every row that may be judged differently now.

Rows of removed nodes are used again. A row that is not `valid` belongs to no node and passes no filter. A row's
`generation` is the position of the load log right after its last change: no change, same generation.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import ItemsView, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import LabelValue, PodColumn, TextColumn
from shared.cluster.columns import ChangeLog, Columns, IntColumn, Interner
from shared.cluster.eviction_units import group_key, priority_of
from shared.cluster.load_kind import Amounts, LoadKind
from shared.cluster.nominations import NominatedPod, Nominations
from shared.cluster.objects import ClusterObjects
from shared.cluster.pod_indexes import LabelClasses, TermCounts
from shared.errors import ClusterError, InvariantBroken
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, Taint, key_of, kind_of, validate_node
from shared.model.resources import allocatable

FEWEST_VALUES = 1024
"""Values that are kept before values without nodes are collected."""
BASIC_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
FEW_PODS = 4
"""Pods of a kind that are added faster one by one."""
NewPod = tuple[str, str, str, float | None]
"""Its uid, its node's name, `namespace/name`, and when it started to run."""


class Placed(msgspec.Struct, gc=False):
    """A placed pod. `key`: its `namespace/name`; `started`: when it started to run (Unix time)."""

    row: int
    kind: LoadKind
    key: str = ""
    started: float | None = None


class IndexedColumn(PodColumn):
    """A pod column that is counted first from the table's indexes, not pod by pod."""

    @abstractmethod
    def fill(self, table: "NodeTable", column: IntColumn) -> None:
        """Count all pods; the column starts at zero."""


class NodeTable:
    """`objects`: the cluster's other objects. `nominations`: unbound pods with reserved room."""

    def __init__(self, capacity: int = 64, objects: ClusterObjects | None = None) -> None:
        self.objects = ClusterObjects() if objects is None else objects
        self.objects.devices.touch = self._log_devices
        self.resources: Interner[str] = Interner()
        for name in BASIC_RESOURCES:
            self.resources.id(name)
        self.taint_sets: Interner[tuple[Taint, ...]] = Interner()
        self.taint_sets.id(())
        self.node_log = ChangeLog()
        self.load_log = ChangeLog()
        self.label_classes = LabelClasses()
        self.terms = TermCounts()
        self.nominations = Nominations()
        self.shared_hostnames: frozenset[str] = frozenset()
        """Hostname label values that several nodes of the cluster share, in this table or not."""
        self.columns = Columns(self)
        self.size = 0
        self.names: list[str] = []
        self._nodes: list[Node | None] = []
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._placed: dict[str, Placed] = {}
        self._on_row: list[dict[str, Placed]] = []
        self._kinds: dict[bytes, LoadKind] = {}
        self._texts: dict[TextColumn, Interner[str]] = {}
        self.allocatable: Amounts = np.zeros((8, capacity), dtype=np.int64)
        self.used: Amounts = np.zeros((8, capacity), dtype=np.int64)
        self.non_zero: Amounts = np.zeros((2, capacity), dtype=np.int64)
        self.valid: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self.unschedulable: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self.taint_set: NDArray[np.intp] = np.zeros(capacity, dtype=np.intp)
        self.name_hash: NDArray[np.uint64] = np.zeros(capacity, dtype=np.uint64)
        self.generation: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)

    # Reading

    @property
    def capacity(self) -> int:
        return int(self.valid.shape[0])

    @property
    def node_count(self) -> int:
        return len(self._rows)

    @property
    def pod_count(self) -> int:
        return len(self._placed)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def row_of(self, name: str) -> int | None:
        return self._rows.get(name)

    def node_at(self, row: int) -> Node:
        node = self._nodes[row]
        if node is None:
            raise InvariantBroken(f"row {row} holds no node")
        return node

    def nodes(self) -> Iterator[tuple[int, Node]]:
        return ((row, node) for row, node in enumerate(self._nodes) if node is not None)

    def loads_at(self, row: int) -> list[PodLoad]:
        return [placed.kind.load for placed in self._on_row[row].values()]

    def placed_at(self, row: int) -> ItemsView[str, Placed]:
        """The pods on a row, by uid."""
        return self._on_row[row].items()

    def node_of(self, uid: str) -> str | None:
        """The node that a pod is placed on, if any."""
        placed = self._placed.get(uid)
        return None if placed is None else self.names[placed.row]

    def load_of(self, uid: str) -> PodLoad:
        """What a placed pod takes."""
        return self._placed[uid].kind.load

    def placed(self) -> Iterator[tuple[str, str, PodLoad]]:
        """Every placed pod: uid, node name, load."""
        return ((uid, self.names[placed.row], placed.kind.load) for uid, placed in self._placed.items())

    def count_pods(self, spec: PodColumn, column: IntColumn) -> None:
        """Count all pods; the column starts at zero."""
        if isinstance(spec, IndexedColumn):
            spec.fill(self, column)
            return
        known: dict[LoadKind, int] = {}
        for placed in self._placed.values():
            if placed.kind not in known:
                known[placed.kind] = spec.amount(placed.kind.load)
            column[placed.row] += known[placed.kind]

    def known_texts(self, column: TextColumn) -> Interner[str]:
        """The values of a column so far; empty if no node has any."""
        return self._texts.get(column, _NO_VALUES)

    def texts(self, column: TextColumn) -> Interner[str]:
        values = self._texts.get(column)
        if values is None:
            values = self._texts[column] = Interner()
        return values

    def label_values(self, key: str) -> Interner[str]:
        return self.texts(LabelValue(key))

    # Nodes

    def add_node(self, node: Node) -> None:
        """Add a node; raises ClusterError if it exists."""
        if node.metadata.name in self._rows:
            raise ClusterError(f"Node {node.metadata.name}: metadata.name: a node of this name is already known")
        self.upsert_node(node)

    def upsert_node(self, node: Node) -> None:
        """Add or change a node, completely or not at all."""
        validate_node(node)
        name = node.metadata.name
        row = self._rows.get(name)
        if row is None:
            row = self._take_row(name)
        self._write_node(row, node)
        self._forget_old_values()

    def remove_node(self, name: str) -> list[str]:
        """Remove a node and its pods; return their uids."""
        row = self._rows.pop(name, None)
        if row is None:
            raise ClusterError(f"Node {name}: metadata.name: no such node is known")
        gone = list(self._on_row[row])
        for uid in gone:
            self._unplace(uid)
        self.nominations.node_moved(name, None)
        self.valid[row] = False
        self.allocatable[:, row] = 0
        self._nodes[row] = None
        self._free.append(row)
        self.columns.node_changed(row, None)
        self._log_node(row)
        self.objects.devices.forget_node(name)
        return gone

    def in_turn(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """In an order that does not depend on when nodes were added, so that equal states are sampled alike."""
        return rows[np.argsort(self.name_hash[rows], kind="stable")]

    # Pods

    def kind(self, load: PodLoad) -> LoadKind:
        """The shared form of a load; call once for many equal pods."""
        key = msgspec.msgpack.encode(load)
        kind = self._kinds.get(key)
        if kind is None:
            kind = LoadKind(load, self.label_classes.class_of(load))
            kind.number(self.resources.known)
            if len(self._kinds) > 2 * len(self._placed) + 1024:
                self._kinds = {k: v for k, v in self._kinds.items() if v.users}
            self._kinds[key] = kind
        return kind

    def add_pod(
        self, uid: str, node: str, load: PodLoad | LoadKind, key: str = "", started: float | None = None
    ) -> None:
        """Add a pod to a node, or move it there."""
        row = self._row_for(uid, node)
        kind = load if isinstance(load, LoadKind) else self.kind(load)
        placed = self._placed.get(uid)
        if placed is not None:
            if placed.row == row and placed.kind is kind:
                placed.key, placed.started = key, started
                return
            self._unplace(uid)
        self._place(uid, Placed(row, kind, key, started))

    def add_pods(self, kind: LoadKind, pods: Sequence[NewPod]) -> None:
        """Add these pods of one kind, as `add_pod` does, but for all of them together what they use."""
        uids = {uid for uid, *_ in pods}
        if len(uids) < max(FEW_PODS, len(pods)) or not self._placed.keys().isdisjoint(uids):
            for uid, node, key, started in pods:
                self.add_pod(uid, node, kind, key, started)
            return
        rows = [self._row_for(uid, node) for uid, node, _, _ in pods]
        for (uid, _, key, started), row in zip(pods, rows, strict=True):
            self._placed[uid] = self._on_row[row][uid] = Placed(row, kind, key, started)
        kind.number(self._resource)
        kind.users += len(rows)
        self._count_all(kind, rows)

    def remove_pod(self, uid: str) -> None:
        if uid not in self._placed:
            raise ClusterError(f"Pod {uid}: metadata.uid: no pod of this uid is on a node")
        self._unplace(uid)

    # Nominations

    def nominate(self, uid: str, node: str, load: PodLoad, key: str = "") -> None:
        """Reserve room on a node for an unbound pod; the node need not exist."""
        self.denominate(uid)
        priority = priority_of(load, self.objects.pod_groups)
        self.nominations.add(uid, node, NominatedPod(self.kind(load), key, priority), self._rows.get(node))
        self._log_nomination(node)

    def denominate(self, uid: str) -> None:
        node = self.nominations.remove(uid)
        if node is not None:
            self._log_nomination(node)

    # Other objects

    def upsert_object(self, obj: ClusterObject) -> None:
        self.objects.upsert(obj)
        if kind_of(obj) is ObjectKind.POD_GROUP:
            self._count_nominations_again(key_of(obj))

    def remove_object(self, kind: ObjectKind, key: str) -> None:
        self.objects.remove(kind, key)
        if kind is ObjectKind.POD_GROUP:
            self._count_nominations_again(key)

    def _count_nominations_again(self, group: str) -> None:
        """Nominated pods of this group may have another priority now."""
        for uid, node, nominated in list(self.nominations.items()):
            load = nominated.kind.load
            if group_key(load) == group and nominated.priority != priority_of(load, self.objects.pod_groups):
                self.nominate(uid, node, load, nominated.key)

    def set_shared_hostnames(self, values: Iterable[str]) -> None:
        """Invalidate what was counted by hostname."""
        self.shared_hostnames = frozenset(values)
        self.node_log.invalidate()
        self.load_log.invalidate()

    def validate(self) -> None:
        """Raises if any column differs from what the nodes and their pods add up to."""
        used, non_zero = np.zeros_like(self.used), np.zeros_like(self.non_zero)
        for uid, placed in self._placed.items():
            if self._on_row[placed.row].get(uid) is not placed:
                raise InvariantBroken(f"pod {uid} is not where the table says")
            used[placed.kind.resources, placed.row] += placed.kind.amounts
            non_zero[:, placed.row] += placed.kind.non_zero
        if not (np.array_equal(used, self.used) and np.array_equal(non_zero, self.non_zero)):
            raise InvariantBroken("what is used does not add up")
        if sum(map(len, self._on_row)) != len(self._placed):
            raise InvariantBroken("some pod is on two rows")
        rows = {row: name for name, row in self._rows.items()}
        if rows.keys() != set(np.flatnonzero(self.valid).tolist()) or any(self.names[r] != n for r, n in rows.items()):
            raise InvariantBroken("rows and names do not agree")
        self.nominations.validate(self.row_of)

    # Internals

    def _row_for(self, uid: str, node: str) -> int:
        """The row of a pod's node; raises ClusterError if there is none."""
        row = self._rows.get(node)
        if row is None:
            raise ClusterError(f"Pod {uid}: spec.nodeName: no node {node!r} is known")
        return row

    def _place(self, uid: str, placed: Placed) -> None:
        placed.kind.number(self._resource)
        self._placed[uid] = self._on_row[placed.row][uid] = placed
        placed.kind.users += 1
        self._count(placed.row, placed.kind, 1)

    def _unplace(self, uid: str) -> None:
        placed = self._placed.pop(uid)
        del self._on_row[placed.row][uid]
        placed.kind.users -= 1
        self._count(placed.row, placed.kind, -1)

    def _count(self, row: int, kind: LoadKind, sign: int) -> None:
        if sign > 0:
            self.used[:, row] += kind.dense(len(self.used))
            self.non_zero[:, row] += kind.non_zero
            self.label_classes.add(kind.label_class, row)
            self.terms.add(kind.terms, row)
        else:
            self.used[:, row] -= kind.dense(len(self.used))
            self.non_zero[:, row] -= kind.non_zero
            self.label_classes.remove(kind.label_class, row)
            self.terms.remove(kind.terms, row)
        self.columns.load_changed(row, kind, sign)
        self._log_load(row)

    def _count_all(self, kind: LoadKind, rows: Sequence[int]) -> None:
        """One pod of the kind more on each of these rows, which may repeat."""
        distinct, counts = np.unique(rows, return_counts=True)
        self.used[:, distinct] += np.outer(kind.dense(len(self.used)), counts)
        self.non_zero[:, distinct] += np.outer(kind.non_zero, counts)
        for row, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            self.label_classes.add(kind.label_class, row, count)
            self.terms.add(kind.terms, row, count)
            self.columns.load_changed(row, kind, count)
            self._log_load(row)

    def _take_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = self.size
            if row == self.capacity:
                self._grow()
            self.size += 1
            self.names.append("")
            self._nodes.append(None)
            self._on_row.append({})
        self._rows[name] = row
        self.nominations.node_moved(name, row)
        self.names[row] = name
        self.name_hash[row] = stable_hash(name)
        return row

    def _write_node(self, row: int, node: Node) -> None:
        self.allocatable[:, row] = 0
        for name, amount in allocatable(node).items():
            number = self._resource(name)  # the matrix may grow
            self.allocatable[number, row] = amount
        self.unschedulable[row] = node.spec.unschedulable
        self.taint_set[row] = self.taint_sets.id(tuple(node.spec.taints))
        self.valid[row] = True
        self._nodes[row] = node
        self.columns.node_changed(row, node)
        self._log_node(row)

    def _forget_old_values(self) -> None:
        """Drop unused taints and labels: they come and go with nodes, often with a time in them."""
        most = 2 * len(self._rows) + FEWEST_VALUES
        if len(self.taint_sets) > most:
            self.taint_sets = Interner()
            self.taint_sets.id(())
            for row, node in self.nodes():
                self.taint_set[row] = self.taint_sets.id(tuple(node.spec.taints))
        if any(len(values) > most for values in self._texts.values()):
            self._texts.clear()
            self.columns.drop_nodes()

    def _log_node(self, row: int) -> None:
        self.node_log.append(row)
        self._log_load(row)

    def _log_nomination(self, node: str) -> None:
        row = self._rows.get(node)
        if row is not None:
            self._log_load(row)

    def _log_devices(self, nodes: Iterable[str] | None) -> None:
        """The devices of these nodes, or their use, have changed; of all nodes when None."""
        if nodes is None:
            self.load_log.invalidate()
            return
        for node in nodes:
            row = self._rows.get(node)
            if row is not None:
                self._log_load(row)

    def _log_load(self, row: int) -> None:
        self.load_log.append(row)
        self.generation[row] = self.load_log.position

    def _resource(self, name: str) -> int:
        number = self.resources.id(name)
        if number == self.allocatable.shape[0]:
            extra = np.zeros((4, self.capacity), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, extra])
            self.used = np.concatenate([self.used, extra])
        return number

    def _grow(self) -> None:
        """Double the rows. Cached columns have the old length, so all logs are invalidated."""
        more = self.capacity
        for column in (
            "allocatable",
            "used",
            "non_zero",
            "valid",
            "unschedulable",
            "taint_set",
            "name_hash",
            "generation",
        ):
            old = getattr(self, column)
            setattr(self, column, np.concatenate([old, np.zeros((*old.shape[:-1], more), dtype=old.dtype)], axis=-1))
        self.columns.drop_all()
        self.node_log.invalidate()
        self.load_log.invalidate()


_NO_VALUES: Interner[str] = Interner()


_PSEUDONYM: Final = re.compile(r".*~([0-9a-f]{16})", re.DOTALL)
"""As anonymized recordings have them; the API server refuses names with a tilde."""


def stable_hash(text: str) -> int:
    """The same 64-bit hash of a text in every process. A pseudonym has that of the name that it stands for."""
    if "~" in text and (of_name := _PSEUDONYM.fullmatch(text)):
        return int(of_name[1], 16)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def shard_of(node: str, shards: int) -> int:
    """Equal in all processes, and evenly distributed for any names."""
    return stable_hash(node) % shards
