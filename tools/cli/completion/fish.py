"""For fish, with what each command and flag is for."""

from collections.abc import Iterator

from tools.cli.completion.tree import Command, Flag, Kind, Value

SCRIPT = """\
# Completion of flotilla for fish: source it, or save it as flotilla.fish among fish's completions.

function __flotilla_at -d 'the commands typed so far, and how many arguments'
    set -l at flotilla
    set -l skip no
    set -l position 0
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        if test $skip = yes
            set skip no
            continue
        end
        switch "$at $word"
{descents}
            case '* -*'
            case '*'
                set position (math $position + 1)
        end
    end
    printf '%s\\n' $at $position
end

function __flotilla_is
    set -l found (__flotilla_at)
    test "$found[1]" = "$argv"
end

function __flotilla_argument
    set -l found (__flotilla_at)
    test "$found[1]" = "$argv[2..-1]"; and begin
        test "$argv[1]" = any; or test "$found[2]" = "$argv[1]"
    end
end

complete -c flotilla -e
complete -c flotilla -f
{completions}
"""


def script(tree: Command) -> str:
    return SCRIPT.format(descents="\n".join(_descents(tree)), completions="\n".join(_completions(tree)))


def _descents(tree: Command) -> Iterator[str]:
    for command in tree.all():
        for below in command.below:
            yield f"            case {_quoted(below.path)}"
            yield f"                set at {_quoted(below.path)}"
            yield "                set position 0"
        names = [name for flag in command.flags if flag.value for name in flag.names]
        if names:
            yield f"            case {' '.join(_quoted(f'{command.path} {name}') for name in names)}"
            yield "                set skip yes"


def _completions(tree: Command) -> Iterator[str]:
    for command in tree.all():
        here = f"complete -c flotilla -n {_quoted(f'__flotilla_is {command.path}')}"
        for below in command.below:
            yield f"{here} -a {_quoted(below.name)} -d {_quoted(below.help)}"
        for flag in command.flags:
            yield f"{here} {_flag(flag)} -d {_quoted(flag.help)}"
        for i, value in enumerate(command.arguments):
            position = "any" if command.repeats and i == len(command.arguments) - 1 else str(i)
            values = _values(value)
            if values:
                condition = f"__flotilla_argument {position} {command.path}"
                yield f"complete -c flotilla -n {_quoted(condition)} {values}"


def _flag(flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    if flag.value is None:
        return names
    values = _values(flag.value)
    return f"{names} {values}" if flag.value.kind == Kind.FILE else f"{names} -x {values}".rstrip()


def _values(value: Value) -> str:
    match value.kind:
        case Kind.WORDS:
            return f"-a {_quoted(' '.join(value.words))}"
        case Kind.FILE:
            return "-r -F"
        case Kind.FOLDER:
            return "-a '(__fish_complete_directories)'"
    return ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
