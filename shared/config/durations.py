"""Durations as Kubernetes writes them: `1h2m3.5s`, in whole nanoseconds."""

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
_MOST_DIGITS: Final = 40


class Duration(int):
    """Nanoseconds; a type of its own, because a file writes it as a text."""

    def __str__(self) -> str:
        return format_duration(self)

    @property
    def seconds(self) -> float:
        return int(self) / SECOND


def parse_duration(text: str) -> Duration:
    """The duration, or a ValueError that says what is allowed. Only `0` may stand without a unit."""
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
        if not (whole or fraction) or len(whole.lstrip("0")) > _MOST_DIGITS:
            raise complaint
        total += _nanoseconds(whole, fraction, NANOSECONDS[part["unit"]])
        if total > LONGEST + (sign == "-"):
            raise complaint
        at = part.end()
    return Duration(-total if sign == "-" else total)


def format_duration(nanoseconds: int) -> str:
    """As Kubernetes writes it back: `10m0s`, `1.5s`, `200ms`, `0s`."""
    if not nanoseconds:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", int(nanoseconds))
    for unit in ("ns", "µs", "ms"):
        size = NANOSECONDS[unit]
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, left = divmod(rest, NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(left, SECOND)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _nanoseconds(whole: str, fraction: str, unit: int) -> int:
    digits = fraction[:_MOST_DIGITS]
    parts: int = 10 ** len(digits)
    return int(whole or "0") * unit + (int(digits or "0") * unit) // parts


def _decimal(value: int, unit: int) -> str:
    whole, left = divmod(value, unit)
    if not left:
        return str(whole)
    return f"{whole}.{str(left).zfill(len(str(unit)) - 1).rstrip('0')}"
