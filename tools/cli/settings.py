"""flotilla config settings: what is set, and where it comes from."""

import argparse
import json
import os

from shared.config.sources import SOURCES, Given, Kind, add_flags, all_given, settings_of
from tools.cli.pods import table

EXAMPLES = """\
examples:
  flotilla config settings                             what services started from here would have
  flotilla config settings --settings flotilla.yaml    the same with this file
  flotilla config settings -o markdown                 all settings there are, as a table
"""


def add_to(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    action = actions.add_parser(
        "settings",
        help="print what is set, and where each value comes from",
        description="Prints every setting with its value and the place that decides: the default, a file, a variable\n"
        "or a flag. Passwords and tokens are not shown.",
        epilog=EXAMPLES,
    )
    action.add_argument(
        "-o", "--output", choices=("text", "json", "yaml", "markdown"), default="text", help="default text"
    )
    add_flags(action)
    action.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.output == "markdown":
        from shared.config.sources import settings_table

        print(settings_table())
        return 0
    told = _told(options)
    if options.output == "json":
        print(json.dumps(told, indent=2))
    elif options.output == "yaml":
        from shared.config.kubernetes_yaml import write_yaml

        print(write_yaml(told), end="")
    else:
        rows = [(field, str(each["value"]), f"{each['from']} {each['origin']}".strip()) for field, each in told.items()]
        shown = [(field, "-" if value in ("", "None") else value, place) for field, value, place in rows]
        print("\n".join(table([("SETTING", "VALUE", "FROM"), *shown])))
    return 0


def _told(options: argparse.Namespace) -> dict[str, dict[str, object]]:
    given = all_given(os.environ, vars(options))
    settings = settings_of({field: each.value for field, each in given.items()})
    told: dict[str, dict[str, object]] = {}
    for source in SOURCES:
        place = given.get(source.field) or Given(source.default, Kind.DEFAULT, "")
        told[source.field] = {"value": source.in_force(settings), "from": str(place.kind), "origin": place.origin}
    return told
