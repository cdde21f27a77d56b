"""flotilla up: run everything on this machine."""

import argparse
import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shared.config import values
from shared.config.setting_sources import Given
from shared.config.settings import ApiSettings, Settings
from shared.config.sources import add_flags, all_given, environment_of, settings_of, unknown_variables
from shared.errors import ClusterError, FlotillaError, UserError
from tools.cli.arguments import add_numbers
from tools.cli.output import uses_colour
from tools.supervisor.options import CORE, GROUPINGS, PipelineOptions

if TYPE_CHECKING:
    from tools.supervisor.pipeline import Pipeline

DESCRIPTION = """\
Runs all services, plus NATS, Redis and a simulated API server unless given. Restarts processes
that crash. Ctrl-C stops everything and leaves nothing behind.
"""
EXAMPLES = """\
examples:
  flotilla up                                         with an empty simulated cluster; prints how kubectl finds it
  flotilla up --nodes 20                              with a made-up cluster: zones, pools, pods of its system
  flotilla up --kubeconfig ~/.kube/config             for the cluster of this kubeconfig
  flotilla up --in-cluster --workers 8 --binders 2    in a pod, with its service account
  FLOTILLA_TOKEN=... flotilla up --server https://10.0.0.1:6443
  flotilla up --nats nats://nats:4222 --redis redis://redis:6379/0

Each setting can also be an environment variable: see flotilla run --help.
"""

