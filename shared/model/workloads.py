"""Namespaces, services and controllers that select pods, and disruption budgets."""

from msgspec import field

from shared.model.affinity import LabelSelector
from shared.model.base import ApiStruct, ClusterWide, Namespaced


class Namespace(ClusterWide, frozen=True, kw_only=True):
    """A namespace; affinity terms select it by its labels."""

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels


class MapSelectorSpec(ApiStruct, frozen=True, kw_only=True):
    """Labels that a pod must all have; without any, no pod matches."""

    selector: dict[str, str] = field(default_factory=dict)


class LabelSelectorSpec(ApiStruct, frozen=True, kw_only=True):
    """Conditions on the labels of pods."""

    selector: LabelSelector | None = None


class Service(Namespaced, frozen=True, kw_only=True):
    """A service and its pods."""

    spec: MapSelectorSpec = field(default_factory=MapSelectorSpec)


class ReplicationController(Namespaced, frozen=True, kw_only=True):
    """A replication controller and its pods."""

    spec: MapSelectorSpec = field(default_factory=MapSelectorSpec)


class ReplicaSet(Namespaced, frozen=True, kw_only=True):
    """A replica set and its pods."""

    spec: LabelSelectorSpec = field(default_factory=LabelSelectorSpec)


class StatefulSet(Namespaced, frozen=True, kw_only=True):
    """A stateful set and its pods."""

    spec: LabelSelectorSpec = field(default_factory=LabelSelectorSpec)


class PodDisruptionBudgetSpec(ApiStruct, frozen=True, kw_only=True):
    """The pods that the budget covers."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True, kw_only=True):
    """The rest of the budget; `disrupted_pods`: by name, when their disruption was counted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)


class PodDisruptionBudget(Namespaced, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
