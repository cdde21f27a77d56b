"""Waiting for permits: several plugins may have a pod wait, and each must allow it.

The first rejection ends the wait, and so does the shortest time-out among the plugins that have not allowed it yet.
"""

from collections.abc import Mapping

from flotilla.results import Code, Status
from shared.messages.binding import LONGEST_WAIT

UNITS = ((3600, "h"), (60, "m"))


class PermitWait:
    """The wait of one pod, from `began` on. A plugin that asks for more than LONGEST_WAIT seconds gets these."""

    def __init__(self, waits: Mapping[str, float], began: float) -> None:
        self.began = began
        self._waits = {plugin: min(max(seconds, 0.0), LONGEST_WAIT) for plugin, seconds in waits.items()}

    @property
    def deadline(self) -> float:
        return self.began + min(self._waits.values())

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(self._waits)

    def left(self, now: float) -> dict[str, float]:
        """Seconds, by plugin that has not allowed the pod yet."""
        return {plugin: max(self.began + seconds - now, 0.0) for plugin, seconds in self._waits.items()}

    def allow(self, plugin: str) -> bool:
        """Whether nobody else keeps the pod waiting. A plugin that nobody waits for changes nothing; "" is all."""
        if plugin:
            self._waits.pop(plugin, None)
        else:
            self._waits.clear()
        return not self._waits

    def rejected(self, plugin: str, reason: str) -> Status:
        """By this plugin; where none is named, by the first that has not allowed the pod."""
        return rejected(plugin or self.pending[0], reason or "rejected")

    def timed_out(self) -> Status:
        """The status of the plugin whose patience ends first."""
        plugin, seconds = min(self._waits.items(), key=lambda item: item[1])
        return rejected(plugin, f"rejected due to timeout after waiting {duration(seconds)} at plugin {plugin}")


def rejected(plugin: str, reason: str) -> Status:
    return Status(Code.UNSCHEDULABLE, (reason,), plugin)


def duration(seconds: float) -> str:
    """As Go prints a time.Duration, which is part of the message: `1m30s`, `2.5s`, `100ms`, `0s`."""
    nanoseconds = round(seconds * 1e9)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 1_000_000_000:
        scale, unit = next((s, u) for s, u in ((1_000_000, "ms"), (1_000, "µs"), (1, "ns")) if nanoseconds >= s)
        return f"{_decimal(nanoseconds, scale)}{unit}"
    rest, text = nanoseconds, ""
    for size, unit in UNITS:
        whole, rest = divmod(rest, size * 1_000_000_000)
        if whole or text:
            text += f"{whole}{unit}"
    return f"{text}{_decimal(rest, 1_000_000_000)}s"


def _decimal(amount: int, scale: int) -> str:
    whole, part = divmod(amount, scale)
    digits = f"{part:0{len(str(scale)) - 1}d}".rstrip("0") if scale > 1 else ""
    return f"{whole}.{digits}" if digits else str(whole)
