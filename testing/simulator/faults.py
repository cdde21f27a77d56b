"""Faults that a test asks for: the next requests that match fail, are late, or lose their connection."""

import re
from dataclasses import dataclass

from testing.simulator.errors import ApiError


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests whose method and path match."""

    method: str
    path: re.Pattern[str]
    times: int
    error: ApiError | None = None
    drops: bool = False
    seconds: float = 0.0
    after: bool = False
    """The request is carried out first: only its answer is lost."""
    as_of: int | None = None
    """A list or watch shows the state of this version first, and a watch then what happened since."""


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def fail(self, method: str, path: str, code: int = 500, *, times: int = 1, reason: str = "InternalError") -> Fault:
        """Answer with this status. `method` may be "*"; `path` is a regular expression that is searched for."""
        error = ApiError(code, reason, "a fault was asked for")
        return self._add(Fault(method, re.compile(path), times, error=error))

    def drop(self, method: str, path: str, *, times: int = 1, after: bool = False) -> Fault:
        """Close the connection without an answer; `after`: once the request has been carried out."""
        return self._add(Fault(method, re.compile(path), times, drops=True, after=after))

    def delay(self, method: str, path: str, seconds: float, *, times: int = 1) -> Fault:
        """Carry the request out later."""
        return self._add(Fault(method, re.compile(path), times, seconds=seconds))

    def show_past(self, path: str, version: int, *, times: int = 1) -> Fault:
        """Lists and watches are served as by a cache that is behind, whatever version they ask for."""
        return self._add(Fault("GET", re.compile(path), times, as_of=version))

    def end(self, fault: Fault) -> None:
        """It is over, however often it was to be met; nothing if it is over already."""
        self._faults = [each for each in self._faults if each is not fault]

    def clear(self) -> None:
        self._faults.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, if any; it is used up by one."""
        for fault in self._faults:
            if fault.method in ("*", method) and fault.path.search(path):
                fault.times -= 1
                if fault.times <= 0:
                    self.end(fault)
                return fault
        return None

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault
