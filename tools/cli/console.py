"""flotilla console: a page that shows what a pipeline does."""

import argparse
import os
from dataclasses import replace

from shared.config.setting_sources import SOURCES
from shared.config.sources import HTTP_FLAG, add_flags, settings_from
from shared.errors import UserError
from tools.cli.arguments import at_least

HTTP_PORT = 8123
"""Where `flotilla console` serves the page by default: a place to come back to."""
FIELDS = frozenset({"nats_url", "prefix", "trace_ratio", "log_format", "log_level"})

DESCRIPTION = """\
Serves a page on this machine that shows what a pipeline does: its figures and services, the nodes
as a map, and its pods with the reasons why they wait. It joins the pipeline through NATS and can
do nothing but look. `flotilla up` serves one of its own.
"""
EXAMPLES = f"""\
examples:
  flotilla console                                    at http://127.0.0.1:{HTTP_PORT}
  flotilla console --nats nats://nats:4222 --port 0   any free port, which is printed
  FLOTILLA_TRACE_URL=http://127.0.0.1:16686 flotilla console
                                                      with links to traces in Jaeger

Elsewhere than on loopback ({HTTP_FLAG} 0.0.0.0:8443) it serves HTTPS, and asks for a token whose user the API server
lets `get` /api/*.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--port", type=at_least(0), metavar="N", help=f"port on 127.0.0.1 (default {HTTP_PORT}; 0: any free port)"
    )
    add_flags(command, without=frozenset({source.field for source in SOURCES} - FIELDS))


def run(options: argparse.Namespace) -> int:
    from tools.console.serving import serve

    settings = settings_from(os.environ, vars(options))
    if options.port is not None and options.http is not None:
        raise UserError(f"--port and {HTTP_FLAG} both name a port: give one of them")
    if options.port is not None or (settings.http_port == 0 and options.http is None):
        settings = replace(settings, http_port=HTTP_PORT if options.port is None else options.port)
    return serve(settings, tell=True)
