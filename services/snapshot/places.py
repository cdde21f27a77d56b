"""Places: which pod is where, assumed or bound, by pod and by node."""

from collections.abc import Collection, ItemsView

import msgspec

from shared.cluster.load import PodLoad
from shared.errors import InvariantBroken
from shared.messages.loads import Loads
from shared.messages.state import PodPlaced, PodState


class Place(msgspec.Struct, gc=False):
    """`key`: `namespace/name`. `started`: Unix time, if that is known."""

    node: str
    load: PodLoad
    assumed: bool
    key: str = ""
    started: float | None = None

    def told(self, uid: str, loads: Loads) -> PodPlaced:
        return PodPlaced(uid, self.node, loads.number(self.load), self.key, self.started)

    def state(self, loads: Loads) -> PodState:
        return PodState(loads.number(self.load), self.key, self.started)


class Places:
    """A node need not be known: pods of a node that is gone are there again when it is.

    Equal loads are one object: a cluster has far fewer kinds of pods than pods.
    """

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._loads: dict[bytes, tuple[PodLoad, list[int]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def __getitem__(self, uid: str) -> Place:
        return self._places[uid]

    def get(self, uid: str) -> Place | None:
        return self._places.get(uid)

    def items(self) -> ItemsView[str, Place]:
        return self._places.items()

    def on_node(self, node: str) -> Collection[str]:
        return self._on_node.get(node, ())

    def put(
        self, uid: str, node: str, load: PodLoad, key: str = "", started: float | None = None, *, assumed: bool
    ) -> None:
        """Also for a pod that has another place: it leaves that."""
        if uid in self._places:
            self.take(uid)
        shared, users = self._loads.setdefault(msgspec.msgpack.encode(load), (load, [0]))
        users[0] += 1
        self._places[uid] = Place(node, shared, assumed, key, started)
        self._on_node.setdefault(node, {})[uid] = None

    def take(self, uid: str) -> None:
        place = self._places.pop(uid)
        key = msgspec.msgpack.encode(place.load)
        users = self._loads[key][1]
        users[0] -= 1
        if not users[0]:
            del self._loads[key]
        on_node = self._on_node[place.node]
        del on_node[uid]
        if not on_node:
            del self._on_node[place.node]

    def validate(self) -> None:
        indexed = {uid: node for node, uids in self._on_node.items() for uid in uids}
        if indexed != {uid: place.node for uid, place in self._places.items()}:
            raise InvariantBroken("the index of pods by node does not agree with the pods")
        if sum(users[0] for _, users in self._loads.values()) != len(self._places):
            raise InvariantBroken("the users of loads are not as many as the pods")
