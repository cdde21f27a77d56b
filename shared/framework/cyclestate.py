"""What the plugins of one profile worked out about one pod (or one class of equal pods) before looking at nodes."""

from typing import Any

from shared.cluster.objects import ClusterObjects
from shared.model.objects import Pod


class CycleState:
    """Each plugin keeps its own state under its own name; a plugin in a skip set is not run at that point.

    `objects`: what the cluster has beside nodes and pods. `summaries`: the merged ones, by plugin; `late`: those of
    feasible nodes only. `activated`: uids of pods that are to be tried again, whatever they wait for; a binding plugin
    may add to it, and it counts once the pod at hand has its permits, or is bound.
    """

    __slots__ = ("activated", "late", "objects", "pod", "skip_filter", "skip_score", "states", "summaries")

    def __init__(self, pod: Pod, objects: ClusterObjects | None = None) -> None:
        self.pod = pod
        self.objects = ClusterObjects() if objects is None else objects
        self.states: dict[tuple[str, str], Any] = {}
        self.summaries: dict[str, Any] = {}
        self.late: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.activated: set[str] = set()

    def write(self, plugin: str, key: str, value: Any) -> None:
        self.states[plugin, key] = value

    def read(self, plugin: str, key: str) -> Any:
        """None when nothing was written, as when a plugin's preparing point is switched off."""
        return self.states.get((plugin, key))
