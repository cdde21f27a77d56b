"""Where the state that the leader has published differs from a standby's own.

A standby knows the cluster from the watch, and not what the leader has made of it. It compares the leader's state in
Redis with its own once, part by part, and follows the leader's deltas from then on: so it knows every part that
differs. If Redis ends where these deltas end, it continues that state with the differences alone.

    unknown --begin--> compared, some shards at a time --all are--> known
       ^                  |                                           |
       +------------------+-- a delta is missing, another term, too many differences

Every part that is not among the differences was found equal, and has not changed since on either side.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from services.snapshot.state.cluster_state import ClusterState
from shared.cluster.nodetable import shard_of
from shared.messages.state import (
    Change,
    Delta,
    Heartbeat,
    LedgerEntry,
    Loads,
    NodeRemoved,
    NodeUpserted,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodPlaced,
    SharedHostnames,
    State,
)
from shared.model.load import PodLoad
from shared.model.objects import ObjectKind, key_of, kind_of

MAX_DIFFERENCES = 1 << 14
"""Beyond that, the whole state is written when the term begins: a standby in step differs in a second's changes."""
MAX_CHANGES = 1 << 12
"""In one delta, as in those of the watch's events."""

POD, NODE, NOMINATION = "a pod on a node", "a node", "a nomination"
Part = tuple[str, str]
"""POD, NODE, NOMINATION or the kind of an object, and the key."""
UNHEARD = object()
"""In place of the leader's value: ours has changed, and the leader has not published any since."""


