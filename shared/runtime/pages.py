"""What a process tells of itself: /statusz and /flagz for people, /configz for machines. Nothing secret is in them.

All is worked out when it is asked for.
"""

import asyncio
import os
import platform
import resource
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from shared.config import values
from shared.config.document import ConfigSource
from shared.config.settings import Settings
from shared.config.sources import HTTP_FLAG, SOURCES
from shared.errors import UserError
from shared.runtime.health import Health

CONFIG_KEY = "kubescheduler.config.k8s.io"
EMULATED = "1.36"
"""Of kube-scheduler."""
WARNING = "For people to look at: the format may change at any time, so do not have programs read it."
SECRET_KEYS = ("keydata", "password", "secret", "token")
"""Ends of names in a configuration, in lower case, whose values are not shown."""
PATHS = ("/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz")


@dataclass(slots=True, kw_only=True)
class Pages:
    """`config`: the file as it was when the process started; none: kube-scheduler's defaults.

    `began`: when the process started (Unix time); `born`: the same by the monotonic clock.
    """

    service: str
    name: str
    settings: Settings
    health: Health
    config: ConfigSource | None = None
    began: float = field(default_factory=time.time)
    born: float = field(default_factory=time.monotonic)
    _in_force: dict[str, Any] | None = None

    def statusz(self) -> str:
        up = int(time.monotonic() - self.born)
        reasons = self.health.reasons()
        rows = {
            "Started": time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(self.began)),
            "Up": f"{up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
            "Python version": platform.python_version(),
            "Binary version": version("flotilla"),
            "Emulation version": EMULATED,
            "Paths": " ".join(PATHS),
            "Name": self.name,
            "Pid": str(os.getpid()),
            "Role": self.health.role,
            "Ready": "no" if reasons else "yes",
            "Not ready": "; ".join(reasons),
            "CPU": f"{time.process_time():.1f} s",
            "Memory": f"{_peak_memory() >> 20} MiB at most so far",
            "Tasks": str(len(asyncio.all_tasks())),
        }
        return self._headed("statusz", [f"{key}: {value}" for key, value in rows.items() if value])

    def flagz(self) -> str:
        """Every flag with what is in force, wherever that came from."""
        flags = {source.flag: source.in_force(self.settings) for source in SOURCES if source.flag}
        flags[HTTP_FLAG] = f"{self.settings.http_host}:{self.settings.http_port}"
        return self._headed(
            "flagz", [f"{flag[2:]}={'' if value is None else value}" for flag, value in sorted(flags.items())]
        )

    def configz(self) -> dict[str, Any]:
        """The scheduler's configuration with all defaults, as it is in force, and the settings.

        The settings alone, where there is no such configuration: a process with a wrong one is about to end.
        """
        settings = {source.field: source.in_force(self.settings) for source in SOURCES}
        if self._in_force is None:
            try:
                self._in_force = without_secrets(_in_force(self.config))
            except UserError:
                return {"settings": settings}
        return {CONFIG_KEY: self._in_force, "settings": settings}

    def _headed(self, page: str, lines: list[str]) -> str:
        return "\n".join((f"\nflotilla-{self.service} {page}", WARNING, "", *lines, ""))


def without_secrets(value: Any, key: str = "") -> Any:
    """Plain data without the values of keys that sound secret, and without passwords in URLs."""
    if isinstance(value, dict):
        return {name: without_secrets(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, key) for item in value]
    if isinstance(value, str) and value:
        if key.lower().endswith(SECRET_KEYS):
            return values.hidden(value)
        return values.masked(value) if "://" in value else value
    return value


def _in_force(source: ConfigSource | None) -> dict[str, Any]:
    from shared.config.building import flotilla_plugins
    from shared.config.reading import read_config_text, read_config_values
    from shared.plugins.entrypoints import Registry

    known: dict[str, Any] = {}
    plugins = flotilla_plugins(Registry(known).points_of)
    read = read_config_values(None, plugins) if source is None else read_config_text(source.text, plugins)
    return read.written


def _peak_memory() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
