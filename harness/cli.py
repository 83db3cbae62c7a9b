"""The ``harness`` command. Each subcommand imports what it needs, so that only ``train`` loads torch."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness import __version__, console
from harness.errors import UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Train PyTorch models with a profiler that stays for the whole job, and see in TensorBoard where time goes.",
)

Logdir = Annotated[Path, typer.Argument(help="Where runs were written.", show_default=True)]


class Format(StrEnum):
    table = "table"
    json = "json"


class ReportFormat(StrEnum):
    table = "table"
    markdown = "markdown"
    json = "json"


class Grouping(StrEnum):
    name = "name"
    shape = "shape"


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def train(context: typer.Context) -> None:
    """Train a model: Hydra's grammar and flags, as [bold]model=mlp optimizer.lr=1e-2[/]; -m sweeps."""
    from harness.train import main as run_training

    raise typer.Exit(run_training(context.args))


@app.command()
def runs(
    logdir: Logdir = Path("tb_logs"),
    format: Annotated[Format, typer.Option(help="A table for people, JSON for programs.")] = Format.table,
) -> None:
    """List runs and sweeps, newest first: status, steps, loss, throughput, windows."""
    import msgspec

    from harness.runs import collect, show

    rows = list(collect(logdir))
    if format is Format.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    elif rows:
        show(rows)
    else:
        console.out.print(f"There are no runs in {logdir} yet. Start one: harness train")


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="A trace file, a window, a run, or a logdir (its newest run).")],
    window: Annotated[
        int | None,
        typer.Option(help="The window of a run that begins at this step; -1 is the newest, -2 the one before."),
    ] = None,
    sort_by: Annotated[
        str | None, typer.Option(help="Operators by this column, in torch's names, as cuda_time_total.")
    ] = None,
    group_by: Annotated[Grouping, typer.Option(help="Operators by name, or by name and input shapes.")] = Grouping.name,
    rows: Annotated[int, typer.Option(help="Rows of every long table.", min=1)] = 15,
    step_ms: Annotated[
        float | None, typer.Option(help="Time of a step without the profiler, for a trace that lacks it.")
    ] = None,
    format: Annotated[
        ReportFormat, typer.Option(help="A table for people, Markdown for an issue, JSON for programs.")
    ] = ReportFormat.table,
    stacks: Annotated[
        Path | None,
        typer.Option(help="Write folded call stacks here too (flamegraph.pl, speedscope); needs with_stack."),
    ] = None,
) -> None:
    """Show what a window says: verdict and advice, where time and memory go, operators, kernels, a timeline."""
    from harness.report import report as show

    show(
        path,
        window=window,
        sort_by=sort_by,
        by_shape=group_by is Grouping.shape,
        rows=rows,
        step_ms=step_ms,
        format=format.value,
        stacks=stacks,
    )


@app.command()
def trigger(
    run: Annotated[Path, typer.Argument(help="The run directory of a job that runs.")],
    steps: Annotated[
        int | None, typer.Option(help="Steps to record; the schedule's number where none is given.", min=1)
    ] = None,
    with_stack: Annotated[bool, typer.Option("--with-stack", help="Python call stacks; they slow the steps most.")] = (
        False
    ),
    memory: Annotated[bool, typer.Option("--memory", help="Every allocation.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the window.", min=0)] = 600.0,
) -> None:
    """Ask a running job for a window soon; prints the window's path when it is there."""
    from harness.trigger import trigger as ask

    print(ask(run, steps=steps, with_stack=with_stack, memory=memory, timeout_s=timeout))


@app.command()
def board(
    logdir: Logdir = Path("tb_logs"),
    port: Annotated[int | None, typer.Option(help="The first free one from 6006 on where none is given.")] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine reach no loopback one.")
    ] = "localhost",
    open: Annotated[bool, typer.Option("--open", help="Open the tab Windows in the browser.")] = False,
) -> None:
    """Start TensorBoard on a logdir or a run, until Ctrl-C."""
    from harness.board.launcher import serve

    serve(logdir, host=host, port=port, open_browser=open)


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
    """The entry point: a user's mistake ends in one message and status 2."""
    try:
        app()
    except UsageError as error:
        console.error(error)
        sys.exit(2)
