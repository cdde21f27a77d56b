"""Logs: JSON lines for machines, text for people; and rate limits for repeated messages."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from shared.bounded import BoundedDict
from shared.errors import UserError

ROOT = "flotilla"
"""The parent of all loggers of Flotilla."""
QUIET_SECONDS = 30.0
"""Seconds until a repeated message is logged again."""
MAX_KEYS = 256
"""Distinct repeated messages that are remembered."""
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
"""Docker and Podman make them."""
FORMATS = ("auto", "json", "text")
LEVELS = ("debug", "info", "warning", "error")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TIME = "%Y-%m-%dT%H:%M:%S"


def set_up(
    service: str,
    name: str,
    *,
    format: str = "auto",
    level: str = "info",
    stream: IO[str] | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Send all logging of this process to one stream, standard error by default; UserError for unknown options.

    `names`: of the services in this process, if there are several; others of its lines have `service` and `name`.
    """
    if format not in FORMATS or level.lower() not in LEVELS:
        raise UserError(f"logs: the format is one of {', '.join(FORMATS)}, the level one of {', '.join(LEVELS)}")
    stream = sys.stderr if stream is None else stream
    as_text = is_text(format, terminal=stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter(service, name, names))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())


def logger(service: str) -> logging.Logger:
    return logging.getLogger(f"{ROOT}.{service}")


class JsonFormatter(logging.Formatter):
    """One object a line. `extra` fields (trace_id, span_id, pod ...) are added."""

    def __init__(self, service: str, name: str, names: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._process = service, name
        self._services = {f"{ROOT}.{each}": (each, named) for each, named in (names or {}).items()}

    def format(self, record: logging.LogRecord) -> str:
        service, name = self._services.get(record.name, self._process)
        line: dict[str, object] = {
            "time": f"{time.strftime(_TIME, time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": service,
            "name": name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in _extra(record).items() if key not in line)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def is_text(format: str, *, terminal: bool) -> bool:
    """Whether logs in this format are for people: if asked for, and by `auto` on a terminal, or outside containers."""
    return format == "text" or (format == "auto" and (terminal or not in_container()))


def in_container() -> bool:
    """Where logs are read by machines."""
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(Path(file).exists() for file in CONTAINER_FILES)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {key}={value}" for key, value in _extra(record).items())
        head = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {record.name.removeprefix(ROOT + '.')}"
        text = f"{head}: {record.getMessage()}{fields}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class Repeated:
    """Logs the same message at most once in `every` seconds, then with the number of repeats."""

    def __init__(
        self, log: logging.Logger, every: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._every = every
        self._clock = clock
        self._known: BoundedDict[str, tuple[float, int]] = BoundedDict(MAX_KEYS)
        """By key: when it may be logged again, and the repeats since it was logged."""

    def warning(self, key: str, message: str, *args: object) -> None:
        self._log_limited(logging.WARNING, key, message, args)

    def error(self, key: str, message: str, *args: object, exc_info: BaseException | None = None) -> None:
        self._log_limited(logging.ERROR, key, message, args, exc_info)

    def _log_limited(
        self, level: int, key: str, message: str, args: tuple[object, ...], cause: BaseException | None = None
    ) -> None:
        now = self._clock()
        allowed_at, repeats = self._known.get(key, (now, 0))
        if now < allowed_at:
            self._known[key] = allowed_at, repeats + 1
            return
        self._known[key] = now + self._every, 0
        if repeats:
            message, args = message + " (and %d more like it)", (*args, repeats)
        self._log.log(level, message, *args, exc_info=cause)


class AtMostEvery(logging.Filter):
    """For other libraries' loggers: each message at most once in `seconds`, regardless of its arguments."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._next: BoundedDict[object, float] = BoundedDict(MAX_KEYS)

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        if now < self._next.get(record.msg, now):
            return False
        self._next[record.msg] = now + self._seconds
        return True
