"""What the watch says of nodes, and which of them get no further pod."""

from services.snapshot.events import Effect, Forgot, Opened, PodUnreadable, Problem
from services.snapshot.state.cluster_state import Cluster
from services.snapshot.state.nodes import bare_node
from shared.errors import ClusterError, FlotillaError, UnreadableObject
from shared.messages.loads import Loads
from shared.messages.queue import POD_GONE
from shared.model.objects import Node, validate_node


class NodeUpdates:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._pods = cluster.pods

    def seen(self, node: Node, problem: str = "") -> list[Effect]:
        """`problem`: a part of it could not be read, so it keeps its pods, and gets no further one."""
        try:
            validate_node(node)
        except FlotillaError as cause:
            return [Problem(cause)]
        effects = self._closing(node.name, problem)
        is_new = node.name not in self._nodes
        changes = self._nodes.see(node)
        if not changes:
            return effects
        loads = Loads()
        if is_new:
            changes += [self._pods[uid].told(uid, loads) for uid in sorted(self._pods.on_node(node.name))]
        return [*effects, *self._cluster.publish(changes, loads.items, writes=(node.name,))]

    def unreadable(self, name: str, problem: str) -> list[Effect]:
        """Nothing of it can be read: it is as it was last read, and closed."""
        return self.seen(self._nodes.reported(name) or bare_node(name), problem)

    def gone(self, name: str) -> list[Effect]:
        """Its pods stay known: they are there again when the node is."""
        if name not in self._nodes:
            return [Problem(ClusterError(f"Node {name}: metadata.name: no such node is known"))]
        return self._cluster.publish(self._nodes.drop(name, self._cluster.seq + 1), [])

    def close_for(self, pod: PodUnreadable) -> list[Effect]:
        """Nobody knows what this pod occupies: its node gets no further pod."""
        closed, reason = self._nodes.closed, f"pod {pod.key}: {pod.problem}"
        effects = self.reopen_for(pod.uid) if closed.node_of(pod.uid) != pod.node else []
        if closed.close_for(pod.uid, pod.node, reason):
            told = f"Node {pod.node} gets no further pod, as what is on it is unknown: {reason}"
            effects.append(Problem(UnreadableObject(told)))
        return [*effects, *self._show_again(pod.node)]

    def reopen_for(self, uid: str) -> list[Effect]:
        """What this pod occupies is known again, or nothing any more."""
        name = self._nodes.closed.open_for(uid)
        if not name or name in self._nodes.closed:
            return []
        free = Forgot(uid, f"{POD_GONE} from what kept node {name} closed")
        return [*self._show_again(name), free, Opened(name)]

    def _closing(self, name: str, problem: str) -> list[Effect]:
        if not problem:
            closed = self._nodes.closed
            was_closed = name in closed
            closed.open(name)
            return [Opened(name)] if was_closed and name not in closed else []
        if not self._nodes.closed.close(name, problem):
            return []
        return [Problem(UnreadableObject(f"Node {name}: {problem}; it gets no further pod until it can be read"))]

    def _show_again(self, name: str) -> list[Effect]:
        return self._cluster.publish(self._nodes.show_again(name), [], writes=(name,)) if name in self._nodes else []
