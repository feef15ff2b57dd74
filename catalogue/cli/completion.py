"""``catalogue completion``."""

import click
from click.shell_completion import get_completion_class

from catalogue.cli.app import Common, command, entry
from catalogue.cli.options import OneOf

_SHELLS = ["bash", "zsh", "fish"]


@command()
@click.argument("shell", type=OneOf(_SHELLS))
def completion(_: Common, *, shell: str) -> None:
    """Print a script for completion in a shell.

    It completes commands, options, crawls and columns. Crawls are those of the data folder; no requests are made.
    Save the script where the shell finds it. For zsh that is a folder of fpath: add fpath+=~/.zfunc before compinit in
    ~/.zshrc. The last example is for the current shell.

    \b
    catalogue completion bash > ~/.local/share/bash-completion/completions/catalogue
    catalogue completion zsh > ~/.zfunc/_catalogue
    catalogue completion fish > ~/.config/fish/completions/catalogue.fish
    eval "$(catalogue completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind  # noqa: S101 - click has all three
    script = kind(entry, {}, "catalogue", "_CATALOGUE_COMPLETE").source()
    click.echo(script.replace('string split ","', 'string split -m 1 ","'))  # for fish: words have commas, too
