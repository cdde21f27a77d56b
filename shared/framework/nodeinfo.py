"""One node as a plain plugin sees it."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.model.load import PodLoad
from shared.model.objects import Node


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Amounts are in scheduler units: cpu in thousandths, everything else in whole units; "pods" counts pods."""

    node: Node
    pods: tuple[PodLoad, ...]
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
