"""Nodes."""

from msgspec import field

from shared.errors import InvalidObject
from shared.model.affinity import Taint
from shared.model.base import ApiStruct, Named
from shared.model.pod import ResourceList

UNNAMED = "(unnamed)"


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)


class ContainerImage(ApiStruct, frozen=True, kw_only=True):
    """An image that is present on a node, under all its names."""

    names: list[str] = field(default_factory=list)
    size_bytes: int = 0


class NodeCondition(ApiStruct, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    allocatable: ResourceList = field(default_factory=dict)
    images: list[ContainerImage] = field(default_factory=list)
    conditions: list[NodeCondition] = field(default_factory=list)
    declared_features: list[str] = field(default_factory=list)


class Node(Named, frozen=True, kw_only=True):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


def validate_node(node: Node) -> None:
    """Raise InvalidObject if the node has no name.

    Everything else is valid, as in kube-scheduler: a node without allocatable resources has room for no pod.
    """
    if not node.metadata.name:
        raise InvalidObject("Node", UNNAMED, "metadata.name", "must not be empty")
