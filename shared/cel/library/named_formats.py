"""`format.dns1123Label()` and the like: formats of names that strings are validated against."""

import re
from collections.abc import Callable
from datetime import date

from shared.cel import types
from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.library.urls import uri_problem
from shared.cel.types import NAMED_FORMAT, STRING
from shared.cel.values import NONE, NamedFormat, OptionalValue, Value

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_OLD_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_NAME})?"
_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_OLD_LABEL_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_NAME_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character"
)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_LABEL_LENGTH, _SUBDOMAIN_LENGTH = 63, 253


def _mismatch(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{each}', " for each in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(most: int, text: str) -> list[str]:
    return [f"must be no more than {most} characters"] if len(text.encode(errors="replace")) > most else []


def _label(text: str) -> list[str]:
    problems = _too_long(_LABEL_LENGTH, text)
    if not re.fullmatch(_LABEL, text):
        if re.fullmatch(_SUBDOMAIN, text):
            problems.append("must not contain dots")
        else:
            problems.append(_mismatch(_LABEL_MESSAGE, _LABEL, "my-name", "123-abc"))
    return problems


def _subdomain(text: str) -> list[str]:
    problems = _too_long(_SUBDOMAIN_LENGTH, text)
    if not re.fullmatch(_SUBDOMAIN, text):
        problems.append(_mismatch(_SUBDOMAIN_MESSAGE, _SUBDOMAIN, "example.com"))
    return problems


def _old_label(text: str) -> list[str]:
    problems = _too_long(_LABEL_LENGTH, text)
    if not re.fullmatch(_OLD_LABEL, text):
        problems.append(_mismatch(_OLD_LABEL_MESSAGE, _OLD_LABEL, "my-name", "abc-123"))
    return problems


def _as_prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """For the start of a name, which may end with a dash."""
    return lambda text: problems(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        message = "a qualified name " + _mismatch(_NAME_MESSAGE, _NAME, "MyName", "my.name", "123-abc")
        return [message + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems: list[str] = []
    for prefix in prefixes:
        found = _subdomain(prefix) if prefix else ["must be non-empty"]
        problems += [f"prefix part {each}" for each in found]
    if not name:
        problems.append("name part must be non-empty")
    problems += [f"name part {each}" for each in _too_long(_LABEL_LENGTH, name)]
    if not re.fullmatch(_NAME, name):
        problems.append("name part " + _mismatch(_NAME_MESSAGE, _NAME, "MyName", "my.name", "123-abc"))
    return problems


def _label_value(text: str) -> list[str]:
    problems = _too_long(_LABEL_LENGTH, text)
    if not re.fullmatch(_LABEL_VALUE, text):
        problems.append(_mismatch(_LABEL_VALUE_MESSAGE, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return problems


def _uri(text: str) -> list[str]:
    problem = uri_problem(text)
    return [] if problem is None else [problem]


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
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _holds(lambda text: bool(_UUID.fullmatch(text)), "does not match the UUID format"), 70),
    "byte": NamedFormat("byte", _holds(lambda text: bool(_BASE64.fullmatch(text)), "invalid base64"), 84),
    "date": NamedFormat("date", _holds(_is_date, "invalid date"), 71),
    "datetime": NamedFormat("datetime", _holds(_is_datetime, "invalid datetime"), 71),
}


def _validate(expected: NamedFormat, text: str) -> Value:
    problems = expected.problems(text)
    return OptionalValue(list(problems)) if problems else NONE


def _named(name: str) -> Value:
    return OptionalValue(FORMATS[name]) if name in FORMATS else NONE


def _constant(value: NamedFormat) -> Callable[[], Value]:
    return lambda: value


FUNCTIONS: list[FunctionDeclaration] = [
    function(
        "validate",
        member("format-validate", [NAMED_FORMAT, STRING], types.optional_of(types.list_of(STRING)), _validate),
    ),
    function("format.named", overload("format-named", [STRING], types.optional_of(NAMED_FORMAT), _named)),
    *(
        function(f"format.{name}", overload(f"format.{name}", [], NAMED_FORMAT, _constant(value)))
        for name, value in FORMATS.items()
    ),
]
