"""flotilla completion: a script by which a shell completes the command."""

import argparse

SHELLS = ("bash", "zsh", "fish")

EXAMPLES = """\
for this shell:
  bash   source <(flotilla completion bash)
  zsh    source <(flotilla completion zsh)
  fish   flotilla completion fish | source

for good:
  bash   flotilla completion bash > ~/.local/share/bash-completion/completions/flotilla
  zsh    flotilla completion zsh > _flotilla       (in a folder of $fpath)
  fish   flotilla completion fish > ~/.config/fish/completions/flotilla.fish
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "completion",
        help="print a script that has a shell complete commands, flags and values",
        description="Prints a script for the shell, which knows the commands of this version.",
        epilog=EXAMPLES,
    )
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tools.cli.completion import bash, fish, zsh
    from tools.cli.completion.tree import tree_of
    from tools.cli.main import parser

    script = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}[options.shell]
    print(script(tree_of(parser())), end="")
    return 0
