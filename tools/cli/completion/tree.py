"""What can be typed, as a tree of commands: read off the parser, for all shells alike."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from shared.config import values
from shared.config.sources import SOURCES


class Kind(Enum):
    WORDS = auto()
    FILE = auto()
    FOLDER = auto()
    ANYTHING = auto()


@dataclass(frozen=True, slots=True)
class Value:
    """What may stand somewhere; `words` only where that is one of a few."""

    kind: Kind
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """`value` is none where it takes none."""

    names: tuple[str, ...]
    help: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class Command:
    """`path` is how one comes there, `flotilla config show`. `arguments`: in their order; the last one may repeat."""

    path: str
    help: str
    flags: tuple[Flag, ...]
    arguments: tuple[Value, ...]
    repeats: bool
    below: tuple["Command", ...]

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]

    def all(self) -> Iterator["Command"]:
        yield self
        for command in self.below:
            yield from command.all()


METAVARS = {"FILE": Kind.FILE, "DIR": Kind.FOLDER, "FOLDER": Kind.FOLDER}
SETTINGS = {source.flag: source.read for source in SOURCES if source.flag}


def tree_of(parser: argparse.ArgumentParser, help: str = "") -> Command:
    flags: list[Flag] = []
    arguments: list[Value] = []
    repeats = False
    below: list[Command] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below += [tree_of(command, helps.get(name, "")) for name, command in action.choices.items()]
        elif action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            flags.append(Flag(tuple(action.option_strings), _one_line(action, parser), value))
        else:
            arguments.append(_value(action))
            repeats = action.nargs in (argparse.ZERO_OR_MORE, argparse.ONE_OR_MORE)
    return Command(parser.prog, " ".join(help.split()), tuple(flags), tuple(arguments), repeats, tuple(below))


def _value(action: argparse.Action) -> Value:
    setting = next((SETTINGS[name] for name in action.option_strings if name in SETTINGS), None)
    if action.choices is not None:
        return Value(Kind.WORDS, tuple(map(str, action.choices)))
    if isinstance(setting, values.OneOf):
        return Value(Kind.WORDS, setting.allowed)
    return Value(METAVARS.get(str(action.metavar), Kind.ANYTHING))


def _one_line(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (action.help or "") % {"prog": parser.prog, "default": action.default}
    return " ".join(text.split())
