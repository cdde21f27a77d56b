"""The labels that the API server copies from its node to a pod when it is bound; decided pods get them at once.

So a pod that the watch shows bound changes nothing that workers have counted. It copies them since v1.35, unless its
feature gate PodTopologyLabelsAdmission is off: whether it does is learned from each pod that the watch confirms.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from services.snapshot.state.nodes import Nodes
from shared.model.load import PodLoad
from shared.model.wellknown import REGION, ZONE


class TopologyLabels:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._are_copied = False

    def added(self, load: PodLoad, node: str) -> PodLoad:
        """The load as the watch will show it once the pod is bound to this node."""
        copied = self._of(node) if self._are_copied else {}
        if not copied or copied.items() <= load.labels.items():
            return load
        return replace(load, labels=dict(sorted((load.labels | copied).items())))

    def learn(self, labels: Mapping[str, str], node: str) -> None:
        """A pod that was decided is shown bound to this node, with these labels."""
        copied = self._of(node)
        if copied:
            self._are_copied = copied.items() <= labels.items()

    def _of(self, node: str) -> dict[str, str]:
        known = self._nodes.reported(node)
        if known is None:
            return {}
        return {key: value for key in (ZONE, REGION) if (value := known.metadata.labels.get(key)) is not None}
