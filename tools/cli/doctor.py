"""flotilla doctor: check what Flotilla needs here, and say what to mend."""

import argparse
import asyncio
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shared.config.setting_sources import Given
from shared.config.sources import add_flags, all_given, settings_of
from tools.cli.arguments import add_output
from tools.cli.output import GREEN, RED, YELLOW, coloured, uses_colour

if TYPE_CHECKING:
    from shared.config.settings import Settings
    from tools.doctor.findings import Finding, Section

WIDEST, USUAL = 100, 80
"""Columns."""
SIGNS = {"ok": ("✓", GREEN), "note": ("-", YELLOW), "wrong": ("✗", RED)}

DESCRIPTION = """\
Checks the API server (version, clock, rights, APIs, Leases), NATS, Redis, the configuration and
the processes that run, if any. Changes nothing. Takes the settings of the services, from flags
and variables. Exit code 0: nothing is wrong; 1: something is; each finding says what to do.
"""
EXAMPLES = """\
signs:
  ✓ as it should be     - worth knowing     ✗ wrong

examples:
  flotilla doctor --kubeconfig ~/.kube/config
  flotilla doctor --kubeconfig ~/.kube/config --config scheduler.yaml    before a first start
  flotilla doctor                     beside a service: with its variables
  flotilla doctor -o json | jq -r '.sections[].findings[] | select(.level == "wrong") | .text'
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_output(command, "text", "json")
    add_flags(command, without=frozenset({"name", "http"}))


def run(options: argparse.Namespace) -> int:
    given = all_given(os.environ, vars(options))
    sections = asyncio.run(examine(settings_of(given), given))
    if options.output == "json":
        print(json.dumps(as_plain(sections), indent=2, ensure_ascii=False))
    else:
        print("\n".join(lines(sections, _width(), colour=uses_colour(sys.stdout))))
    return 1 if wrong_ones(sections) else 0


async def examine(settings: "Settings", given: Mapping[str, Given]) -> "list[Section]":
    from shared.config.document import read_config
    from shared.config.structs import DEFAULT_SCHEDULER_NAME
    from shared.errors import UserError
    from shared.framework.loading import load_scheduler_config
    from shared.kube.access import client_connection
    from tools.cli.service_client import silent_telemetry, stale_url
    from tools.doctor.cluster import ClusterOptions, ClusterReport, check_cluster
    from tools.doctor.findings import Section, bounded
    from tools.doctor.machine import check_config, check_machine
    from tools.doctor.servers import NatsOptions, NatsReport, check_nats, check_redis

    source = read_config(settings.config)
    try:
        config = load_scheduler_config(source, settings.feature_gates)
    except UserError:  # `check_config` says why
        config = load_scheduler_config(None)
    schedulers = [profile.scheduler_name for profile in config.profiles] or [DEFAULT_SCHEDULER_NAME]
    namespace = config.leader_election.resource_namespace
    about = ClusterOptions(settings.api, client_connection(source), settings.prefix, namespace, schedulers)
    report = ClusterReport([])

    async def cluster() -> "list[Finding]":
        nonlocal report
        report = await check_cluster(about)
        return report.findings

    checking = asyncio.create_task(bounded("API server", cluster()))

    async def known() -> ClusterReport:
        await asyncio.shield(checking)
        return report

    origins = {field: given[field].origin if field in given else "" for field in ("nats_url", "redis_url")}
    options = NatsOptions(settings, origins["nats_url"], stale_url(given.get("nats_url")))
    telemetry = silent_telemetry("flotilla.doctor")
    heard = NatsReport([])

    async def nats() -> "list[Finding]":
        nonlocal heard
        heard = await check_nats(options, telemetry, known)
        return heard.findings

    asking = asyncio.create_task(bounded("NATS and processes", nats()))

    async def running() -> bool:
        await asyncio.shield(asking)
        return heard.answers

    redis = bounded("Redis", check_redis(settings, origins["redis_url"], known, running))
    sections = await asyncio.gather(checking, asking, redis)
    in_process = check_machine(os.environ) + check_config(source, settings.feature_gates)
    return [Section("this machine", in_process), *sections]


def wrong_ones(sections: "Sequence[Section]") -> "list[Finding]":
    return [finding for section in sections for finding in section.findings if finding.level == "wrong"]


def as_plain(sections: "Sequence[Section]") -> dict[str, object]:
    return {
        "ok": not wrong_ones(sections),
        "sections": [
            {"title": section.title, "findings": [finding._asdict() for finding in section.findings]}
            for section in sections
        ],
    }


def lines(sections: "Sequence[Section]", width: int, *, colour: bool) -> Iterator[str]:
    for section in sections:
        yield section.title
        for finding in section.findings:
            sign, of = SIGNS[finding.level]
            text = textwrap.wrap(finding.text, width - 4, break_on_hyphens=False)
            yield f"  {coloured(sign, of, when=colour)} {text[0]}"
            yield from (f"    {line}" for line in text[1:])
            for line in finding.fix:
                yield from _fix(line, width)
    found = len(wrong_ones(sections))
    yield ""
    yield "nothing is wrong" if not found else f"{found} {'things are' if found > 1 else 'thing is'} wrong (✗)"


def _fix(line: str, width: int) -> Iterator[str]:
    """Lines of YAML stay as they are."""
    if line.startswith("  "):
        yield f"        {line.removeprefix('  ')}"
        return
    yield from textwrap.wrap(
        line, width, initial_indent="      → ", subsequent_indent="        ", break_on_hyphens=False
    )


def _width() -> int:
    return min(shutil.get_terminal_size((USUAL, 24)).columns, WIDEST)
