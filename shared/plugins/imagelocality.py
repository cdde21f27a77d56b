"""ImageLocality prefers nodes that already have the pod's images, the more so the larger and the more common they are.

Summary: how many nodes there are, and on how many of them each of the pod's images is. An image's size is that of the
first node that reported it; the snapshot sees to it that all nodes carry that size.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flotilla.results import MAX_NODE_SCORE
from shared.cluster.columns import ABSENT, NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import PodParts, Reads, ScorePlugin, SummaryPlugin
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Node, Pod

MIB = 1024 * 1024
LEAST = 23 * MIB
MOST_PER_CONTAINER = 1000 * MIB


def image_name(name: str) -> str:
    """With the tag that is meant when none is given."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def pod_images(pod: Pod) -> list[str]:
    """The images of init containers, containers and image volumes; one that is used twice counts twice."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    volumes = (volume.image.reference for volume in pod.spec.volumes if volume.image is not None)
    return [image_name(image) for image in (*(c.image for c in containers), *volumes)]


@dataclass(frozen=True, slots=True)
class ImageSize(NodeColumn):
    image: str

    def value(self, table: NodeTable, node: Node) -> int:
        return next((image.size_bytes for image in node.status.images if self.image in image.names), ABSENT)


class ImageLocality(SummaryPlugin, ScorePlugin):
    name = "ImageLocality"
    reads_of_pod = PodParts.TEMPLATE
    score_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return tuple(sorted(pod_images(pod))), len(pod.spec.init_containers) + len(pod.spec.containers)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def summarize(self, state: CycleState, table: NodeTable) -> Any:
        position, summary = state.read(self.name, "summary") or (-1, None)
        if position != table.node_log.position:
            images = {
                image: int(np.count_nonzero(table.columns.of_nodes(ImageSize(image)) != ABSENT))
                for image in sorted(set(pod_images(state.pod)))
            }
            summary = {"nodes": table.node_count, "images": images}
            state.write(self.name, "summary", (table.node_log.position, summary))
        return summary

    def merge(self, one: Any, other: Any) -> Any:
        here, there = one["images"], other["images"]
        images = {image: here.get(image, 0) + there.get(image, 0) for image in sorted(here.keys() | there.keys())}
        return {"nodes": one["nodes"] + other["nodes"], "images": images}

    def score(self, state: CycleState, view: NodeView) -> Scores:
        summary = state.summaries[self.name]
        present = np.zeros(len(view), dtype=np.int64)
        for image in pod_images(state.pod):
            if nodes_with_it := summary["images"].get(image, 0):
                spread = nodes_with_it / summary["nodes"]
                present += (np.maximum(view.of_nodes(ImageSize(image)), 0) * spread).astype(np.int64)
        containers = len(state.pod.spec.init_containers) + len(state.pod.spec.containers)
        most = MOST_PER_CONTAINER * containers
        bounded = np.where(present < LEAST, LEAST, np.minimum(present, most))
        return MAX_NODE_SCORE * (bounded - LEAST) // (most - LEAST)
