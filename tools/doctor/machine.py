"""This machine and what was given: open files, variables, the configuration file."""

import os
import resource
from collections.abc import Mapping

from shared.config.document import ConfigSource
from shared.config.feature_gates import FeatureGates
from shared.config.sources import unknown_variables
from shared.framework.loading import examine
from tools.doctor.findings import Finding, note, ok, wrong

FEW_FILES = 1024
"""Open files that a process may have; a binder and NATS need some hundreds, and each replica a connection."""


def check_machine(environment: Mapping[str, str]) -> list[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = [ok(f"open files: at most {_shown(soft)} a process, {os.cpu_count()} CPUs")]
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        most = f", at most {_shown(hard)} without root" if hard < FEW_FILES else ""
        found = [wrong(f"open files: at most {soft:,} a process", f"raise it: ulimit -n {FEW_FILES * 4}{most}")]
    return found + [note(line, "correct or unset it") for line in unknown_variables(environment)]


def check_config(source: ConfigSource | None, gates: FeatureGates) -> list[Finding]:
    if source is None:
        return [ok("configuration: kube-scheduler's defaults, as none is given (--config)")]
    problems, notes = examine(source.text, gates)
    found = [wrong(f"{source.name}: {problem}") for problem in problems]
    found += [note(f"{source.name}: {each}") for each in notes]
    return found or [ok(f"configuration: {source.name}")]


def _shown(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
