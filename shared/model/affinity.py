"""Where a pod wants to run: selectors, affinity, spreading, taints and tolerations.

The fields `requiredDuringSchedulingIgnoredDuringExecution` and `preferredDuringSchedulingIgnoredDuringExecution` are
called `required` and `preferred` here.

Values that kube-scheduler compares and otherwise ignores are plain text: an unknown taint effect repels no pod, an
unknown toleration operator tolerates nothing, an unknown `whenUnsatisfiable` constrains nothing, an unknown inclusion
policy is not Honor. Operators of selectors are checked, because kube-scheduler reports an unknown one as an error.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, field

from shared.model.base import ApiStruct, BadField, Integer

LabelOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
NodeOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _check_requirement(key: str, operator: NodeOperator, values: Sequence[str]) -> None:
    if not key:
        raise BadField("key", "must not be empty")
    if operator in ("In", "NotIn"):
        if not values:
            raise BadField("values", f"must not be empty with operator {operator}")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise BadField("values", f"must be empty with operator {operator}")
    elif len(values) != 1:
        raise BadField("values", f"must have exactly one element with operator {operator}")


class LabelSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    key: str
    operator: LabelOperator
    values: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_requirement(self.key, self.operator, self.values)


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: list[LabelSelectorRequirement] = field(default_factory=list)


class NodeSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """One condition on the labels or fields of a node. The value of Gt and Lt need not be an integer to be accepted."""

    key: str
    operator: NodeOperator
    values: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_requirement(self.key, self.operator, self.values)


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """Conditions on a node that must all hold; a term without any matches no node.

    A field with several values is accepted here, and makes the term unparsable.
    """

    match_expressions: list[NodeSelectorRequirement] = field(default_factory=list)
    match_fields: list[NodeSelectorRequirement] = field(default_factory=list)

    def __post_init__(self) -> None:
        for index, requirement in enumerate(self.match_fields):
            where = f"matchFields[{index}]"
            if requirement.key != "metadata.name":
                raise BadField(f"{where}.key", f"must be metadata.name, not {requirement.key!r}")
            if requirement.operator not in ("In", "NotIn"):
                raise BadField(f"{where}.operator", f"must be In or NotIn, not {requirement.operator}")


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    node_selector_terms: list[NodeSelectorTerm] = field(default_factory=list)


class PreferredSchedulingTerm(ApiStruct, frozen=True, kw_only=True):
    weight: Integer
    preference: NodeSelectorTerm


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    required: NodeSelector | None = field(default=None, name=_REQUIRED)
    preferred: list[PreferredSchedulingTerm] = field(default_factory=list, name=_PREFERRED)


class PodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """Pods, in whose domain of `topology_key` a pod wants to be, or not to be."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = field(default_factory=list)
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = field(default_factory=list)
    mismatch_label_keys: list[str] = field(default_factory=list)


class WeightedPodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    weight: Integer
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiStruct, frozen=True, kw_only=True):
    """The pods that a pod wants near; as anti-affinity, the pods that it wants away."""

    required: list[PodAffinityTerm] = field(default_factory=list, name=_REQUIRED)
    preferred: list[WeightedPodAffinityTerm] = field(default_factory=list, name=_PREFERRED)


class Affinity(ApiStruct, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """How evenly to spread matching pods over the domains of `topology_key`."""

    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: Annotated[int, Meta(ge=1)] | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = field(default_factory=list)


class Taint(ApiStruct, frozen=True, kw_only=True):
    """Keeps pods that do not tolerate it off a node. Hashable; the time at which it was added is dropped."""

    key: str
    effect: str
    value: str = ""


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """The taints that a pod tolerates. An empty key means any key, an empty effect any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def __post_init__(self) -> None:
        if not self.key and self.operator != "Exists":
            raise BadField("operator", "must be Exists when key is empty, which means every key and value")
        if self.operator == "Exists" and self.value:
            raise BadField("value", "must be empty with operator Exists")


REPELLING = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods off; PreferNoSchedule only scores."""


_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")


def tolerates(toleration: Toleration, taint: Taint, *, compares: bool = False) -> bool:
    """Whether the toleration covers the taint. `compares`: the operators Lt and Gt compare integers, else never do."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator not in ("Lt", "Gt"):
        return toleration.operator in ("", "Equal") and toleration.value == taint.value
    bound, value = _integer(toleration.value), _integer(taint.value)
    if not compares or bound is None or value is None:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def _integer(text: str) -> int | None:
    """A decimal integer of 64 bits, without leading zeros or plus sign."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration], *, compares: bool = False) -> bool:
    return any(tolerates(toleration, taint, compares=compares) for toleration in tolerations)


def repel(taints: Iterable[Taint], tolerations: Sequence[Toleration], *, compares: bool = False) -> bool:
    """Whether any of the taints keeps a pod with these tolerations off. Other effects than REPELLING never do."""
    return any(
        taint.effect in REPELLING and not is_tolerated(taint, tolerations, compares=compares) for taint in taints
    )
