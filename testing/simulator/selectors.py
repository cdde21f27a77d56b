"""Label and field selectors, as query strings and in objects."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from testing.simulator.errors import bad_request
from testing.simulator.resources import ApiResource, Object
from testing.simulator.store import Item

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]
FieldTest = Callable[[Item], bool]

_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(r"([^\s=!<>]+)\s*(==|=|!=|>|<)\s*([^\s=!<>]*)")
_EXISTS = re.compile(r"(!?)\s*([^\s=!<>(),]+)")
_FIELD = re.compile(r"([^=!]+)(==|=|!=)(.*)")
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
"""Operators in objects, and the same in queries."""
_TERMS = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a type a request selects."""

    namespace: str | None
    labels: tuple[LabelTest, ...] = ()
    fields: tuple[FieldTest, ...] = ()

    @property
    def everything(self) -> bool:
        return self.namespace is None and not self.labels and not self.fields

    def matches(self, item: Item) -> bool:
        if self.namespace is not None and item.namespace != self.namespace:
            return False
        for field_test in self.fields:
            if not field_test(item):
                return False
        return all(test(item.labels) for test in self.labels)


def select(
    resource: ApiResource, namespace: str | None, query: Mapping[str, str], name: str | None = None
) -> Selection:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    field_tests = [_field_test(resource, term, labels, fields) for term in fields.split(",") if term.strip()]
    if name is not None:
        field_tests.append(lambda item: item.name == name)
    label_tests = [_requirement(term.strip(), labels) for term in _TERMS.split(labels) if term.strip()]
    return Selection(namespace, tuple(label_tests), tuple(field_tests))


def _requirement(term: str, text: str) -> LabelTest:
    """The test for one requirement of a label selector in a query."""
    if match := _SET.fullmatch(term):
        key, operator, listed = match.groups()
        return _label_test(key, operator, [value.strip() for value in listed.split(",")])
    if match := _EXISTS.fullmatch(term):
        absent, key = match.groups()
        return _label_test(key, absent or "exists", ())
    if match := _COMPARED.fullmatch(term):
        key, operator, value = match.groups()
        if operator not in (">", "<"):
            return _label_test(key, "notin" if operator == "!=" else "in", [value])
        with suppress(ValueError):
            sign, bound = (1 if operator == ">" else -1), int(value)
            return lambda labels: sign * _integer(labels.get(key), bound) > sign * bound
    raise bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def selector_test(selector: Object) -> LabelTest:
    """The test for a selector in an object; an empty selector matches all labels."""
    matched: Labels = selector.get("matchLabels") or {}
    tests = [_label_test(key, "in", [value]) for key, value in matched.items()]
    for each in selector.get("matchExpressions") or ():
        operator = each.get("operator")
        if operator not in _OPERATORS:
            raise bad_request(f"{operator!r} is not a valid label selector operator")
        tests.append(_label_test(each.get("key") or "", _OPERATORS[operator], each.get("values") or ()))
    return lambda labels: all(test(labels) for test in tests)


def _label_test(key: str, operator: str, values: Iterable[str]) -> LabelTest:
    known = frozenset(values)
    match operator:
        case "in":
            return lambda labels: labels.get(key) in known
        case "notin":
            return lambda labels: labels.get(key) not in known
        case "exists":
            return lambda labels: key in labels
    return lambda labels: key not in labels


def _integer(value: str | None, otherwise: int) -> int:
    try:
        return otherwise if value is None else int(value)
    except ValueError:
        return otherwise


def _field_test(resource: ApiResource, term: str, labels: str, text: str) -> FieldTest:
    match = _FIELD.fullmatch(term.strip())
    if match is None:
        raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
    label, operator, value = match.groups()
    wanted = operator != "!="
    if label == "metadata.name":
        return lambda item: (item.name == value) == wanted
    if label == "metadata.namespace":
        return lambda item: (item.namespace == value) == wanted
    index = resource.field_index.get(label)
    if index is None:
        asked = f"{resource.group}/{resource.version}, Resource={resource.plural}"
        raise bad_request(
            f'Unable to find "{asked}" that match label selector "{labels}", field selector "{text}": '
            f"field label not supported: {label}"
        )
    return lambda item: (item.fields[index] == value) == wanted
