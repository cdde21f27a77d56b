"""A node affinity that a configuration adds to every pod: reading it, checking it, and turning it into the model's.

It is read into types of its own: the model's are for objects that an API server has checked, and refuse some of what
kube-scheduler lets pass in a configuration.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from shared.config.decoding import Int32, decode
from shared.config.names import label_key_fault, label_value_fault
from shared.errors import InvalidConfig
from shared.model.objects import NodeAffinity, dec_hook

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OF_LABELS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_OF_FIELDS: Final = ("In", "NotIn")
_NODE_NAME: Final = "metadata.name"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64_DIGITS: Final = 19


class PlainRequirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition as written, right or wrong."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class PlainTerm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Conditions as written."""

    match_expressions: list[PlainRequirement] = []
    match_fields: list[PlainRequirement] = []


class PlainSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Required terms as written."""

    node_selector_terms: list[PlainTerm] = []


class PlainPreferredTerm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A preferred term as written."""

    weight: Int32 = 0
    preference: PlainTerm = PlainTerm()


class PlainNodeAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node affinity as written: its fields are those of the API, its conditions may be wrong."""

    required: PlainSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[PlainPreferredTerm] = msgspec.field(default_factory=list, name=_PREFERRED)


def affinity_problems(affinity: PlainNodeAffinity, path: str) -> Iterator[InvalidConfig]:
    """Everything in a node affinity that could not be matched against a node, in the order of the file."""
    terms = affinity.required.node_selector_terms if affinity.required is not None else []
    for i, term in enumerate(terms):
        yield from _term_problems(term, f"{path}.{_REQUIRED}.nodeSelectorTerms[{i}]")
    for i, preferred in enumerate(affinity.preferred):
        # A term of weight nought adds nothing, and kube-scheduler does not look into it.
        if preferred.weight != 0:
            yield from _term_problems(preferred.preference, f"{path}.{_PREFERRED}[{i}]")


def model_affinity(affinity: PlainNodeAffinity, path: str) -> NodeAffinity:
    """The model's form of a node affinity in which `affinity_problems` finds nothing."""
    preferred = [term if term.weight else PlainPreferredTerm() for term in affinity.preferred]
    plain = PlainNodeAffinity(affinity.required, preferred)
    return decode(msgspec.to_builtins(plain), NodeAffinity, path, dec_hook)


def _term_problems(term: PlainTerm, path: str) -> Iterator[InvalidConfig]:
    for i, requirement in enumerate(term.match_expressions):
        yield from _expression_problems(requirement, f"{path}.matchExpressions[{i}]")
    for i, requirement in enumerate(term.match_fields):
        at = f"{path}.matchFields[{i}]"
        # kube-scheduler lets other keys pass here, but the API has no other field of a node to select by.
        if requirement.key != _NODE_NAME:
            yield InvalidConfig(f"{at}.key", f"must be {_NODE_NAME}, got {requirement.key!r}")
        if requirement.operator not in _OF_FIELDS:
            yield InvalidConfig(f"{at}.operator", _unsupported(requirement.operator, _OF_FIELDS))
        elif len(requirement.values) != 1:
            yield InvalidConfig(f"{at}.values", "must be exactly one value")


def _expression_problems(requirement: PlainRequirement, path: str) -> Iterator[InvalidConfig]:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator not in _OF_LABELS:
        yield InvalidConfig(f"{path}.operator", _unsupported(operator, _OF_LABELS))
        return
    if fault := label_key_fault(key):
        yield InvalidConfig(f"{path}.key", f"{key!r} is not a label key: {fault}")
    if operator in ("In", "NotIn") and not values:
        yield InvalidConfig(f"{path}.values", f"{operator} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        yield InvalidConfig(f"{path}.values", f"{operator} takes no values")
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield InvalidConfig(f"{path}.values", f"{operator} needs exactly one value")
        for i, value in enumerate(values):
            if not _is_int64(value):
                yield InvalidConfig(f"{path}.values[{i}]", f"{operator} needs an integer, got {value!r}")
    for i, value in enumerate(values):
        if fault := label_value_fault(value):
            yield InvalidConfig(f"{path}.values[{i}][{key}]", f"{value!r} is not a label value: {fault}")


def _is_int64(value: str) -> bool:
    digits = value.lstrip("+-").lstrip("0")
    # The length is bounded first: int() refuses texts of thousands of digits with an exception.
    if not _INTEGER.fullmatch(value) or len(digits) > _INT64_DIGITS:
        return False
    return int(digits or "0") <= 2**63 - (not value.startswith("-"))


def _unsupported(value: str, supported: tuple[str, ...]) -> str:
    return f"{value!r} is not supported, only {', '.join(supported)}"
