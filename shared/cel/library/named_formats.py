"""`format.dns1123Label()` and the like: formats of names that strings are validated against."""

import re
from collections.abc import Callable
from datetime import date

from shared.cel import types
from shared.cel.declarations import Overload, member
from shared.cel.library.urls import uri_problem
from shared.cel.types import NAMED_FORMAT, STRING
from shared.cel.values import NONE, NamedFormat, OptionalValue, Value

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_LABEL_LENGTH = 63


def _mismatch(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{each}', " for each in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(most: int, text: str) -> list[str]:
    return [f"must be no more than {most} characters"] if len(text.encode(errors="replace")) > most else []


def _matching(pattern: str, most: int, message: str, *examples: str) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        found = _too_long(most, text)
        return found if re.fullmatch(pattern, text) else [*found, _mismatch(message, pattern, *examples)]

    return problems


_subdomain = _matching(
    _SUBDOMAIN,
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    "example.com",
)
_old_label = _matching(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    _LABEL_LENGTH,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    "my-name",
    "abc-123",
)
_label_value = _matching(
    f"({_NAME})?",
    _LABEL_LENGTH,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345",
)
_wrong_label = _matching(
    _LABEL,
    _LABEL_LENGTH,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    "my-name",
    "123-abc",
)
_NAME_PROBLEM = _mismatch(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _NAME,
    "MyName",
    "my.name",
    "123-abc",
)


def _label(text: str) -> list[str]:
    if re.fullmatch(_SUBDOMAIN, text) and not re.fullmatch(_LABEL, text):
        return [*_too_long(_LABEL_LENGTH, text), "must not contain dots"]
    return _wrong_label(text)


def _as_prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """For the start of a name, which may end with a dash."""
    return lambda text: problems(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_NAME_PROBLEM} {prefix}"]
    problems: list[str] = []
    for prefix in prefixes:
        found = _subdomain(prefix) if prefix else ["must be non-empty"]
        problems += [f"prefix part {each}" for each in found]
    if not name:
        problems.append("name part must be non-empty")
    problems += [f"name part {each}" for each in _too_long(_LABEL_LENGTH, name)]
    if not re.fullmatch(_NAME, name):
        problems.append(f"name part {_NAME_PROBLEM}")
    return problems


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    year, month, day = map(int, text.split("-"))
    try:
        date(year or 4, month, day)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, letter, time = text.lower().partition("t")
    match = _TIME.fullmatch(time.partition("t")[0])
    if len(text) < 4 or not letter or match is None or not _is_date(day):
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _holds(test: Callable[[str], bool], otherwise: str) -> Callable[[str], list[str]]:
    return lambda text: [] if test(text) else [otherwise]


FORMATS: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _old_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _as_prefix(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _as_prefix(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _as_prefix(_old_label), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", lambda text: [problem] if (problem := uri_problem(text)) else [], 1103),
    "uuid": NamedFormat("uuid", _holds(lambda text: bool(_UUID.fullmatch(text)), "does not match the UUID format"), 70),
    "byte": NamedFormat("byte", _holds(lambda text: bool(_BASE64.fullmatch(text)), "invalid base64"), 84),
    "date": NamedFormat("date", _holds(_is_date, "invalid date"), 71),
    "datetime": NamedFormat("datetime", _holds(_is_datetime, "invalid datetime"), 71),
}


def _validate(expected: NamedFormat, text: str) -> Value:
    problems = expected.problems(text)
    return OptionalValue(list(problems)) if problems else NONE


def _constant(name: str, value: NamedFormat) -> Overload:
    return Overload(f"format.{name}", f"format.{name}", [], NAMED_FORMAT, lambda: value)


_PROBLEMS = types.optional_of(types.list_of(STRING))
_OPTIONAL_FORMAT = types.optional_of(NAMED_FORMAT)
_OPTIONAL_FORMATS = {name: OptionalValue(value) for name, value in FORMATS.items()}
FUNCTIONS = [
    member("validate", "format-validate", [NAMED_FORMAT, STRING], _PROBLEMS, _validate),
    Overload(
        "format.named", "format-named", [STRING], _OPTIONAL_FORMAT, lambda name: _OPTIONAL_FORMATS.get(name, NONE)
    ),
    *(_constant(name, value) for name, value in FORMATS.items()),
]
