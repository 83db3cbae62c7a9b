"""The ``harness`` command. Each subcommand imports what it needs, so that only ``train`` loads torch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness import __version__, console, search_path
from harness.commands.board import board
from harness.commands.compare import compare
from harness.commands.report import report
from harness.commands.runs import RunsCommand, runs
from harness.commands.timeline import timeline
from harness.commands.trigger import trigger
from harness.errors import UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Train PyTorch models with a profiler that stays for the whole job, and see in TensorBoard where time goes.",
)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def train(context: typer.Context) -> None:
    """Train a model: Hydra's grammar and flags, as [bold]model=mlp optimizer.lr=1e-2[/]; -m sweeps."""
    from harness.train.main import main as run_training

    raise typer.Exit(run_training(context.args))


app.command(cls=RunsCommand)(runs)
app.command()(report)
app.command()(compare)
app.command()(trigger)
app.command()(board)
app.command()(timeline)


@app.command(hidden=True)
def commands() -> None:
    """The names of all commands, for tab completion."""
    print(" ".join(typer.main.get_command(app).commands))  # type: ignore[attr-defined]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


def main() -> None:
    """A user's mistake ends in one message and status 2."""
    search_path.leave_the_head()
    try:
        app()
    except UsageError as error:
        console.error(error)
        sys.exit(2)
    except OSError as error:
        # A file system that is away, or fails: what lies there is no fault of the command's.
        where = f"{error.filename}: " if error.filename is not None else ""
        console.error(f"{where}{error.strerror or error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
