"""How many pods may be disrupted."""

from msgspec import field

from shared.model.affinity import LabelSelector
from shared.model.base import ApiStruct
from shared.model.scope import Namespaced


class PodDisruptionBudgetSpec(ApiStruct, frozen=True, kw_only=True):
    """The pods that the budget is about."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True, kw_only=True):
    """What is left of the budget; `disrupted_pods`: by name, when their disruption was counted in already."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)


class PodDisruptionBudget(Namespaced, frozen=True, kw_only=True):
    """A budget of disruptions."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
