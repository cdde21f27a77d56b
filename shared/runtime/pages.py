"""Pages about a process: /statusz and /flagz for people, /configz for machines, and the answers of the health
endpoints.

All are built on request and hold no secrets. Health answers have the forms of Kubernetes' components: `?verbose` prints
a line per check, `[+]nats ok` or `[-]nats failed: why`; `?exclude=nats` leaves one out; `/readyz/nats` is that one
alone.
"""

import asyncio
import html
import os
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple

from shared.config import values
from shared.config.document import ConfigSource
from shared.config.feature_gates import FeatureGates
from shared.config.setting_sources import SOURCES
from shared.config.settings import Settings
from shared.config.sources import HTTP_FLAG
from shared.errors import UserError
from shared.runtime.context import Health

CONFIG_KEY = "kubescheduler.config.k8s.io"
EMULATED = "1.36"
"""kube-scheduler's version."""
WARNING = "For people to look at: the format may change at any time, so do not have programs read it."
SECRET_KEYS = ("keydata", "password", "secret", "token")
"""Configuration keys that end so, in lower case, hold secrets."""
OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503
PING = "ping"
ALIVE: Mapping[str, str] = {PING: ""}
"""A process that answers is alive."""
PATHS: Mapping[str, str] = {
    "/configz": "the configuration in force, as JSON",
    "/flagz": "the settings in force",
    "/healthz": "whether it is alive, also as /livez",
    "/livez": "whether it is alive",
    "/metrics": "metrics for Prometheus",
    "/readyz": "whether it is ready, and why not; /readyz?verbose has every check",
    "/statusz": "role, readiness, memory",
}


@dataclass(slots=True, kw_only=True)
class Pages:
    """`config`: the file as it was at the start; None: kube-scheduler's defaults.

    `began`: when the process started, in Unix time; `born`: the same by the monotonic clock.
    """

    service: str
    name: str
    settings: Settings
    health: Health
    config: ConfigSource | None = None
    services: tuple[str, ...] = ()
    """Of a process with several, which have pages of their own."""
    began: float = field(default_factory=time.time)
    born: float = field(default_factory=time.monotonic)
    _in_force: dict[str, Any] | None = None

    def index(self, below: str = "") -> str:
        """HTML with links to all pages, which are below this path."""
        title = html.escape(f"flotilla {self.service}: {self.name}")
        items = "".join(f'<li><a href="{below}{path}">{below}{path}</a>: {what}</li>\n' for path, what in PATHS.items())
        items += "".join(f'<li><a href="/{each}/">/{each}/</a>: of this service</li>\n' for each in self.services)
        head = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
        return f"{head}<h1>{title}</h1>\n<ul>\n{items}</ul>\n</html>\n"

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
            "Memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB at most so far",
            "Tasks": str(len(asyncio.all_tasks())),
        }
        return self._headed("statusz", [f"{key}: {value}" for key, value in rows.items() if value])

    def flagz(self) -> str:
        """Every flag with the value in force."""
        flags = {source.flag: source.in_force(self.settings) for source in SOURCES if source.flag}
        flags[HTTP_FLAG] = f"{self.settings.http_host}:{self.settings.http_port}"
        return self._headed(
            "flagz", [f"{flag[2:]}={'' if value is None else value}" for flag, value in sorted(flags.items())]
        )

    def configz(self) -> dict[str, Any]:
        """The scheduler's configuration in force, with all defaults, and the settings.

        The settings alone if the configuration is invalid: the process is about to exit because of it.
        """
        settings = {source.field: source.in_force(self.settings) for source in SOURCES}
        if self._in_force is None:
            try:
                self._in_force = without_secrets(_in_force(self.config, self.settings.feature_gates))
            except UserError:
                return {"settings": settings}
        return {CONFIG_KEY: self._in_force, "settings": settings}

    def _headed(self, page: str, lines: list[str]) -> str:
        return "\n".join((f"\nflotilla-{self.service} {page}", WARNING, "", *lines, ""))


def without_secrets(value: Any, key: str = "") -> Any:
    """A copy of plain data without the values of secret keys and without passwords in URLs."""
    if isinstance(value, dict):
        return {name: without_secrets(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, key) for item in value]
    if isinstance(value, str) and value:
        if key.lower().endswith(SECRET_KEYS):
            return values.hidden(value)
        return values.masked(value) if "://" in value else value
    return value


def _in_force(source: ConfigSource | None, gates: FeatureGates) -> dict[str, Any]:
    from shared.config.reading import read_config_text, read_config_values
    from shared.framework.loading import Registry

    plugins = Registry({}).known_plugins()
    if source is None:
        return read_config_values(None, plugins, gates).written
    return read_config_text(source.text, plugins, gates).written


class HealthAnswer(NamedTuple):
    status: int
    text: str


def ready_at_a_glance(health: Health) -> HealthAnswer:
    """`ok`, and who leads if another process does; or the reasons, one per line."""
    reasons = health.reasons()
    if reasons:
        return HealthAnswer(UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons))
    return HealthAnswer(OK, f"ok: {health.role.replace(': ', ', ', 1)}\n" if health.standing_by else "ok\n")


def checks_answer(page: str, checks: Mapping[str, str], excluded: Sequence[str], *, verbose: bool) -> HealthAnswer:
    """All checks but the excluded ones. If one fails, every check is printed."""
    lines: list[str] = []
    failed = False
    for name, why in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
        elif why:
            failed = True
            lines.append(f"[-]{name} failed: {why}")
        else:
            lines.append(f"[+]{name} ok")
    unknown = sorted(set(excluded) - checks.keys())
    if unknown:
        lines.append(f"warn: there is no check to exclude: {', '.join(map(ascii, unknown))}")
    if not failed and not verbose:
        return HealthAnswer(OK, "ok\n")
    lines.append(f"{page} check {'failed' if failed else 'passed'}")
    return HealthAnswer(UNAVAILABLE if failed else OK, "".join(f"{line}\n" for line in lines))


def one_check(name: str, checks: Mapping[str, str]) -> HealthAnswer:
    if name not in checks:
        return HealthAnswer(NOT_FOUND, f"there is no check of this name; there are {', '.join(checks)}\n")
    why = checks[name]
    return HealthAnswer(UNAVAILABLE, f"{name}: {why}\n") if why else HealthAnswer(OK, "ok\n")
