"""One line for one cause: what several processes report at the same time is printed once, with who else reports it.

Four services that lose the API server say so within a second, each about a request of its own. People need one line.
"""

import re
from dataclasses import dataclass, field

from shared.bounded import BoundedDict

WINDOW = 30.0
"""Seconds in which the same cause is printed once."""
SETTLE = 1.0
"""Seconds until it is said who else reports it."""
MAX_CAUSES = 256
"""Causes remembered."""

_REPORT = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (?:WARNING|ERROR) +\S+: (?P<message>.*)")
_CHECK = re.compile(r"^(not ready: [\w-]+|[\w-]+ cannot be taken): ")
_REQUEST = re.compile(r"(https?://\S+?): [A-Z]+ \S.*?: ")
_NEXT = re.compile(r"; (trying again|listing again).*| \(and \d+ more like it\)")
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(slots=True)
class _Cause:
    text: str
    first: str
    at: float
    others: dict[str, None] = field(default_factory=dict)
    told: bool = False


class Causes:
    def __init__(self) -> None:
        self._known: BoundedDict[str, _Cause] = BoundedDict(MAX_CAUSES)

    def is_new(self, name: str, line: str, now: float) -> bool:
        """Whether to print this line of a process. Only warnings and errors are ever held back."""
        report = _REPORT.fullmatch(line)
        if report is None:
            return True
        text = cause_in(report["message"])
        key = _NUMBER.sub("#", text)
        known = self._known.get(key)
        if known is None or now >= known.at + WINDOW:
            self._known[key] = _Cause(text, name, now)
            return True
        if name != known.first:
            known.others[name] = None
        return False

    def due(self, now: float) -> list[str]:
        """Lines that say who else reports a cause."""
        found = []
        for cause in self._known.values():
            if cause.others and not cause.told and now >= cause.at + SETTLE:
                cause.told = True
                found.append(f"the same at {', '.join(cause.others)}: {cause.text}")
        return found


def cause_in(message: str) -> str:
    """Without the check that noticed it, the request that failed, and what is done about it."""
    return _NEXT.sub("", _REQUEST.sub(r"\1: ", _CHECK.sub("", message)))
