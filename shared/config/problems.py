"""What is wrong in a configuration file: every fault with its path, its value and what is allowed instead."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from shared.errors import InvalidConfig

LONGEST_VALUE: Final = 120
"""A value is shown up to this length."""


class Stage(StrEnum):
    """Where a file fails. What is wrong at a later stage is not looked for."""

    DECODE = "decode"
    VALIDATE = "validate"
    BUILD = "build"


class Fault(StrEnum):
    """The kinds of fault, by the names that Kubernetes has for them."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"


class Problem(NamedTuple):
    """One fault: where, of which kind, the value as it was taken, and a sentence that says what is allowed."""

    path: str
    type: Fault
    value: object
    reason: str

    @property
    def message(self) -> str:
        """One line that a person can act on; the value is in it unless the reason says all."""
        text = f"{self.path}: {self.reason}" if self.path else self.reason
        return "".join(char if char.isprintable() else repr(char)[1:-1] for char in " ".join(text.split()))


class InvalidConfigFile(InvalidConfig):
    """A configuration that cannot be used, with everything that is wrong at the stage where it fails.

    As a text it is one line, as services tell it; `lines` has a line for each fault.
    """

    def __init__(self, stage: Stage, problems: Sequence[Problem], source: str = "") -> None:
        self.stage = stage
        self.problems = tuple(problems)
        self.source = source
        first = self.problems[0]
        super().__init__(first.path, first.reason)
        messages = "; ".join(self._messages())
        self.args = (f"{source}: {messages}" if source else messages,)

    def lines(self) -> list[str]:
        """Each fault in a line with the name of the file."""
        return [f"{self.source}: {message}" if self.source else message for message in self._messages()]

    def _messages(self) -> list[str]:
        return list(dict.fromkeys(problem.message for problem in self.problems))

    def within(self, source: str) -> "InvalidConfigFile":
        """The same, of the file of this name."""
        return InvalidConfigFile(self.stage, self.problems, source)


def invalid(path: str, value: object, allowed: str) -> Problem:
    """The value cannot stand here; `allowed` goes on after "must" or the like and is followed by the value."""
    return Problem(path, Fault.INVALID, value, f"{allowed}, not {shown(value)}")


def required(path: str, what: str) -> Problem:
    """Nothing stands where something must."""
    return Problem(path, Fault.REQUIRED, "", what)


def duplicate(path: str, value: object, what: str) -> Problem:
    """The value stands somewhere else already."""
    return Problem(path, Fault.DUPLICATE, value, what)


def not_supported(path: str, value: object, supported: Sequence[str]) -> Problem:
    """The value is none of those that there are."""
    return Problem(path, Fault.NOT_SUPPORTED, value, f"must be one of {', '.join(supported)}, not {shown(value)}")


def forbidden(path: str, why: str) -> Problem:
    """Something stands where nothing may."""
    return Problem(path, Fault.FORBIDDEN, "", why)


def shown(value: object) -> str:
    """The value as JSON, cut short where it is long."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
