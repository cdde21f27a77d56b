"""flotilla completion: print a script with which a shell completes the command.

At each Tab the script runs `flotilla` itself, as kubectl's does, so it never goes out of date.
"""

import argparse

SHELLS = ("bash", "zsh", "fish")

DESCRIPTION = "Prints a script with which the shell completes commands, flags and values."
EXAMPLES = """\
for this shell:
  bash   source <(flotilla completion bash)
  zsh    source <(flotilla completion zsh)
  fish   flotilla completion fish | source

permanently:
  bash   flotilla completion bash > ~/.local/share/bash-completion/completions/flotilla
  zsh    flotilla completion zsh > _flotilla       (in a folder of $fpath)
  fish   flotilla completion fish > ~/.config/fish/completions/flotilla.fish
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["flotilla"], shell=options.shell), end="")
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell's request for completions, which is in the environment, and exit."""
    import argcomplete
    from argcomplete.completers import SuppressCompleter

    _annotate(parser)
    argcomplete.autocomplete(parser, default_completer=SuppressCompleter())


def _annotate(parser: argparse.ArgumentParser) -> None:
    """Attach completers to arguments that are files, folders, or settings with a few possible values."""
    from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter, FilesCompleter

    from shared.config import values
    from shared.config.setting_sources import SOURCES

    completers = {"FILE": FilesCompleter, "DIR": DirectoriesCompleter, "FOLDER": DirectoriesCompleter}
    settings = {source.flag: source.read for source in SOURCES if source.flag}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _annotate(command)
        elif action.metavar in completers:
            action.completer = completers[action.metavar]()  # type: ignore[attr-defined]
        for name in action.option_strings:
            if isinstance(setting := settings.get(name), values.OneOf):
                action.completer = ChoicesCompleter(dict.fromkeys(setting.allowed, ""))  # type: ignore[attr-defined]
