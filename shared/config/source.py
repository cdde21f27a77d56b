"""Source: where a setting's value may come from, and what is wrong with what was found there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from shared.config import values
from shared.config.settings import ApiSettings, Settings
from shared.errors import UserError


class InvalidSettings(UserError):
    """Everything that is wrong with what was given: in one line, or by `lines` in one each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))

    def lines(self) -> list[str]:
        return list(self.problems)


class Kind(StrEnum):
    """The places that values come from; a later one wins."""

    DEFAULT = "default"
    FILE = "file"
    VARIABLE = "variable"
    FLAG = "flag"


class Given(NamedTuple):
    """A value, and where it stands, as a person would name that: `--seed`, `FLOTILLA_SEED`, `flotilla.yaml: seed`."""

    value: object
    kind: Kind
    origin: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a field's value may come from. `secret`: it may stand in a file of its own, and a flag holds no password.

    `shown` is what anybody may see of a value.
    """

    field: str
    variable: str
    read: values.Reader
    flag: str = ""
    metavar: str = ""
    help: str = ""
    secret: bool = False
    shown: Callable[[str], str] = str

    @property
    def default(self) -> object:
        return getattr(Settings() if self.field in Settings.__dataclass_fields__ else ApiSettings(), self.field)

    @property
    def is_number(self) -> bool:
        return isinstance(self.default, int | float)

    @property
    def file_field(self) -> str:
        """In a settings file: names the file that a secret stands in."""
        return f"{self.field}_file"

    def in_force(self, settings: Settings) -> object:
        """The value in settings; for a secret one, what may be shown of it."""
        value = getattr(settings if self.field in Settings.__dataclass_fields__ else settings.api, self.field)
        return self.shown(value) if isinstance(value, str) else value


class Layer:
    """What one kind of place gives, and what is wrong with it."""

    def __init__(self, kind: Kind) -> None:
        self.given: dict[str, Given] = {}
        self.problems: list[str] = []
        self._kind = kind

    def put(self, field: str, value: object, origin: str) -> None:
        self.given[field] = Given(value, self._kind, origin)

    def take(self, source: Source, text: str, origin: str) -> None:
        """What the text says, or why it says nothing."""
        try:
            self.put(source.field, source.read(text), origin)
        except ValueError as error:
            self.refuse(origin, f"{error}, not {source.shown(text)!r}")

    def secret(self, path: str, origin: str) -> str:
        """What stands in the file; nothing where it cannot be read."""
        try:
            return values.secret_in_file(path)
        except ValueError as error:
            self.refuse(origin, str(error))
            return ""

    def refuse(self, origin: str, why: str) -> None:
        self.problems.append(f"{origin}: {why}")