class Published:
    def __init__(self, cluster: ClusterState, shard_count: int) -> None:
        self._cluster = cluster
        self._shard_count = shard_count
        self.position = (0, 0)
        """The leader's term, and the number of its last delta; (0, 0) before any is heard."""
        self.uncompared: set[int] = set(range(shard_count))
        """Shards that are not compared yet."""
        self._differs: dict[Part, object] = {}
        """The leader's value of each part that differs; None if it has none."""
        self._touched: dict[Part, int] = {}
        """While shards are compared: the number of the delta that has changed the part."""
        self._known_from = 0
        """The state in Redis was as new as this."""

    def begin(self) -> None:
        """Nothing is known any more."""
        self.position, self._known_from = (0, 0), 0
        self.uncompared = set(range(self._shard_count))
        self._differs, self._touched = {}, {}

    def ends_at(self, epoch: int, seq: int) -> bool:
        """Whether all differences from the state of this number are known."""
        return not self.uncompared and self.position == (epoch, seq) and seq >= self._known_from > 0

    # What comes in

    def hear(self, message: Delta | Heartbeat) -> None:
        """A message of the leader."""
        epoch, seq = self.position
        if message.epoch < epoch:
            return
        if isinstance(message, Heartbeat):
            if message.epoch != epoch or message.seq > seq:
                self.begin()
                self.position = message.epoch, message.seq
            return
        if message.epoch == epoch and message.seq <= seq:
            return
        if (message.epoch, message.seq) != (epoch, seq + 1):
            self.begin()
        self.position = message.epoch, message.seq
        for change in message.changes:
            for part, value in _said(change, message.loads):
                if self.uncompared:
                    self._touched[part] = message.seq
                self._compare(part, value)
        self._limit()

    def compare(self, shards: Collection[int], state: State, *, others: bool) -> bool:
        """`state`: of these shards, as Redis has it. `others`: with nominations and objects, which the first one has.

        False if it is of another term.
        """
        if state.epoch != self.position[0]:
            return False
        self._known_from = max(self._known_from, state.seq)
        stored = dict(_parts_of(state))
        for part, value in stored.items():
            if self._touched.get(part, 0) <= state.seq:
                self._compare(part, value)
        for part in self._own_parts(shards, others=others):
            if part not in stored and part not in self._differs and self._touched.get(part, 0) <= state.seq:
                self._differs[part] = None
        self.uncompared.difference_update(shards)
        if not self.uncompared:
            self._touched = {}
        self._limit()
        return True

    def changed(self, changes: Iterable[Change]) -> None:
        """Our own state has changed so. Parts of which the leader's value is not known yet are compared later."""
        if len(self.uncompared) == self._shard_count:
            return
        for part in (part for change in changes for part, _ in _said(change, ())):
            known = self._differs.setdefault(part, UNHEARD)
            if known is not UNHEARD and self._own(part) == known:
                del self._differs[part]
        self._limit()

    # What goes out

    def take_over(self, epoch: int, seq: int, ledger: Collection[LedgerEntry]) -> bool:
        """Whether a new leader can continue the state of this number; called before the core takes over.

        `ledger`: of the term before. What volumes and devices of assumed pods change in other objects is not followed.
        """
        self.changed(self._cluster.postponed)
        for entry in ledger:  # assumed again later; until then our value is the leader's, unless it is known to differ
            for part in ((POD, entry.uid), (NOMINATION, entry.uid)):
                self._differs.setdefault(part, self._own(part))
        plain = not any(each.held or each.assignment.volumes or each.assignment.devices for each in ledger)
        return plain and self.ends_at(epoch, seq)

    def catch_up(self) -> list[Delta]:
        """The deltas that lead from the leader's state to ours."""
        parts = set(self._differs)
        names = [name for kind, name in parts if kind is NODE]
        parts |= {(POD, uid) for name in names for uid in self._cluster.pods.on_node(name)}
        nodes_first = sorted(parts, key=lambda part: (part[0] is not NODE, part))
        deltas: list[Delta] = []
        for start in range(0, len(nodes_first) + 1, MAX_CHANGES):
            loads = Loads()
            changes = [self._as_change(part, loads) for part in nodes_first[start : start + MAX_CHANGES]]
            changes.append(SharedHostnames(self._cluster.nodes.shared_hostnames))
            deltas.append(self._cluster.delta(changes, loads.items, ()))
        return deltas

    def nodes_before(self, deltas: Iterable[Delta]) -> dict[str, str]:
        """By uid, the nodes on which the leader has the pods of these deltas; without those where it is not known, or
        that it has on no node.
        """
        found: dict[str, str] = {}
        for change in (change for delta in deltas for change in delta.changes):
            if isinstance(change, PodPlaced | PodGone):
                value = self._differs.get((POD, change.uid), UNHEARD)
                if isinstance(value, tuple):
                    found[change.uid] = value[0]
        return found

    # Inside

    def _compare(self, part: Part, theirs: object) -> None:
        if self._own(part) == theirs:
            self._differs.pop(part, None)
        else:
            self._differs[part] = theirs

    def _limit(self) -> None:
        if len(self._differs) > MAX_DIFFERENCES and not self.uncompared:
            self.begin()

    def _own(self, part: Part) -> object:
        """Our value of the part, as it stands in the state that workers load."""
        cluster, (kind, key) = self._cluster, part
        if kind is POD:
            placed = cluster.pods.get(key)
            is_there = placed is not None and placed.node in cluster.nodes
            return (placed.node, placed.load, placed.key, placed.started) if placed is not None and is_there else None
        if kind is NODE:
            return cluster.nodes.get(key)
        if kind is NOMINATION:
            nominated = cluster.nominator.get(key)
            return None if nominated is None else (nominated.node, nominated.load, nominated.key)
        return cluster.objects.get(ObjectKind(kind), key)

    def _own_parts(self, shards: Collection[int], *, others: bool) -> Iterator[Part]:
        cluster = self._cluster
        for node in cluster.nodes:
            if shard_of(node.name, self._shard_count) in shards:
                yield NODE, node.name
                yield from ((POD, uid) for uid in cluster.pods.on_node(node.name))
        if not others:
            return
        yield from ((NOMINATION, uid) for uid, _ in cluster.nominator)
        yield from ((kind_of(each).value, key_of(each)) for each in cluster.objects.all())

    def _as_change(self, part: Part, loads: Loads) -> Change:
        cluster, (kind, key) = self._cluster, part
        if kind is POD:
            placed = cluster.pods.get(key)
            is_there = placed is not None and placed.node in cluster.nodes
            return placed.placed(key, loads) if placed is not None and is_there else PodGone(key)
        if kind is NODE:
            node = cluster.nodes.get(key)
            return NodeRemoved(key) if node is None else NodeUpserted(node)
        if kind is NOMINATION:
            nominated = cluster.nominator.get(key)
            return NominationGone(key) if nominated is None else nominated.nominated(key, loads)
        obj = cluster.objects.get(ObjectKind(kind), key)
        return ObjectRemoved(ObjectKind(kind), key) if obj is None else ObjectUpserted(obj)


def _said(change: Change, loads: Sequence[PodLoad]) -> Iterator[tuple[Part, object]]:
    """The part that this changes, and the value; without loads, values have no meaning."""
    match change:
        case PodPlaced(uid=uid, node=node, load=number, key=key, started=started):
            yield (POD, uid), (node, loads[number] if loads else None, key, started)
        case PodGone(uid=uid):
            yield (POD, uid), None
        case NodeUpserted(node=shown):
            yield (NODE, shown.name), shown
        case NodeRemoved(name=name):
            yield (NODE, name), None
        case ObjectUpserted(object=obj):
            yield (kind_of(obj).value, key_of(obj)), obj
        case ObjectRemoved(kind=kind, key=key):
            yield (kind.value, key), None
        case PodNominated(uid=uid, node=node, load=number, key=key):
            yield (NOMINATION, uid), (node, loads[number] if loads else None, key)
        case NominationGone(uid=uid):
            yield (NOMINATION, uid), None


def _parts_of(state: State) -> Iterator[tuple[Part, object]]:
    for each in state.nodes:
        name = each.node.name
        yield (NODE, name), each.node
        for uid, pod in each.pods.items():
            yield (POD, uid), (name, state.loads[pod.load], pod.key, pod.started)
    for nominated in state.nominations:
        yield (NOMINATION, nominated.uid), (nominated.node, state.loads[nominated.load], nominated.key)
    for obj in state.objects:
        yield (kind_of(obj).value, key_of(obj)), obj
