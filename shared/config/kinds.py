"""What a field of a configuration may hold: reading it strictly, filling in what is absent, and writing it back.

A kind reads one plain value (of JSON or YAML) and collects what is wrong instead of stopping. An absent value has a
zero, as in the API's types: the empty text, 0, no list (None).
"""

import base64
import binascii
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final

from shared.config.durations import Duration, format_duration, parse_duration
from shared.config.problems import Fault, Problem, invalid

SIGNIFICANT_FLOAT32: Final = 9


@dataclass(slots=True)
class Reading:
    """What is collected while a file is read. `internal`: its fields have the names of kube-scheduler's own types."""

    internal: bool = False
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, path: str, value: object, allowed: str) -> None:
        self.problems.append(invalid(path, value, allowed))


class Kind(ABC):
    """What may stand in a field."""

    zero: Any = None

    @abstractmethod
    def read(self, value: object, path: str, reading: Reading) -> Any:
        """The value that is not null; where it is wrong, a problem is collected and the zero given."""

    def read_null(self, path: str, reading: Reading) -> Any:
        """What null leaves: nothing at all, mostly."""
        return self.fresh_zero()

    def fresh_zero(self) -> Any:
        return self.zero

    def is_empty(self, value: Any) -> bool:
        """Whether an optional field of this value is left out when it is written."""
        return not value

    def written(self, value: Any) -> object:
        """The value as v1 writes it."""
        return value

    def settled(self, value: Any) -> Any:
        """The value with the zero in place of what was not given, wherever the difference ends with the defaults."""
        return value

    def capitalised(self, value: Any) -> object:
        """The value as kube-scheduler shows it in its errors: under the names of its own types."""
        return self.written(value)


class Text(Kind):
    zero = ""

    def read(self, value: object, path: str, reading: Reading) -> str:
        if isinstance(value, str):
            return value
        reading.refuse(path, value, "must be a text (in quotes where YAML would take it for something else)")
        return ""


class Bool(Kind):
    zero = False

    def read(self, value: object, path: str, reading: Reading) -> bool:
        if isinstance(value, bool):
            return value
        reading.refuse(path, value, "must be true or false")
        return False


class Int(Kind):
    zero = 0

    def __init__(self, bits: int) -> None:
        self._least, self._most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(self, value: object, path: str, reading: Reading) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and self._least <= value <= self._most:
            return value
        reading.refuse(path, value, f"must be a whole number from {self._least} to {self._most}")
        return 0


class Float32(Kind):
    zero = 0

    def read(self, value: object, path: str, reading: Reading) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return _nearest_float32(float(value))
            except OverflowError:
                pass
        reading.refuse(path, value, "must be a number of 32 bits")
        return 0


class DurationKind(Kind):
    zero = Duration(0)

    def read(self, value: object, path: str, reading: Reading) -> Duration:
        if isinstance(value, str):
            try:
                return parse_duration(value)
            except ValueError as wrong:
                reading.refuse(path, value, str(wrong))
                return Duration(0)
        reading.refuse(path, value, 'must be a duration in quotes or with a unit, like "15s"')
        return Duration(0)

    def read_null(self, path: str, reading: Reading) -> Duration:
        reading.refuse(path, None, 'must be a duration like "15s"; leave the field out for its default')
        return Duration(0)

    def written(self, value: Any) -> object:
        return None if value is None else format_duration(value)


class Bytes(Kind):
    """Base64 in the file."""

    def read(self, value: object, path: str, reading: Reading) -> bytes:
        if isinstance(value, str):
            try:
                return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
            except (binascii.Error, ValueError):
                pass
        # What was written may be a key, so it is not shown.
        reading.refuse(path, "(hidden)", "must be base64")
        return b""

    def written(self, value: Any) -> object:
        return None if value is None else base64.b64encode(value).decode()


class ListOf(Kind):
    def __init__(self, item: Kind) -> None:
        self.item = item

    def read(self, value: object, path: str, reading: Reading) -> list[Any] | None:
        if not isinstance(value, list | tuple):
            reading.refuse(path, value, "must be a list")
            return None
        return [
            self.item.read_null(f"{path}[{i}]", reading)
            if item is None
            else self.item.read(item, f"{path}[{i}]", reading)
            for i, item in enumerate(value)
        ]

    def written(self, value: Any) -> object:
        return None if value is None else [self.item.written(item) for item in value]

    def settled(self, value: Any) -> Any:
        return None if value is None else [self.item.settled(item) for item in value]

    def capitalised(self, value: Any) -> object:
        return None if value is None else [self.item.capitalised(item) for item in value]


class MapOf(Kind):
    """A map with keys of the file's choice."""

    def __init__(self, item: Kind) -> None:
        self._item = item

    def read(self, value: object, path: str, reading: Reading) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            reading.refuse(path, value, "must be a map")
            return None
        report_repeated(value, path, reading)
        return {
            str(key): self._item.read_null(f"{path}.{key}", reading)
            if item is None
            else self._item.read(item, f"{path}.{key}", reading)
            for key, item in value.items()
        }


class Raw(Kind):
    """Anything, as it is; kube-scheduler's own types have no way to read it."""

    def read(self, value: object, path: str, reading: Reading) -> object:
        if reading.internal:
            reading.refuse(path, value, "cannot be read in this version; use kubescheduler.config.k8s.io/v1")
            return None
        return value


def report_repeated(value: dict[Any, Any], path: str, reading: Reading) -> None:
    """A problem for each key that a JSON map has twice."""
    for key in getattr(value, "repeated", ()):
        reading.problems.append(Problem(child(path, key), Fault.INVALID, key, "is given twice"))


def child(path: str, key: str) -> str:
    """The path of a field under a path; at the top of the file the path is empty."""
    return f"{path}.{key}" if path else key


def _nearest_float32(value: float) -> float:
    nearest = struct.unpack("f", struct.pack("f", value))[0]
    for digits in range(1, SIGNIFICANT_FLOAT32 + 1):
        short = float(f"{nearest:.{digits}g}")
        if struct.unpack("f", struct.pack("f", short))[0] == nearest:
            return short
    return float(nearest)
