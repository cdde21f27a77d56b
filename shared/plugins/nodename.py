"""NodeName keeps a pod that names a node in its spec off every other node."""

from collections.abc import Hashable, Sequence

from flotilla.plugin import (
    Action,
    ClassState,
    FilterPlugin,
    NodeView,
    Pod,
    PodParts,
    Reads,
    Registration,
    Resource,
    unresolvable,
)

OTHER_NODE = unresolvable("node(s) didn't match the requested node name")


class NodeName(FilterPlugin):
    name = "NodeName"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.node_name

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (Registration(Resource.NODE, Action.ADD),)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        if state.pod.spec.node_name:
            nodes.reject(~nodes.named([state.pod.spec.node_name]), OTHER_NODE)
