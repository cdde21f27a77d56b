"""TableBuilder: the node table of a loaded state, a few nodes at a time.

A worker may have half a million nodes. If it built their table at once, it would send no heartbeats meanwhile, and lose
its shards.
"""

from collections.abc import Callable, Iterator, Sequence

from shared.cluster.load_kind import LoadKind
from shared.cluster.nodetable import NewPod, NodeTable
from shared.errors import ProtocolError
from shared.messages.state import NodeState, State
from shared.model.load import PodLoad

AT_ONCE = 1 << 10
"""Nodes of one step: milliseconds."""
PODS_AT_ONCE = 1 << 12
"""Pods of one step, and of one kind: likewise."""


class Kinds:
    """The loads that one message names by number, as the table shares them."""

    def __init__(self, table: NodeTable, loads: Sequence[PodLoad]) -> None:
        self._table = table
        self._loads = loads
        self._kinds: dict[int, LoadKind] = {}

    def kind(self, number: int) -> LoadKind:
        kind = self._kinds.get(number)
        if kind is None:
            if not 0 <= number < len(self._loads):
                raise ProtocolError(f"a message of {len(self._loads)} loads names number {number}")
            kind = self._kinds[number] = self._table.kind(self._loads[number])
        return kind


class TableBuilder:
    def __init__(self, state: State, is_ours: Callable[[str], bool]) -> None:
        """`state`: its nodes share their equal parts. `is_ours`: whether the node of this name belongs to the table."""
        self.state = state
        self.table = NodeTable()
        self._is_ours = is_ours
        self._kinds = Kinds(self.table, state.loads)

    def steps(self) -> Iterator[None]:
        """Yields between the steps; after the last one the table is complete. Raises FlotillaError."""
        nodes, pods = self.state.nodes, dict[int, list[NewPod]]()
        for start in range(0, len(nodes), AT_ONCE):
            for each in nodes[start : start + AT_ONCE]:
                self._add_node(each, pods)
            yield
        added = 0
        while pods:
            number, of_kind = pods.popitem()
            for start in range(0, len(of_kind), PODS_AT_ONCE):
                some = of_kind[start : start + PODS_AT_ONCE]
                self.table.add_pods(self._kinds.kind(number), some)
                if (added := added + len(some)) >= PODS_AT_ONCE:
                    added = 0
                    yield
        self._add_others()

    def build(self) -> NodeTable:
        """All at once; raises FlotillaError."""
        for _ in self.steps():
            pass
        return self.table

    def _add_node(self, node_state: NodeState, pods: dict[int, list[NewPod]]) -> None:
        """Without its pods: these go to those of their kinds."""
        name = node_state.node.name
        if self._is_ours(name):
            self.table.add_node(node_state.node)
            for uid, pod in node_state.pods.items():
                of_kind = pods.get(pod.load)
                if of_kind is None:
                    of_kind = pods[pod.load] = []
                of_kind.append((uid, name, pod.key, pod.started))

    def _add_others(self) -> None:
        table, state = self.table, self.state
        for obj in state.objects:
            table.objects.upsert(obj)
        for nominated in state.nominations:
            if self._is_ours(nominated.node):
                table.nominate(nominated.uid, nominated.node, self._kinds.kind(nominated.load).load, nominated.key)
        if state.shared_hostnames:
            table.set_shared_hostnames(state.shared_hostnames)
