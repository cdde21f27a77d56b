"""For zsh, with what each command and flag is for."""

import shlex
from collections.abc import Iterator

from tools.cli.completion.cases import filled
from tools.cli.completion.tree import Command, Kind, Value

SCRIPT = """\
#compdef flotilla
# Completion of flotilla for zsh: source it, or put it into a folder of $fpath as _flotilla.

_flotilla() {{
    local at=flotilla skip="" word previous="${{words[CURRENT-1]}}"
    local -a told
    integer i position=0
    for ((i = 2; i < CURRENT; i++)); do
        word="${{words[i]}}"
        if [[ -n $skip ]]; then skip=""; continue; fi
        case "$at $word" in
{descents}
            *" -"*) ;;
            *) position=$((position + 1)) ;;
        esac
    done
    if [[ $PREFIX == --*=* ]]; then
        previous="${{PREFIX%%=*}}"
        compset -P '*='
    fi
    case "$at $previous" in
{values}
    esac
    if [[ $PREFIX == -* ]]; then
        case "$at" in
{flags}
        esac
        _describe -o flag told
        return
    fi
    case "$at" in
{commands}
    esac
    if (( $#told )); then
        _describe command told
        return
    fi
    case "$at $position" in
{arguments}
    esac
}}

if [[ $funcstack[1] == _flotilla ]]; then
    _flotilla "$@"
else
    (( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
    compdef _flotilla flotilla
fi
"""


def script(tree: Command) -> str:
    return filled(SCRIPT, tree, _complete, flags=_flags(tree), commands=_commands(tree))


def _complete(value: Value) -> str:
    match value.kind:
        case Kind.WORDS:
            return f"compadd -- {shlex.join(value.words)}"
        case Kind.FILE:
            return "_files"
        case Kind.FOLDER:
            return "_files -/"
    return "_message value"


def _flags(tree: Command) -> Iterator[str]:
    for command in tree.all():
        told = [_told(name, flag.help) for flag in command.flags for name in flag.names]
        yield f'"{command.path}") told=({" ".join(told)}) ;;'


def _commands(tree: Command) -> Iterator[str]:
    for command in tree.all():
        if command.below:
            told = [_told(below.name, below.help) for below in command.below]
            yield f'"{command.path}") told=({" ".join(told)}) ;;'


def _told(name: str, help: str) -> str:
    return shlex.quote(f"{name}:{help}" if help else name)
