"""Random histories of a cluster, and a slow model that says what each step must come to."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from shared.cluster.nodetable import NodeTable
from shared.errors import ClusterError
from shared.model.load import PodLoad, load_of
from shared.model.objects import Node, Pod
from testing.builders import node, pod

NAMES = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"]
UIDS = ["u1", "u2", "u3", "u4", "u5"]

EFFECTS: dict[str, str] = {
    "a": "NoSchedule",
    "b": "PreferNoSchedule",
    "c": "PreferNoSchedule",
    "d": "NoExecute",
}


@st.composite
def nodes(draw: st.DrawFn, names: st.SearchStrategy[str] | None = None) -> Node:
    built = node(draw(names or st.sampled_from(NAMES)))
    built = built.capacity(cpu=draw(st.sampled_from(["1", "2", "4"])), memory=draw(st.sampled_from(["1Gi", "4Gi"])))
    built = built.capacity(pods=draw(st.sampled_from([1, 3, 110])))
    if draw(st.booleans()):
        built = built.capacity({f"example.com/r{draw(st.integers(0, 6))}": draw(st.integers(1, 4))})
    for key in draw(st.sampled_from([[], [], ["b"], ["b", "c"], ["c", "b"], ["a"], ["a", "d"]])):
        built = built.taint(key, effect=EFFECTS[key])
    labels = {"zone": draw(st.sampled_from(["", "east", "west"])), "disk": draw(st.sampled_from(["", "5", "50"]))}
    built = built.label({key: value for key, value in labels.items() if value})
    for image in draw(st.sets(st.sampled_from(["web:1", "db:1"]))):
        built = built.image(image, draw(st.sampled_from([100 << 20, 900 << 20])))
    return (built.unschedulable() if draw(st.integers(0, 5)) == 5 else built).build()


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    built = pod("p").namespace(draw(st.sampled_from(["default", "other"])))
    built = built.label(app=draw(st.sampled_from(["web", "db"])))
    for resource in draw(st.sets(st.sampled_from(["cpu", "memory", "example.com/r1", "example.com/r9"]))):
        built = built.request({resource: {"cpu": "300m", "memory": "200Mi"}.get(resource, "1")})
    if draw(st.booleans()):
        built = built.host_port(draw(st.sampled_from([80, 81])), ip=draw(st.sampled_from(["", "10.0.0.1"])))
    return (built.terminating() if draw(st.integers(0, 3)) == 3 else built).build()


@dataclass(frozen=True)
class AddNode:
    node: Node


@dataclass(frozen=True)
class UpsertNode:
    node: Node


@dataclass(frozen=True)
class RemoveNode:
    name: str


@dataclass(frozen=True)
class AddPod:
    uid: str
    node: str
    load: PodLoad


@dataclass(frozen=True)
class RemovePod:
    uid: str


Step = AddNode | UpsertNode | RemoveNode | AddPod | RemovePod

_NAME, _UID, _LOAD = st.sampled_from(NAMES), st.sampled_from(UIDS), pods().map(load_of)

STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(UpsertNode, nodes()),
    st.builds(AddPod, _UID, _NAME, _LOAD),
    st.builds(AddNode, nodes()),
    st.builds(RemoveNode, _NAME),
    st.builds(RemovePod, _UID),
)


def apply(table: NodeTable, step: Step) -> None:
    match step:
        case AddNode(changed):
            table.add_node(changed)
        case UpsertNode(changed):
            table.upsert_node(changed)
        case RemoveNode(name):
            table.remove_node(name)
        case AddPod(uid, name, load):
            table.add_pod(uid, name, load)
        case RemovePod(uid):
            table.remove_pod(uid)


@dataclass
class Model:
    """The same cluster as two dictionaries."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[str, PodLoad]] = field(default_factory=dict)

    def apply(self, step: Step) -> type[ClusterError] | None:
        """The error that the step must end with; it then changes nothing."""
        fault = self._fault(step)
        if fault is None:
            self._change(step)
        return fault

    def rebuilt(self) -> NodeTable:
        """A table that was told the outcome only, and in another order."""
        table = NodeTable()
        for name in sorted(self.nodes, reverse=True):
            table.add_node(self.nodes[name])
        for uid, (name, load) in sorted(self.pods.items(), key=lambda item: item[0]):
            table.add_pod(uid, name, load)
        return table

    def _fault(self, step: Step) -> type[ClusterError] | None:
        match step:
            case AddNode(changed) if changed.name in self.nodes:
                return ClusterError
            case RemoveNode(name) if name not in self.nodes:
                return ClusterError
            case AddPod(_, name, _) if name not in self.nodes:
                return ClusterError
            case RemovePod(uid) if uid not in self.pods:
                return ClusterError
        return None

    def _change(self, step: Step) -> None:
        match step:
            case AddNode(changed) | UpsertNode(changed):
                self.nodes[changed.name] = changed
            case RemoveNode(name):
                del self.nodes[name]
                self.pods = {uid: placed for uid, placed in self.pods.items() if placed[0] != name}
            case AddPod(uid, name, load):
                self.pods[uid] = (name, load)
            case RemovePod(uid):
                del self.pods[uid]
