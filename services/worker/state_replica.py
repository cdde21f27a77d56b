"""Mirror: a worker's copy of the state of its shards, kept up by the snapshot's deltas.

    empty --state--> following --delta by delta--> following
                       |  ^
                       +--+ what is missing stays missing, cannot be applied, or is of a new epoch: reload

Deltas that come early wait for the missing ones. A whole state that was asked for and does not come is asked for again.
"""

from collections import deque
from collections.abc import Sequence

from shared.cluster.nodetable import LoadKind, NodeTable, shard_of
from shared.errors import MOST_REMEMBERED, FlotillaError, ProtocolError
from shared.messages.state import (
    Change,
    Delta,
    Heartbeat,
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

GAP_PATIENCE = 0.25
"""Seconds that a missing delta is waited for: longer than it takes on a busy machine, shorter than any deadline."""
RELOAD_PATIENCE = 1.0
"""Seconds that a state that was asked for is waited for; twice as long each time, until one has come."""
LONGEST_PATIENCE = 16.0
"""Seconds to wait for a requested state, at most."""
MOST_WAITING_DELTAS = 1 << 14
"""Of more, the oldest are dropped: a state that is under way most likely includes them."""


class Mirror:
    """The methods that take something tell whether the whole state is to be fetched now."""

    def __init__(self, shards: frozenset[int], shard_count: int) -> None:
        self.shards = shards
        self.shard_count = shard_count
        self.table = NodeTable()
        self.seq = 0
        self.loaded = False
        self.patience_ends: float | None = None
        self.refused: deque[FlotillaError] = deque(maxlen=MOST_REMEMBERED)
        self._epoch = 0
        self._reload_patience = RELOAD_PATIENCE
        self._reloading = False
        self._early: dict[int, Delta] = {}

    def start(self, now: float) -> bool:
        return self._reload(now)

    def with_shards(self, shards: frozenset[int], shard_count: int) -> "Mirror":
        """One of other shards, still empty, that remembers which leader it follows and what was refused."""
        mirror = Mirror(shards, shard_count)
        mirror.refused, mirror._epoch = self.refused, self._epoch
        return mirror

    def take_delta(self, delta: Delta, now: float) -> bool:
        if self._is_old(delta.epoch, f"delta {delta.seq}"):
            return False
        reload = self._notice_epoch(delta.epoch, now)
        if self.loaded and delta.seq <= self.seq:
            return False
        self._early[delta.seq] = delta
        reload = self._catch_up(now) or reload
        if len(self._early) > MOST_WAITING_DELTAS:
            del self._early[min(self._early)]
            reload = reload or (not self._reloading and self._reload(now))
        return reload

    def take_heartbeat(self, heartbeat: Heartbeat, now: float) -> bool:
        if self._is_old(heartbeat.epoch, "heartbeat"):
            return False
        reload = self._notice_epoch(heartbeat.epoch, now)
        if self.loaded and heartbeat.seq > self.seq:
            self.miss(now)
        return reload

    def take_state(self, state: State, now: float) -> bool:
        """Taken whole, or refused whole."""
        if self._is_old(state.epoch, "state"):
            return False
        if self.loaded and state.epoch == self._epoch and state.seq <= self.seq:
            self._reloading, self._reload_patience, self.patience_ends = False, RELOAD_PATIENCE, None
            return self._catch_up(now)  # nothing was missing, or it is not there yet
        try:
            table = self._build(state)
        except FlotillaError as cause:
            self.refused.append(cause)
            return False
        self._reloading, self._reload_patience = False, RELOAD_PATIENCE
        self.table, self._epoch, self.seq, self.loaded = table, state.epoch, state.seq, True
        self.patience_ends = None
        self._early = {seq: d for seq, d in self._early.items() if seq > state.seq and d.epoch == state.epoch}
        return self._catch_up(now)

    def take_time(self, now: float) -> bool:
        if self.patience_ends is None or now < self.patience_ends:
            return False
        if self.loaded and not self._reloading:
            late = f"{len(self._early)} later ones wait" if self._early else "another process has seen it"
            self.refused.append(ProtocolError(f"delta {self.seq + 1}: seq: it has not come, and {late}"))
        return self._reload(now)

    def miss(self, now: float) -> None:
        """Something that is known to exist has not come yet."""
        if self.patience_ends is None:
            self.patience_ends = now + GAP_PATIENCE

    def is_ours(self, node: str) -> bool:
        return shard_of(node, self.shard_count) in self.shards

    # Inside

    def _is_old(self, epoch: int, what: str) -> bool:
        if epoch < self._epoch:
            self.refused.append(ProtocolError(f"{what} of epoch {epoch}, now {self._epoch}"))
            return True
        return False

    def _notice_epoch(self, epoch: int, now: float) -> bool:
        """A new snapshot leader: its state is loaded whole, and nothing is answered before."""
        if epoch == self._epoch:
            return False
        first, self._epoch = self._epoch == 0, epoch
        if first:
            return False
        self.loaded = False
        self._early.clear()
        return self._reload(now)

    def _reload(self, now: float) -> bool:
        self.patience_ends = now + self._reload_patience
        self._reload_patience = min(2 * self._reload_patience, LONGEST_PATIENCE)
        self._reloading = True
        return True

    def _catch_up(self, now: float) -> bool:
        """Applies what has come in order."""
        while self.loaded and (following := self._early.pop(self.seq + 1, None)) is not None:
            try:
                self._apply(following)
            except FlotillaError as cause:
                self.refused.append(cause)
                self.loaded = False
                return self._reload(now)
        if self._early:
            self.miss(now)
        elif self.loaded:
            self.patience_ends = None
            self._reloading, self._reload_patience = False, RELOAD_PATIENCE
        return False

    def _apply(self, delta: Delta) -> None:
        kinds = _Kinds(self.table, delta.loads)
        for change in delta.changes:
            self._apply_change(change, kinds)
        self.seq = delta.seq

    def _apply_change(self, change: Change, kinds: "_Kinds") -> None:
        table = self.table
        match change:
            case PodPlaced(uid=uid, node=node, load=load, key=key, started=started):
                if node in table:
                    table.add_pod(uid, node, kinds.kind(load), key, started)
                elif table.place_of(uid) is not None:
                    table.remove_pod(uid)
            case PodGone(uid=uid):
                if table.place_of(uid) is not None:
                    table.remove_pod(uid)
            case NodeUpserted(node=node_object):
                if self.is_ours(node_object.name):
                    table.upsert_node(node_object)
            case NodeRemoved(name=name):
                if name in table:
                    table.remove_node(name)
            case ObjectUpserted(object=obj):
                table.objects.upsert(obj)
            case ObjectRemoved(kind=kind, key=key):
                table.objects.remove(kind, key)
            case PodNominated():
                self._nominate(table, change, kinds)
            case NominationGone(uid=uid):
                table.denominate(uid)
            case SharedHostnames(values=values):
                table.set_shared_hostnames(values)

    def _nominate(self, table: NodeTable, nominated: PodNominated, kinds: "_Kinds") -> None:
        """Other nodes are the business of others."""
        uid, node = nominated.uid, nominated.node
        if self.is_ours(node):
            table.nominate(uid, node, kinds.kind(nominated.load).load, nominated.key)
        else:
            table.denominate(uid)

    def _build(self, state: State) -> NodeTable:
        table = NodeTable()
        kinds = _Kinds(table, state.loads)
        for node_state in state.nodes:
            name = node_state.node.name
            if self.is_ours(name):
                table.add_node(node_state.node)
                for uid, pod in node_state.pods.items():
                    table.add_pod(uid, name, kinds.kind(pod.load), pod.key, pod.started)
        for obj in state.objects:
            table.objects.upsert(obj)
        for nominated in state.nominations:
            self._nominate(table, nominated, kinds)
        if state.shared_hostnames:
            table.set_shared_hostnames(state.shared_hostnames)
        return table


class _Kinds:
    """The loads of one message, as the table shares them."""

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
