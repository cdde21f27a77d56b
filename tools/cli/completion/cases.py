"""What bash and zsh say alike: the arms of `case`, over the path of commands so far and a word."""

import shlex
from collections.abc import Callable, Iterator

from tools.cli.completion.tree import Command, Value

Complete = Callable[[Value], str]
"""What a shell is told to offer for a value."""


def filled(script: str, tree: Command, complete: Complete, *, flags: Iterator[str], commands: Iterator[str]) -> str:
    """The script with its arms: those that both have, and `flags` and `commands`, which each shell says its own way."""
    return script.format(
        descents=_indented(_descents(tree), 12),
        values=_indented(_flag_values(tree, complete), 8),
        flags=_indented(flags, 12),
        commands=_indented(commands, 8),
        arguments=_indented(_arguments(tree, complete), 8),
    )


def _descents(tree: Command) -> Iterator[str]:
    """A sub-command leads one further; a flag with a value has the next word passed over."""
    for command in tree.all():
        for below in command.below:
            yield f"{_pattern(below.path)}) at={shlex.quote(below.path)}; position=0 ;;"
        names = [name for flag in command.flags if flag.value for name in flag.names]
        if names:
            yield f"{'|'.join(_pattern(f'{command.path} {name}') for name in names)}) skip=1 ;;"


def _flag_values(tree: Command, complete: Complete) -> Iterator[str]:
    """After a flag, what it takes."""
    for command in tree.all():
        for flag in command.flags:
            if flag.value:
                patterns = "|".join(_pattern(f"{command.path} {name}") for name in flag.names)
                yield f"{patterns}) {complete(flag.value)}; return ;;"


def _arguments(tree: Command, complete: Complete) -> Iterator[str]:
    """By how many there are already."""
    for command in tree.all():
        for i, value in enumerate(command.arguments):
            last = i == len(command.arguments) - 1
            position = "*" if last and command.repeats else str(i)
            yield f"{_pattern(command.path)}' '{position}) {complete(value)} ;;"


def _indented(lines: Iterator[str], by: int) -> str:
    return "\n".join(f"{' ' * by}{line}" for line in lines)


def _pattern(text: str) -> str:
    return f'"{text}"'
