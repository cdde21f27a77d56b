"""What a snapshot holds, for tests of commands that ask for it."""

from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.ledger import BINDING_WINDOW
from shared.messages.state import Assignment, LedgerEntry
from shared.model.load import load_of
from testing.builders import node, pod

SMALL = pod("small").request(cpu="500m", memory="1Gi").build()


class Held:
    """What a snapshot holds."""

    def __init__(self, *names: str) -> None:
        self.cluster = ClusterState(1, [])
        self.cluster.seq = 5
        self.nodes, self.pods, self.ledger = self.cluster.nodes, self.cluster.pods, self.cluster.ledger
        for name in names:
            self.nodes.upsert(node(name).capacity(cpu=4, memory="8Gi", pods=110).build())

    def put(self, name: str, where: str, *, assumed: bool = False, uid: str = "") -> None:
        self.pods.put(uid or f"uid-{name}", where, load_of(SMALL), f"shop/{name}", assumed=assumed)

    def assume(self, name: str, where: str, at: float = 990.0, deadline: float = 1020.0, uid: str = "") -> None:
        uid = uid or f"uid-{name}"
        self.put(name, where, assumed=True, uid=uid)
        load, profile = load_of(SMALL), "default-scheduler"
        entry = LedgerEntry(Assignment(uid, "shop", name, profile, where), 7, load, 1, 1, deadline, 30.0, assumed_at=at)
        self.ledger.restore(entry)
        self.ledger.begin(deadline - BINDING_WINDOW)

    def nominate(self, name: str, where: str) -> None:
        self.cluster.nominator.observe(f"uid-{name}", where, load_of(SMALL), f"shop/{name}", 0.0)
