"""ImageLocality prefers nodes that already have the pod's images, the more so the larger and the more common they are.

Summary: how many nodes there are, and on how many of them each of the pod's images is. An image's size is that of the
first node that reported it; the snapshot sees to it that all nodes carry that size.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from flotilla.nodes import ABSENT, NodeColumn, NodeView
from flotilla.plugin import ClassState, Reads, ScorePlugin, Scores, StateKey, SummaryPlugin
from flotilla.results import MAX_NODE_SCORE
from shared.model.objects import Node, Pod
from shared.plugins.base import InTreePlugin

MIB = 1024 * 1024
LEAST = 23 * MIB
MAX_PER_CONTAINER = 1000 * MIB


def image_name(name: str) -> str:
    """With the default tag if none is given."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def pod_images(pod: Pod) -> list[str]:
    """The images of init containers, containers and image volumes; one that is used twice counts twice."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    volumes = (volume.image.reference for volume in pod.spec.volumes if volume.image is not None)
    return [image_name(image) for image in (*(c.image for c in containers), *volumes)]


class Counts(TypedDict):
    """How many nodes there are, and how many have each of the pod's images."""

    nodes: int
    images: dict[str, int]


@dataclass(frozen=True, slots=True)
class ImageSize(NodeColumn):
    image: str

    def value(self, node: Node) -> int:
        return next((image.size_bytes for image in node.status.images if self.image in image.names), ABSENT)


SUMMARY = StateKey[tuple[int, Counts]]("the shard's summary, with the version of the nodes")


class ImageLocality(InTreePlugin, SummaryPlugin[Counts, None], ScorePlugin):
    name = "ImageLocality"
    score_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        return tuple(sorted(pod_images(pod))), len(pod.spec.init_containers) + len(pod.spec.containers)

    def summarize(self, state: ClassState, nodes: NodeView) -> Counts:
        known = state.get(SUMMARY)
        if known is None or known[0] != nodes.nodes_version:
            images = {
                image: int(np.count_nonzero(nodes.of_nodes(ImageSize(image)) != ABSENT))
                for image in sorted(set(pod_images(state.pod)))
            }
            known = state[SUMMARY] = (
                nodes.nodes_version,
                Counts(nodes=int(np.count_nonzero(nodes.valid)), images=images),
            )
        return known[1]

    def merge(self, one: Counts, other: Counts) -> Counts:
        here, there = one["images"], other["images"]
        images = {image: here.get(image, 0) + there.get(image, 0) for image in sorted(here.keys() | there.keys())}
        return Counts(nodes=one["nodes"] + other["nodes"], images=images)

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        summary: Counts = state.summaries[self.name]
        present = np.zeros(len(nodes), dtype=np.int64)
        for image in pod_images(state.pod):
            if nodes_with_it := summary["images"].get(image, 0):
                spread = nodes_with_it / summary["nodes"]
                present += (np.maximum(nodes.of_nodes(ImageSize(image)), 0) * spread).astype(np.int64)
        containers = len(state.pod.spec.init_containers) + len(state.pod.spec.containers)
        most = MAX_PER_CONTAINER * containers
        bounded = np.where(present < LEAST, LEAST, np.minimum(present, most))
        return MAX_NODE_SCORE * (bounded - LEAST) // (most - LEAST)
