"""Which PodDisruptionBudgets an eviction takes from."""

from collections.abc import Iterable

from shared.cluster.objects import ClusterObjects
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector, PodDisruptionBudget
from shared.model.selectors import label_selector_matches


def budgets_about(objects: ClusterObjects, load: PodLoad) -> list[PodDisruptionBudget]:
    """The budgets that cover a pod with this load, whether or not its disruption was counted in already."""
    in_namespace: Iterable[PodDisruptionBudget] = objects.disruption_budgets_in(load.namespace).values()
    return [budget for budget in in_namespace if _is_about(budget.spec.selector, load)]


def counts_already(budget: PodDisruptionBudget, pod_name: str) -> bool:
    """Whether the pod's disruption was counted in: its eviction takes nothing more."""
    return pod_name in budget.status.disrupted_pods


def _is_about(selector: LabelSelector | None, load: PodLoad) -> bool:
    """A budget without a selector, or with an empty one, is about no pod; and none is about a pod without labels."""
    if selector is None or not (selector.match_labels or selector.match_expressions) or not load.labels:
        return False
    return label_selector_matches(selector, load.labels)
