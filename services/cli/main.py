"""The flotilla command. What a command needs is imported when it runs, so that help and mistakes are instant."""

import argparse
import sys
from collections.abc import Sequence

from services.cli import (
    bench,
    bench_pipeline,
    bench_quality,
    config,
    conformance,
    demo,
    dump,
    permit,
    queue,
    run,
    simulate,
    up,
    version,
)
from shared.config.commandline import BAD_USAGE, Parser
from shared.errors import FlotillaError, UserError

EXAMPLES = """\
first steps:
  flotilla demo                             a made-up cluster, 10,000 pods, all services; checks what came out
  flotilla up                               the same, empty and yours: prints how kubectl reaches it
  flotilla up --kubeconfig ~/.kube/config   all services here, for a real cluster
  flotilla run worker --nats nats://host    one service, as in a container
  flotilla config validate scheduler.yaml   is the scheduler's configuration file right?

into one that runs:
  flotilla queue                            what waits to be scheduled, why, and for what
  flotilla permit list                      which pods wait to be allowed to be bound
  flotilla dump --output folder             all that it holds, and whether the cluster is so

flotilla COMMAND --help tells more about a command.
"""

COMMANDS = (
    demo,
    up,
    run,
    queue,
    permit,
    dump,
    config,
    simulate,
    conformance,
    bench,
    bench_pipeline,
    bench_quality,
    version,
)


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="flotilla", description="A Kubernetes scheduler that scales out.", epilog=EXAMPLES)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except UserError as mistake:
        for line in mistake.lines():
            print(f"flotilla: {line}", file=sys.stderr)
        return BAD_USAGE
    except FlotillaError as error:
        print(f"flotilla: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
