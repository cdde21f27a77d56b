"""Failures: exceptions of plugins as statuses of pods, and the unexpected ones for the log."""

from collections.abc import Iterator

from flotilla.plugin import PluginError
from flotilla.results import Status, error
from shared.errors import FlotillaError, InvariantBroken
from shared.framework.ranking import ScoreOutOfRange
from shared.framework.signatures import PluginFailed

MAX_UNEXPECTED = 8
"""Exceptions that wait for the log; each holds what its frames held."""


class Failures:
    def __init__(self) -> None:
        self._unexpected: dict[str, Exception] = {}
        """By text. A plugin that fails for many classes comes once."""

    def status(self, cause: Exception) -> Status:
        """The status by which an attempt fails; names the plugin if one raised."""
        self.note(cause)
        if isinstance(cause, PluginFailed):
            return error(str(cause)).by(cause.plugin)
        return error(str(cause) if isinstance(cause, FlotillaError | ValueError) else repr(cause))

    def note(self, cause: Exception) -> None:
        """Keep the exception for the log, unless it was raised to be the pod's message."""
        if len(self._unexpected) < MAX_UNEXPECTED and _is_unexpected(cause):
            self._unexpected.setdefault(str(cause), cause)

    def unexpected(self) -> Iterator[tuple[str, Exception]]:
        """Those since the last call: where each was raised, by which the log tells repeats, and the exception."""
        noted, self._unexpected = self._unexpected, {}
        for cause in noted.values():
            yield _place(cause), cause


def _is_unexpected(cause: Exception) -> bool:
    if isinstance(cause, PluginFailed | InvariantBroken):
        return True
    return not isinstance(cause, FlotillaError | PluginError | ScoreOutOfRange)


def _place(cause: Exception) -> str:
    """Plugin and line. Not the text: one that names the pod would differ each time."""
    raised = cause.__cause__ or cause
    trace = raised.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return f"{cause.plugin if isinstance(cause, PluginFailed) else ''} {type(raised).__name__} {where}"
