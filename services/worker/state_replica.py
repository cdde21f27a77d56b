"""A worker's replica of the state of its shards, kept current by the snapshot's deltas.

    empty --state--> following --delta by delta--> following
                       |  ^
                       +--+ reload: a delta is lost or cannot be applied, or the epoch is new and does not go on here

Deltas that arrive early wait for the missing ones. The request for the whole state is repeated until it arrives.
"""

from collections import deque

from services.worker.table_builder import Kinds, TableBuilder
from shared.cluster.nodetable import NodeTable, shard_of
from shared.errors import MAX_REMEMBERED, FlotillaError, ProtocolError
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
from shared.model.shared_parts import NodeParts
from shared.runtime.unanswered import Unanswered, doubling
from shared.terms import Heard, Newest

GAP_PATIENCE = 0.25
"""Seconds to wait for a missing delta: longer than it takes on a busy machine, shorter than any deadline."""
RELOAD_PATIENCE = 1.0
"""Seconds until the state is requested again; doubled each time, until one has arrived."""
LONGEST_PATIENCE = 16.0
"""Seconds between two requests for the state, at most."""
MAX_EARLY_DELTAS = 1 << 14
"""Of more, the oldest are dropped: the requested state most likely includes them."""
STATE = "state"


class StateReplica:
    """The methods that take a message return whether to request the whole state now."""

    def __init__(self, shards: frozenset[int], shard_count: int) -> None:
        self.shards = shards
        self.shard_count = shard_count
        self.table = NodeTable()
        self.seq = 0
        self.loaded = False
        """Whether the state of all shards is here."""
        self.refused: deque[FlotillaError] = deque(maxlen=MAX_REMEMBERED)
        """Why messages were refused."""
        self._newest = Newest((0, 0))
        """The snapshot's term and the sequence number that its last heartbeat named."""
        self._epoch = 0
        """The term of the state."""
        self._time = 0.0
        """The Unix time by the snapshot's last heartbeat."""
        self._requests = Unanswered[str, bool](doubling(RELOAD_PATIENCE, LONGEST_PATIENCE))
        self._gap_ends: float | None = None
        """When a missing delta counts as lost. None while none is missing, or the state is requested."""
        self._early: dict[int, Delta] = {}
        self._parts = NodeParts()

    def with_shards(self, shards: frozenset[int], shard_count: int) -> "StateReplica":
        """An empty replica of other shards that follows the same snapshot leader."""
        replica = StateReplica(shards, shard_count)
        replica.refused, replica._epoch, replica._newest = self.refused, self._epoch, self._newest
        replica._time = self._time
        return replica

    @property
    def awaits_state(self) -> bool:
        """Whether the whole state is requested, and none that can be used has come since."""
        return bool(self._requests)

    def next_deadline(self) -> float | None:
        return self._requests.next_deadline() if self._gap_ends is None else self._gap_ends

    def request(self, now: float) -> bool:
        """Request the whole state."""
        self._gap_ends = None
        self._requests.sent(STATE, True, now)
        return True

    def take_delta(self, delta: Delta, now: float) -> bool:
        if self._is_old(delta.epoch, f"delta {delta.seq}"):
            return False
        reload = self._notice_epoch(delta.epoch, now)
        if self.loaded and delta.seq <= self.seq:
            return False
        self._early[delta.seq] = delta
        reload = self._catch_up(now) or reload
        if len(self._early) > MAX_EARLY_DELTAS:
            del self._early[min(self._early)]
            reload = reload or (not self._requests and self.request(now))
        return reload

    def take_heartbeat(self, heartbeat: Heartbeat, now: float) -> bool:
        heard = self._newest.hear((heartbeat.epoch, heartbeat.seq), now)
        if heard is Heard.OLD:
            self._is_old(heartbeat.epoch, "heartbeat")
            return False
        if heard is not Heard.REFUTED and self._goes_on(heartbeat):
            self._epoch, self.seq = heartbeat.epoch, heartbeat.seq
            self._follow(heartbeat.epoch, now)
        reload = self._notice_epoch(heartbeat.epoch, now)
        self._time = self.table.objects.devices.time = heartbeat.at
        if heard is Heard.REFUTED:
            self._start_over()
            reload = self.request(now)
        if self.loaded and heartbeat.seq > self.seq:
            self.await_missing(now)
        return reload

    def builder(self, state: State) -> TableBuilder:
        """Builds the table of this state, for `take_state`."""
        return TableBuilder(state, self.is_ours)

    def take_state(self, state: State, now: float, table: NodeTable | None = None) -> bool:
        """Takes the whole state, or refuses it and changes nothing. `table`: if it is built already."""
        if self._is_old(state.epoch, "state"):
            return False
        if self.loaded and state.epoch == self._epoch and state.seq <= self.seq:
            self._stop_waiting()
            return self._catch_up(now)  # nothing was missing, or Redis does not have it yet
        try:
            table = self.builder(state).build() if table is None else table
        except FlotillaError as cause:
            self.refused.append(cause)
            return False
        self._stop_waiting()
        table.objects.devices.time = self._time
        self._follow(state.epoch, now)
        self.table, self._epoch, self.seq, self.loaded = table, state.epoch, state.seq, True
        follow = range(state.seq + 1, state.seq + 1 + 2 * MAX_EARLY_DELTAS)
        self._early = {seq: d for seq, d in self._early.items() if seq in follow and d.epoch == state.epoch}
        return self._catch_up(now)

    def take_time(self, now: float) -> bool:
        if self._gap_ends is None or now < self._gap_ends:
            return bool(self._requests.due(now))
        if self.loaded:
            late = f"{len(self._early)} later ones wait" if self._early else "another process has seen it"
            self.refused.append(ProtocolError(f"delta {self.seq + 1}: seq: it has not come, and {late}"))
        return self.request(now)

    def await_missing(self, now: float) -> None:
        """Wait for a delta that exists and has not arrived; the whole state is requested if it does not come."""
        if self._gap_ends is None and not self._requests:
            self._gap_ends = now + GAP_PATIENCE

    def is_ours(self, node: str) -> bool:
        return shard_of(node, self.shard_count) in self.shards

    # Inside

    def _goes_on(self, heartbeat: Heartbeat) -> bool:
        """Whether a new snapshot leader continues the state that is here."""
        after = heartbeat.after_epoch, heartbeat.after_seq
        follows = 0 < self._epoch < heartbeat.epoch and after == (self._epoch, self.seq)
        return follows and self.loaded and not self._early

    def _is_old(self, epoch: int, what: str) -> bool:
        if epoch < self._epoch:
            self.refused.append(ProtocolError(f"{what} of epoch {epoch}, now {self._epoch}"))
            return True
        return False

    def _notice_epoch(self, epoch: int, now: float) -> bool:
        """Begins to follow a new snapshot leader: its whole state is loaded before anything is answered."""
        if epoch == self._epoch:
            return False
        first, self._epoch = self._epoch == 0, epoch
        self._follow(epoch, now)
        if first:
            return False
        self._start_over()
        return self.request(now)

    def _follow(self, epoch: int, now: float) -> None:
        if epoch > self._newest.position[0]:
            self._newest.hear((epoch, 0), now)

    def _start_over(self) -> None:
        self.loaded = False
        self._early.clear()

    def _stop_waiting(self) -> None:
        self._gap_ends = None
        self._requests.answered(STATE)

    def _catch_up(self, now: float) -> bool:
        """Applies the deltas that follow the state without a gap."""
        while self.loaded and (following := self._early.pop(self.seq + 1, None)) is not None:
            try:
                self.apply(following)
            except FlotillaError as cause:
                self.refused.append(cause)
                self.loaded = False
                return self.request(now)
        if self._early:
            self.await_missing(now)
        elif self.loaded:
            self._stop_waiting()
        return False

    def apply(self, delta: Delta) -> None:
        """Changes the state as the delta says; the caller knows that it follows."""
        kinds = Kinds(self.table, delta.loads)
        for change in delta.changes:
            self._apply_change(change, kinds)
        self.seq = delta.seq

    def _apply_change(self, change: Change, kinds: Kinds) -> None:
        table = self.table
        match change:
            case PodPlaced(uid=uid, node=node, load=load, key=key, started=started):
                if node in table:
                    table.add_pod(uid, node, kinds.kind(load), key, started)
                elif table.node_of(uid) is not None:
                    table.remove_pod(uid)
            case PodGone(uid=uid):
                if table.node_of(uid) is not None:
                    table.remove_pod(uid)
            case NodeUpserted(node=node_object):
                if self.is_ours(node_object.name):
                    table.upsert_node(self._parts.shared(node_object))
            case NodeRemoved(name=name):
                if name in table:
                    table.remove_node(name)
            case ObjectUpserted(object=obj):
                table.upsert_object(obj)
            case ObjectRemoved(kind=kind, key=key):
                table.remove_object(kind, key)
            case PodNominated():
                self._nominate(table, change, kinds)
            case NominationGone(uid=uid):
                table.denominate(uid)
            case SharedHostnames(values=values):
                table.set_shared_hostnames(values)

    def _nominate(self, table: NodeTable, nominated: PodNominated, kinds: Kinds) -> None:
        """A nomination to a node of another shard only ends the pod's nomination here."""
        uid, node = nominated.uid, nominated.node
        if self.is_ours(node):
            table.nominate(uid, node, kinds.kind(nominated.load).load, nominated.key)
        else:
            table.denominate(uid)
