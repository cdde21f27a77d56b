"""Nominations: unbound pods for which room is reserved on a node.

Beside the pods by node stand arrays with an entry for each pod, in no order, so that all of them can be looked at in a
few steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.cluster.columns import Rows
from shared.cluster.load_kind import LoadKind
from shared.errors import InvariantBroken

NO_ROW = -1
"""The row of a node that is not in the table."""
FEWEST_KINDS = 1024
"""Kinds of pods that are numbered before those without nominations are forgotten."""


@dataclass(frozen=True, slots=True)
class NominatedPod:
    """What a nominated pod will occupy; `key`: its `namespace/name`. `priority`: its group's, if that has one."""

    kind: LoadKind
    key: str
    priority: int


class Nominations:
    """By node name; the node need not exist."""

    def __init__(self) -> None:
        self.version = 0
        """Rises with each change."""
        self.kinds: list[LoadKind] = []
        """By number."""
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, NominatedPod]] = {}
        self._uids: list[str] = []
        """In the order of the entries."""
        self._at: dict[str, int] = {}
        """The entry of each pod."""
        self._numbers: dict[LoadKind, int] = {}
        self._entries: NDArray[np.int64] = np.zeros((3, 64), dtype=np.int64)
        """Row, number of the kind, and priority."""

    def __len__(self) -> int:
        return len(self._node_of)

    def __iter__(self) -> Iterator[str]:
        """The nodes with nominated pods."""
        return iter(self._on)

    def items(self) -> Iterator[tuple[str, str, NominatedPod]]:
        """The pods by uid, and their nodes."""
        return ((uid, node, self._on[node][uid]) for uid, node in self._node_of.items())

    def of(self, node: str) -> dict[str, NominatedPod]:
        """The pods nominated to a node, by uid."""
        return self._on.get(node, {})

    def node_of(self, uid: str) -> str | None:
        """The node that the pod is nominated to, if any."""
        return self._node_of.get(uid)

    def entry_of(self, uid: str) -> int | None:
        return self._at.get(uid)

    @property
    def rows(self) -> Rows:
        """The row of each entry's node; NO_ROW of a node that is not there."""
        return self._entries[0, : len(self._uids)]

    @property
    def which(self) -> Rows:
        """The number of each entry's kind."""
        return self._entries[1, : len(self._uids)]

    @property
    def priorities(self) -> NDArray[np.int64]:
        return self._entries[2, : len(self._uids)]

    def add(self, uid: str, node: str, nominated: NominatedPod, row: int | None) -> None:
        """`row`: the node's. The pod is not nominated yet."""
        self.version += 1
        self._node_of[uid] = node
        self._on.setdefault(node, {})[uid] = nominated
        at = self._at[uid] = len(self._uids)
        self._uids.append(uid)
        if at == self._entries.shape[1]:
            self._entries = np.concatenate([self._entries, np.zeros_like(self._entries)], axis=1)
        kind = nominated.kind
        self._entries[:, at] = NO_ROW if row is None else row, self._number(kind), nominated.priority

    def remove(self, uid: str) -> str | None:
        """The node that the pod was nominated to, if any."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            self.version += 1
            on_node = self._on[node]
            del on_node[uid]
            if not on_node:
                del self._on[node]
            at, last = self._at.pop(uid), self._uids.pop()
            if last != uid:
                self._uids[at], self._at[last] = last, at
                self._entries[:, at] = self._entries[:, len(self._uids)]
        return node

    def node_moved(self, node: str, row: int | None) -> None:
        """The node has this row from now on, or is not in the table any more."""
        for uid in self.of(node):
            self.version += 1
            self._entries[0, self._at[uid]] = NO_ROW if row is None else row

    def validate(self, row_of: Callable[[str], int | None]) -> None:
        for uid, node in self._node_of.items():
            row, nominated = row_of(node), self._on[node][uid]
            expected = NO_ROW if row is None else row, self._numbers.get(nominated.kind), nominated.priority
            if self._uids[self._at[uid]] != uid or tuple(self._entries[:, self._at[uid]].tolist()) != expected:
                raise InvariantBroken(f"the entry of nominated pod {uid} is wrong")
        if not len(self._uids) == len(self._at) == len(self._node_of) == sum(map(len, self._on.values())):
            raise InvariantBroken("nominations do not add up")

    def _number(self, kind: LoadKind) -> int:
        number = self._numbers.get(kind)
        if number is None:
            if len(self.kinds) >= 2 * len(self._uids) + FEWEST_KINDS:
                self._forget_kinds()
            number = self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        return number

    def _forget_kinds(self) -> None:
        """Numbers those of nominated pods again."""
        nominated = [self._on[self._node_of[uid]][uid].kind for uid in self._uids]
        self._numbers = {kind: number for number, kind in enumerate(dict.fromkeys(nominated))}
        self.kinds = list(self._numbers)
        self._entries[1, : len(nominated)] = [self._numbers[kind] for kind in nominated]
