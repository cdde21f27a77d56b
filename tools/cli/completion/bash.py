"""For bash, from 3.2 on."""

import shlex
from collections.abc import Iterator

from tools.cli.completion.cases import filled
from tools.cli.completion.tree import Command, Kind, Value

SCRIPT = """\
# Completion of flotilla for bash: source it.

_flotilla_words() {{
    local IFS=$' \\t\\n'
    COMPREPLY=($(compgen -W "$1" -- "$current"))
}}

_flotilla_paths() {{
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen "$1" -- "$current"))
}}

_flotilla() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local at=flotilla skip="" position=0 i word
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$word" in
            =) continue ;;
            :) skip=1; continue ;;
        esac
        if [[ -n $skip ]]; then skip=""; continue; fi
        case "$at $word" in
{descents}
            *" -"*) ;;
            *) position=$((position + 1)) ;;
        esac
    done
    if [[ $current == "=" ]]; then current=""
    elif [[ $previous == "=" ]]; then previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    case "$at $previous" in
{values}
    esac
    if [[ $current == -* ]]; then
        case "$at" in
{flags}
        esac
        return
    fi
    case "$at" in
{commands}
    esac
    case "$at $position" in
{arguments}
    esac
}}

complete -F _flotilla flotilla
"""


def script(tree: Command) -> str:
    return filled(SCRIPT, tree, _complete, flags=_flags(tree), commands=_commands(tree))


def _complete(value: Value) -> str:
    match value.kind:
        case Kind.WORDS:
            return _words(value.words)
        case Kind.FILE:
            return "_flotilla_paths -f"
        case Kind.FOLDER:
            return "_flotilla_paths -d"
    return ":"


def _flags(tree: Command) -> Iterator[str]:
    for command in tree.all():
        names = tuple(name for flag in command.flags for name in flag.names)
        yield f'"{command.path}") {_words(names)} ;;'


def _commands(tree: Command) -> Iterator[str]:
    for command in tree.all():
        if command.below:
            yield f'"{command.path}") {_words(tuple(below.name for below in command.below))} ;;'


def _words(words: tuple[str, ...]) -> str:
    return f"_flotilla_words {shlex.quote(' '.join(words))}"
