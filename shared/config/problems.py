"""Describe what is wrong in a configuration file: path, kind, value, and what is allowed instead."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from shared.errors import InvalidConfig

LONGEST_VALUE: Final = 120
"""Characters of a value that a message shows."""


class Stage(StrEnum):
    """The stage at which a file fails; later ones do not run."""

    DECODE = "decode"
    VALIDATE = "validate"
    BUILD = "build"


class ErrorType(StrEnum):
    """Kinds of problems, by Kubernetes' names."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"


class Problem(NamedTuple):
    """One thing that is wrong; the reason says what is allowed."""

    path: str
    type: ErrorType
    value: object
    reason: str

    @property
    def message(self) -> str:
        """One printable line with the path."""
        text = f"{self.path}: {self.reason}" if self.path else self.reason
        return "".join(char if char.isprintable() else repr(char)[1:-1] for char in " ".join(text.split()))


class InvalidConfigFile(InvalidConfig):
    """A configuration that cannot be used: everything that is wrong at the stage where it fails.

    One line as a string, a line for each problem by `lines`.
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
        """A line for each problem, with the name of the file."""
        return [f"{self.source}: {message}" if self.source else message for message in self._messages()]

    def _messages(self) -> list[str]:
        return list(dict.fromkeys(problem.message for problem in self.problems))

    def within(self, source: str) -> "InvalidConfigFile":
        """The same with the name of the file."""
        return InvalidConfigFile(self.stage, self.problems, source)


def invalid(path: str, value: object, allowed: str) -> Problem:
    """The value is wrong; `allowed` says what it must be, and the value is appended."""
    return wrong(path, value, f"{allowed}, not {shown(value)}")


def wrong(path: str, value: object, reason: str) -> Problem:
    """The value is wrong for a reason that already names it, or does not need to."""
    return Problem(path, ErrorType.INVALID, value, reason)


def required(path: str, what: str) -> Problem:
    return Problem(path, ErrorType.REQUIRED, "", what)


def duplicate(path: str, value: object, what: str) -> Problem:
    return Problem(path, ErrorType.DUPLICATE, value, what)


def not_supported(path: str, value: object, supported: Sequence[str]) -> Problem:
    return Problem(path, ErrorType.NOT_SUPPORTED, value, f"must be one of {', '.join(supported)}, not {shown(value)}")


def forbidden(path: str, why: str) -> Problem:
    return Problem(path, ErrorType.FORBIDDEN, "", why)


def shown(value: object) -> str:
    """The value as JSON, cut where it is long."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
