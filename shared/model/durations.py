"""Read and write durations as Kubernetes does: `1h2m3.5s`, in whole nanoseconds."""

import re
from typing import Final

NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
SECOND: Final = NANOSECONDS["s"]
LONGEST: Final = 2**63 - 1

_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>ns|us|µs|μs|ms|s|m|h)")
_UNIT_ENDS: Final = re.compile(r"[0-9.]|$")
_MAX_DIGITS: Final = 40


class Duration(float):
    """Seconds, which also keep the exact number of nanoseconds that a file gives."""

    nanoseconds: int

    def __new__(cls, nanoseconds: int) -> "Duration":
        duration = super().__new__(cls, nanoseconds / SECOND)
        duration.nanoseconds = nanoseconds
        return duration

    def __getnewargs__(self) -> tuple[int]:
        return (self.nanoseconds,)

    def __str__(self) -> str:
        return format_duration(self.nanoseconds)


def nanoseconds_of(seconds: float) -> int:
    return seconds.nanoseconds if isinstance(seconds, Duration) else round(seconds * SECOND)


def parse_duration(text: str) -> Duration:
    """Return the duration, or raise a ValueError that says what is allowed. Only `0` needs no unit."""
    complaint = ValueError('must be a duration like "1m30s" (units h, m, s, ms, us, ns)')
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return Duration(0)
    if not rest:
        raise complaint
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not _UNIT_ENDS.match(rest, part.end()):
            raise complaint
        whole, fraction = part["whole"], part["fraction"] or ""
        if not (whole or fraction) or len(whole.lstrip("0")) > _MAX_DIGITS:
            raise complaint
        total += _nanoseconds(whole, fraction, NANOSECONDS[part["unit"]])
        if total > LONGEST + (sign == "-"):
            raise complaint
        at = part.end()
    return Duration(-total if sign == "-" else total)


def format_duration(nanoseconds: int) -> str:
    """Format a duration as Kubernetes does: `10m0s`, `1.5s`, `200ms`, `0s`."""
    if not nanoseconds:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", int(nanoseconds))
    for unit in ("ns", "µs", "ms"):
        size = NANOSECONDS[unit]
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, left = divmod(rest, NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    whole = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{whole}{_decimal(left, SECOND)}s"


def _nanoseconds(whole: str, fraction: str, unit: int) -> int:
    digits = fraction[:_MAX_DIGITS]
    parts: int = 10 ** len(digits)
    return int(whole or "0") * unit + (int(digits or "0") * unit) // parts


def _decimal(value: int, unit: int) -> str:
    whole, left = divmod(value, unit)
    if not left:
        return str(whole)
    return f"{whole}.{str(left).zfill(len(str(unit)) - 1).rstrip('0')}"
