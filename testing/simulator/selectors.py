"""Label and field selectors, as query strings and in objects."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testing.simulator.errors import ApiError, bad_request
from testing.simulator.resources import Object, Resource
from testing.simulator.store import Item

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]
FieldTest = Callable[[Item], bool]

_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(r"([^\s=!<>]+)\s*(==|=|!=|>|<)\s*([^\s=!<>]*)")
_EXISTS = re.compile(r"(!?)\s*([^\s=!<>(),]+)")
_FIELD = re.compile(r"([^=!]+)(==|=|!=)(.*)")
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


def select(resource: Resource, namespace: str | None, query: Mapping[str, str], name: str | None = None) -> Selection:
    labels = query.get("labelSelector", "")
    fields = query.get("fieldSelector", "")
    tests = _field_tests(resource, labels, fields) if fields else ()
    if name is not None:
        tests = (*tests, lambda item: item.name == name)
    return Selection(namespace, parse_labels(labels) if labels else (), tests)


def parse_labels(text: str) -> tuple[LabelTest, ...]:
    return tuple(_label_test(term.strip(), text) for term in _TERMS.split(text) if term.strip())


def _label_test(term: str, text: str) -> LabelTest:
    if match := _SET.fullmatch(term):
        key, operator, listed = match.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _COMPARED.fullmatch(term):
        key, operator, value = match.groups()
        return _comparison(key, operator, value, text)
    if match := _EXISTS.fullmatch(term):
        absent, key = match.groups()
        if absent:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise _unparsable(text)


def _comparison(key: str, operator: str, value: str, text: str) -> LabelTest:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    try:
        bound = int(value)
    except ValueError:
        raise _unparsable(text) from None
    if operator == ">":
        return lambda labels: _integer(labels.get(key), bound) > bound
    return lambda labels: _integer(labels.get(key), bound) < bound


def selector_test(selector: Object) -> LabelTest:
    """A test for a selector in an object; an empty selector matches all labels."""
    wanted: Labels = selector.get("matchLabels") or {}
    tests = [_expression_test(expression) for expression in selector.get("matchExpressions") or ()]

    def fits(labels: Labels) -> bool:
        return all(labels.get(key) == value for key, value in wanted.items()) and all(test(labels) for test in tests)

    return fits


def _expression_test(expression: Object) -> LabelTest:
    key = expression.get("key") or ""
    values = frozenset(expression.get("values") or ())
    match expression.get("operator"):
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case operator:
            raise bad_request(f"{operator!r} is not a valid label selector operator")


def _integer(value: str | None, otherwise: int) -> int:
    try:
        return otherwise if value is None else int(value)
    except ValueError:
        return otherwise


def _unparsable(text: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def _field_tests(resource: Resource, labels: str, text: str) -> tuple[FieldTest, ...]:
    return tuple(_field_test(resource, term, labels, text) for term in text.split(",") if term.strip())


def _field_test(resource: Resource, term: str, labels: str, text: str) -> FieldTest:
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
