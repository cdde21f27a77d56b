"""A node affinity that a configuration adds to every pod."""

import re
from collections.abc import Iterator
from typing import Final

from shared.config.names import label_key_fault, label_value_fault
from shared.config.problems import Fault, Problem, not_supported
from shared.config.schema import Tree

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
OF_LABELS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
OF_FIELDS: Final = ("In", "NotIn")

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64_DIGITS: Final = 19


def affinity_problems(affinity: Tree, path: str) -> Iterator[Problem]:
    """Everything in a node affinity that could not be matched against a node, in the order of the file."""
    required = affinity[REQUIRED]
    for i, term in enumerate((required["nodeSelectorTerms"] if required else None) or ()):
        yield from _term_problems(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{i}]")
    for i, preferred in enumerate(affinity[PREFERRED] or ()):
        # A term of weight nought adds nothing, and kube-scheduler does not look into it.
        if preferred["weight"] != 0:
            yield from _term_problems(preferred["preference"], f"{path}.{PREFERRED}[{i}]")


def _term_problems(term: Tree, path: str) -> Iterator[Problem]:
    for i, requirement in enumerate(term["matchExpressions"] or ()):
        yield from _expression_problems(requirement, f"{path}.matchExpressions[{i}]")
    for i, requirement in enumerate(term["matchFields"] or ()):
        at = f"{path}.matchFields[{i}]"
        if requirement["operator"] not in OF_FIELDS:
            yield not_supported(f"{at}.operator", requirement["operator"], OF_FIELDS)
        elif len(requirement["values"] or ()) != 1:
            yield Problem(f"{at}.values", Fault.INVALID, requirement["values"], "must be exactly one value")


def _expression_problems(requirement: Tree, path: str) -> Iterator[Problem]:
    key, operator, values = requirement["key"], requirement["operator"], requirement["values"]
    if operator not in OF_LABELS:
        yield not_supported(f"{path}.operator", operator, OF_LABELS)
        return
    if fault := label_key_fault(key):
        yield Problem(f"{path}.key", Fault.INVALID, key, f"{key!r} is not a label key: {fault}")
    yield from _count_problems(operator, values, f"{path}.values")
    for i, value in enumerate(values or ()):
        if operator in ("Gt", "Lt") and not _is_int64(value):
            reason = f"{operator} needs a whole number, not {value!r}"
            yield Problem(f"{path}.values[{i}]", Fault.INVALID, value, reason)
    for i, value in enumerate(values or ()):
        if fault := label_value_fault(value):
            reason = f"{value!r} is not a label value: {fault}"
            yield Problem(f"{path}.values[{i}][{key}]", Fault.INVALID, value, reason)


def _count_problems(operator: str, values: list[str] | None, path: str) -> Iterator[Problem]:
    count = len(values or ())
    if operator in ("In", "NotIn") and not count:
        yield Problem(path, Fault.INVALID, values, f"{operator} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and count:
        yield Problem(path, Fault.INVALID, values, f"{operator} takes no values")
    if operator in ("Gt", "Lt") and count != 1:
        yield Problem(path, Fault.INVALID, values, f"{operator} needs exactly one value, not {count}")


def _is_int64(value: str) -> bool:
    digits = value.lstrip("+-").lstrip("0")
    # The length is bounded first: int() refuses texts of thousands of digits with an exception.
    if not _INTEGER.fullmatch(value) or len(digits) > _INT64_DIGITS:
        return False
    return int(digits or "0") <= 2**63 - (not value.startswith("-"))