IGNORED = ("http_host", "http_port", "http_scheme")
PER_SERVICE = frozenset({"name", "http"})
NATS_VARIABLES = frozenset(
    f"FLOTILLA_{name}" for name in ("PREFIX", "NATS_CA", "NATS_CERT", "NATS_KEY", "NATS_CREDENTIALS")
)
"""Variables that other commands need to reach NATS, besides its URL."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_numbers(command, ("--workers", 1, 1, "number of workers"), ("--binders", 1, 1, "number of binders"))
    add_numbers(command, ("--nodes", 0, 0, "nodes of the simulated cluster, made up in three zones"))
    command.add_argument(
        "--grouping",
        choices=GROUPINGS,
        default=CORE,
        help="which services share a process: none, all but workers and binders (default), and each worker with a"
        " binder, or all",
    )
    command.add_argument("--in-cluster", action="store_true", help="use the API server of the surrounding cluster")
    command.add_argument("--no-console", action="store_true", help="do not serve a page that shows what happens")
    add_flags(command, without=PER_SERVICE)


def run(options: argparse.Namespace) -> int:
    from tools.cli.processes import SIGNALS, interruptible

    given = all_given(os.environ, vars(options))
    pipeline_options = options_of(options)
    pipeline_options.services()  # validates the options before anything starts
    ready = asyncio.Event()
    try:
        origin = given["nats_url"].origin if "nats_url" in given else ""
        warnings = warnings_about(given, os.environ)
        work = _up(pipeline_options, ready, warnings, origin, console=not options.no_console)
        code = interruptible(work)
    except FlotillaError as cause:
        raise _with_origin(cause, given) from cause
    by_signal = code - 128 in SIGNALS
    return 0 if by_signal and ready.is_set() else code  # a signal is the normal end, except during the start


def warnings_about(given: Mapping[str, Given], environment: Mapping[str, str]) -> list[str]:
    """About settings that have no effect here, and variables that are none."""
    found = unknown_variables(environment)
    if origins := [given[field].origin for field in IGNORED if field in given]:
        why = "ignored, because services of flotilla up serve HTTP on free ports of 127.0.0.1"
        found.append(f"{', '.join(origins)}: {why}")
    return found


def _with_origin(cause: FlotillaError, given: Mapping[str, Given]) -> FlotillaError:
    """Add where the NATS URL comes from to an error about NATS."""
    url = given.get("nats_url")
    if url is None or "NATS" not in str(cause) or url.origin in str(cause):
        return cause
    kind = UserError if isinstance(cause, UserError) else ClusterError
    return kind(f"{cause} (the URL comes from {url.origin})")


def options_of(options: argparse.Namespace) -> PipelineOptions:
    from shared.telemetry.logs import is_text  # lazily: help needs none of what it imports
    from testing.simulator.__main__ import MAX_NODES

    given = all_given(os.environ, vars(options))
    settings = settings_of(given)
    reachable = settings.api.server or settings.api.kubeconfig
    if options.in_cluster and reachable:
        raise UserError("--in-cluster: cannot be combined with --server or --kubeconfig")
    api = settings.api if reachable else ApiSettings() if options.in_cluster else None
    if options.nodes and api is not None:
        raise UserError("--nodes: only for the simulated cluster, not for another API server")
    if options.nodes > MAX_NODES:
        raise UserError(f"--nodes: at most {MAX_NODES}, not {options.nodes}")
    terminal = sys.stdout.isatty()
    as_text = is_text(settings.log_format, terminal=terminal)
    return PipelineOptions(
        workers=options.workers,
        binders=options.binders,
        grouping=options.grouping,
        settings=settings,
        nats_url=settings.nats_url if "nats_url" in given else None,
        redis_url=settings.redis_url if "redis_url" in given else None,
        api=api,
        simulated_nodes=options.nodes,
        output=sys.stdout,
        as_json=not as_text,
        live=as_text and terminal,
        colour=as_text and uses_colour(sys.stdout),
    )


async def _up(
    options: PipelineOptions, ready: asyncio.Event, warnings: Sequence[str], nats_origin: str, *, console: bool
) -> int:
    """`nats_origin`: where the URL of NATS comes from, empty if from nowhere."""
    from tools.cli.live import show_status
    from tools.supervisor.pipeline import Pipeline

    def check() -> None:
        if options.api is not None and options.api.kubeconfig is not None:
            from shared.kube.access import find_access

            asyncio.run(find_access(options.api))
        if nats_origin and options.redis_url is None:
            from tools.cli.taken import refuse_taken

            asyncio.run(refuse_taken(options.settings, nats_origin))
        if options.settings.config is None:
            return  # the defaults are valid
        from tools.cli.run import check_config  # slow to import, so start the services first

        check_config(options.settings)

    def on_servers(pipeline: "Pipeline") -> None:
        """Other commands work from here on, which helps most if the rest does not start."""
        steps.extend(next_steps(pipeline))
        for line in (*server_addresses(pipeline), *steps):
            pipeline.tell(f"  {line}")
        if options.live:
            showing.append(asyncio.create_task(show_status(pipeline)))

    began = time.monotonic()
    showing: list[asyncio.Task[None]] = []
    steps: list[str] = []
    for warning in warnings:
        print(f"flotilla: {warning}", file=sys.stderr, flush=True)
    try:
        async with Pipeline.running(options, check, on_servers) as pipeline:
            ready.set()
            pipeline.tell(f"ready in {time.monotonic() - began:.1f} s")
            for name, leader in (await pipeline.standing_by()).items():
                pipeline.tell(f"  {name} is on standby: {leader} leads")
            for line in service_addresses(pipeline):
                pipeline.tell(f"  {line}")
            if console:
                await open_console(pipeline)
            if not options.as_json:
                for line in steps:  # again, where they are looked for
                    pipeline.tell(f"  {line}")
            await pipeline.failure
    finally:
        for task in showing:
            task.cancel()
    return 0


async def open_console(pipeline: "Pipeline") -> None:
    """The pipeline is there without it."""
    try:
        pipeline.tell(f"  console: {await pipeline.open_console()}")
    except ClusterError as cause:
        pipeline.tell(f"there is no console: {cause}", "warning")


def server_addresses(pipeline: "Pipeline") -> list[str]:
    """Where NATS, Redis and the API server can be reached, without secrets."""
    pids = pipeline.processes
    rows = [("nats", address_of(pipeline.nats_url), pids.get("nats-server"))]
    rows.append(("redis", address_of(pipeline.redis_url), pids.get("redis-server")))
    api = "in this cluster" if pipeline.api_url is None else pipeline.api_url
    if pipeline.api.kubeconfig is not None and pipeline.api_url is None:
        api = f"of {pipeline.api.kubeconfig}"
    rows.append(("api server", api, pids.get("simulator")))
    return [_row(*row) for row in rows]


def service_addresses(pipeline: "Pipeline") -> list[str]:
    """A service that shares a process is named after both elsewhere, as pair-0-worker."""
    pids, kinds, rows = pipeline.processes, pipeline.options.services(), []
    for name, services in pipeline.options.processes().items():
        row = _row(name, f"http://127.0.0.1:{pipeline.port(name)}", pids.get(name))
        rows.append(row if len(services) == 1 else f"{row}: {', '.join(kinds[each] for each in services)}")
    return rows


def _row(name: str, address: str, pid: int | None) -> str:
    return f"{name:<11} {address}{f'  (pid {pid})' if pid else ''}"


def next_steps(pipeline: "Pipeline") -> list[str]:
    """How other commands reach this pipeline and, if it is simulated, its cluster: for machines, only the variables."""
    variables, simulated = environment(pipeline), pipeline.options.api is None
    if simulated:
        kubeconfig = pipeline.folder / "kubeconfig"
        kubeconfig.write_text(kubeconfig_of(str(pipeline.api_url)))
        variables = f"KUBECONFIG={shlex.quote(str(kubeconfig))} {variables}"
    if pipeline.options.as_json:
        return [f"variables: {variables}"]
    if not simulated:
        return [f"inspect: {variables} flotilla status"]
    return [f"in another terminal: export {variables}", "then: kubectl get nodes; flotilla queue"]


def kubeconfig_of(server: str) -> str:
    """For a server that requires no credentials."""
    context = {"cluster": "simulated", "user": "simulated"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulated", "cluster": {"server": server}}],
        "users": [{"name": "simulated", "user": {}}],
        "contexts": [{"name": "simulated", "context": context}],
        "current-context": "simulated",
    }
    return json.dumps(config, indent=2)


def environment(pipeline: "Pipeline") -> str:
    """Variables with which other commands reach this pipeline. The URL, which may contain a password, is in a file."""
    from tools.supervisor.servers import write_secret

    file = pipeline.folder / "nats.url"
    write_secret(file, pipeline.nats_url)
    settings = environment_of(pipeline.options.settings)
    variables = {variable: value for variable, value in settings.items() if variable in NATS_VARIABLES}
    if pipeline.options.settings.prefix == Settings().prefix:
        del variables["FLOTILLA_PREFIX"]
    return shlex.join(f"{key}={value}" for key, value in {"FLOTILLA_NATS_URL_FILE": str(file), **variables}.items())


def address_of(url: str) -> str:
    """The host or path, without user and password."""
    shown = values.masked(url).rpartition("@")[2].partition("?")[0]
    return shown.partition("://")[2] or shown
