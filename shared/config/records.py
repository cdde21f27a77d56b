"""Maps with fields of their own: reading them strictly, filling gaps, and writing them back."""

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from shared.config.kinds import Kind, Reading, child, report_repeated
from shared.config.problems import Fault, Problem


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    `given`: whether v1 tells an absent value (None) from the zero. `kept`: whether None lasts beyond the defaults.
    `always`: whether it is written even when empty. `internal`: its name in kube-scheduler's own types.
    """

    name: str
    kind: Kind
    given: bool = False
    kept: bool = False
    always: bool = False
    internal: str = ""

    @property
    def internal_name(self) -> str:
        return self.internal or self.name[0].upper() + self.name[1:]

    def absent(self, internal: bool) -> Any:
        nothing = self.kept if internal else self.given
        return None if nothing else self.kind.fresh_zero()

    def leaves_out(self, value: Any) -> bool:
        if self.always or (value is not None and (self.given or isinstance(self.kind, Record))):
            return False
        return value is None or self.kind.is_empty(value)


class Record(Kind):
    """A map with fields of its own; anything else in it is unknown.

    `headed`: has `apiVersion` and `kind` besides. `core`: is of Kubernetes' core, where field names are always those
    of the API.
    """

    def __init__(self, *fields: Field, headed: bool = False, core: bool = False) -> None:
        self.fields = fields
        self._core = core
        self._head = ("apiVersion", "kind") if headed else ()

    def read(self, value: object, path: str, reading: Reading) -> dict[str, Any]:
        if not isinstance(value, dict):
            reading.refuse(path, value, "must be a map")
            return self.fresh_zero()
        internal = reading.internal and not self._core
        by_name = {f.internal_name if internal else f.name: f for f in self.fields}
        report_repeated(value, path, reading)
        result = {f.name: f.absent(internal) for f in self.fields}
        for key, item in value.items():
            at = child(path, str(key))
            if known := by_name.get(key):
                result[known.name] = self._read_field(known, item, at, reading, internal)
            elif key not in self._head:
                reading.problems.append(unknown_field(at, key, [*by_name, *self._head]))
        return result

    def _read_field(self, field: Field, item: object, at: str, reading: Reading, internal: bool) -> Any:
        if item is not None:
            return field.kind.read(item, at, reading)
        if field.kept if internal else field.given:
            return None
        return field.kind.read_null(at, reading)

    def fresh_zero(self) -> dict[str, Any]:
        return {f.name: f.absent(False) for f in self.fields}

    def is_empty(self, value: Any) -> bool:
        return value is None

    def written(self, value: Any) -> object:
        if value is None:
            return None
        return {f.name: f.kind.written(value[f.name]) for f in self.fields if not f.leaves_out(value[f.name])}

    def settled(self, value: Any) -> Any:
        if value is None:
            return None
        return {f.name: f.kind.settled(_without_gap(f, value[f.name])) for f in self.fields}

    def capitalised(self, value: Any) -> object:
        if value is None or self._core:
            return self.written(value)
        return {f.internal_name: f.kind.capitalised(value[f.name]) for f in self.fields}


def _without_gap(field: Field, value: Any) -> Any:
    ends = field.given and not field.kept
    return field.kind.fresh_zero() if value is None and ends else value


class Marked(Kind):
    """A kind whose values remember where in the file they stood."""

    def __init__(self, kind: Kind, mark: Callable[[Any, str], Any]) -> None:
        self._kind, self._mark = kind, mark

    def read(self, value: object, path: str, reading: Reading) -> Any:
        return self._mark(self._kind.read(value, path, reading), path)

    def read_null(self, path: str, reading: Reading) -> Any:
        return self._mark(self._kind.read_null(path, reading), path)

    def written(self, value: Any) -> object:
        return self._kind.written(value)

    def settled(self, value: Any) -> Any:
        return self._mark(self._kind.settled(value), value.path)

    def capitalised(self, value: Any) -> object:
        return self._kind.capitalised(value)


def unknown_field(path: str, name: object, fields: Collection[str]) -> Problem:
    """A field that there is not, with the one that was meant, if one is near, and all that there are."""
    near = difflib.get_close_matches(str(name), fields, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return Problem(path, Fault.INVALID, name, f"unknown field{meant}; allowed are {', '.join(sorted(fields))}")
