"""Timestamps and durations: their texts as Go reads and writes them, arithmetic, and parts of dates."""

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shared.cel.declarations import Overload, member
from shared.cel.types import DURATION, INT, STRING, TIMESTAMP
from shared.cel.values import (
    FIRST_SECOND,
    INTEGER_OVERFLOW,
    LAST_SECOND,
    MAX_INT,
    MIN_INT,
    SECOND,
    CelError,
    DurationValue,
    TimestampValue,
    Value,
    decimal_text,
)
from shared.model import durations

_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
TIMESTAMP_OVERFLOW = CelError("timestamp overflow")


def parse_duration(text: str) -> DurationValue | None:
    """A duration such as `1h2m3.5s`; None if the text is none, or out of range."""
    try:
        return DurationValue(durations.parse_duration(text).nanoseconds)
    except ValueError:
        return None


def duration_text(value: DurationValue) -> str:
    """Seconds, in the precision of a double."""
    seconds, rest = divmod(abs(value.nanoseconds), SECOND)
    number = float(seconds) + rest / 1e9
    return f"{'-' if value.nanoseconds < 0 else ''}{decimal_text(number)}s"


def parse_timestamp(text: str) -> TimestampValue | CelError | None:
    """A time as in RFC 3339; None if the text is none, an error if the year is out of range."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59:
        return None
    if not 1 <= day <= (29 if month == 2 and calendar.isleap(year) else _DAYS[month - 1]):
        return None
    zone = 0
    if match[8]:
        zone_hours, zone_minutes = int(match[9]), int(match[10])
        if zone_hours > 23 or zone_minutes > 59:
            return None
        zone = (zone_hours * 60 + zone_minutes) * 60 * (-1 if match[8] == "-" else 1)
    days = datetime(year or 4, month, day).toordinal() - _EPOCH_DAY - (0 if year else 4 * 365 + 1)
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - zone
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        return TIMESTAMP_OVERFLOW
    return TimestampValue(seconds * SECOND + int((match[7] or "0")[:9].ljust(9, "0")), zone)


_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH_DAY = datetime(1970, 1, 1).toordinal()


def timestamp_text(value: TimestampValue) -> str:
    seconds, rest = divmod(value.nanoseconds, SECOND)
    local = _local(seconds, timezone(timedelta(seconds=value.zone)))
    if local is None:
        return ""
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    hours, minutes = divmod(abs(value.zone) // 60, 60)
    zone = f"{'-' if value.zone < 0 else '+'}{hours:02d}:{minutes:02d}" if value.zone else "Z"
    return f"{local.year:04d}-{local:%m-%dT%H:%M:%S}{fraction}{zone}"


def _local(seconds: int, zone: tzinfo) -> datetime | None:
    """The date and time in a zone; None beyond the first and last year."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(zone)
    except OverflowError:
        return None


def timestamp_from(nanoseconds: int, zone: int = 0) -> Value:
    if not FIRST_SECOND <= nanoseconds // SECOND <= LAST_SECOND:
        return TIMESTAMP_OVERFLOW
    return TimestampValue(nanoseconds, zone)


def duration_from(nanoseconds: int) -> Value:
    return DurationValue(nanoseconds) if MIN_INT <= nanoseconds <= MAX_INT else INTEGER_OVERFLOW


def _zone(name: str) -> tzinfo:
    """The zone of a name such as `Asia/Tokyo`, or of an offset such as `-08:30`."""
    hours, colon, minutes = name.partition(":")
    if colon:
        for part in (hours, minutes):
            if not re.fullmatch(r"[+-]?[0-9]+", part):
                raise ValueError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        offset = int(hours) * 60 + (-int(minutes) if name.startswith("-") else int(minutes))
        return timezone(timedelta(minutes=offset)) if abs(offset) < 24 * 60 else UTC
    if name in ("", "UTC", "Local"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name}") from None


def _timestamp_part(
    name: str, stem: str, part: Callable[[datetime, int], int], zone_suffix: str = "_with_tz"
) -> list[Overload]:
    """A function that yields a part of a timestamp, in UTC or in a given zone."""

    def in_zone(value: TimestampValue, zone_name: str = "UTC") -> Value:
        seconds, rest = divmod(value.nanoseconds, SECOND)
        local = _local(seconds, _zone(zone_name))
        return TIMESTAMP_OVERFLOW if local is None else part(local, rest)

    return [
        member(name, stem, [TIMESTAMP], INT, in_zone),
        member(name, stem + zone_suffix, [TIMESTAMP, STRING], INT, in_zone),
    ]


def _duration_part(name: str, overload: str, unit: int) -> Overload:
    def count(value: DurationValue) -> int:
        amount = abs(value.nanoseconds) // unit
        return -amount if value.nanoseconds < 0 else amount

    return member(name, overload, [DURATION], INT, count)


FUNCTIONS = [
    *_timestamp_part("getFullYear", "timestamp_to_year", lambda local, _: local.year),
    *_timestamp_part("getMonth", "timestamp_to_month", lambda local, _: local.month - 1),
    *_timestamp_part("getDayOfYear", "timestamp_to_day_of_year", lambda local, _: local.timetuple().tm_yday - 1),
    *_timestamp_part("getDayOfMonth", "timestamp_to_day_of_month", lambda local, _: local.day - 1),
    *_timestamp_part("getDate", "timestamp_to_day_of_month_1_based", lambda local, _: local.day),
    *_timestamp_part("getDayOfWeek", "timestamp_to_day_of_week", lambda local, _: local.isoweekday() % 7),
    *_timestamp_part("getHours", "timestamp_to_hours", lambda local, _: local.hour),
    *_timestamp_part("getMinutes", "timestamp_to_minutes", lambda local, _: local.minute),
    *_timestamp_part("getSeconds", "timestamp_to_seconds", lambda local, _: local.second, "_tz"),
    *_timestamp_part("getMilliseconds", "timestamp_to_milliseconds", lambda _, nanoseconds: nanoseconds // 10**6),
    _duration_part("getHours", "duration_to_hours", 3600 * SECOND),
    _duration_part("getMinutes", "duration_to_minutes", 60 * SECOND),
    _duration_part("getSeconds", "duration_to_seconds", SECOND),
    _duration_part("getMilliseconds", "duration_to_milliseconds", 10**6),
]
