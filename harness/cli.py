"""The ``harness`` command. Each subcommand imports what it needs, so that only ``train`` loads torch."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from harness import __version__, console, search_path
from harness.commands.board import board
from harness.commands.options import Logdir, Trace, Window
from harness.commands.timeline import timeline
from harness.errors import UsageError
from harness.schedule import STEPS_AT_MOST

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Train PyTorch models with a profiler that stays for the whole job, and see in TensorBoard where time goes.",
)


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
    from harness.train.main import main as run_training

    raise typer.Exit(run_training(context.args))


class RunsCommand(TyperCommand):
    """`--sweep` alone is the newest one, which Typer's options cannot say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from harness.commands.runs import NEWEST

        for place, text in enumerate(args):
            following = args[place + 1] if place + 1 < len(args) else "-"
            if text == "--sweep" and (following.startswith("-") or Path(following).is_dir()):
                args = [*args[: place + 1], NEWEST, *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)


@app.command(cls=RunsCommand)
def runs(
    logdir: Logdir = Path("tb_logs"),
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="[ID]",
            help="The runs of one sweep, by the beginning of its id (the newest one where none is given), and which "
            "of them no other beats in speed and loss.",
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Of a sweep over one number, draw step time, host and device against it: an SVG file."),
    ] = None,
    format: Annotated[Format, typer.Option(help="A table for people, JSON for programs.")] = Format.table,
) -> None:
    """List runs, newest first, or one sweep: status, steps, loss, throughput, windows."""
    from harness.commands.runs import runs as show

    show(logdir, sweep=sweep, figure=figure, format=format.value)


@app.command()
def report(
    path: Trace,
    window: Window = None,
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
    from harness.commands.report import report as show

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
def compare(
    before: Annotated[Path, typer.Argument(help="A trace file, a window or a run.")],
    after: Annotated[Path, typer.Argument(help="Another one.")],
    fail_over: Annotated[
        str | None,
        typer.Option(help="Exit status 1 where step time or peak memory has grown by more, beyond noise: 5%."),
    ] = None,
    per_sample: Annotated[
        bool, typer.Option("--per-sample", help="Divide times by what a step trains on: for other batch sizes.")
    ] = False,
    rows: Annotated[int, typer.Option(help="Rows of every table.", min=1)] = 15,
    format: Annotated[
        ReportFormat, typer.Option(help="A table for people, Markdown for a pull request, JSON for programs.")
    ] = ReportFormat.table,
) -> None:
    """Show what differs between two runs, windows or traces, and what of it is more than noise."""
    from harness.commands.compare import run

    gate = run(before, after, fail_over=fail_over, per_sample=per_sample, rows=rows, format=format.value)
    for line in gate.lines:
        console.err.print(console.plain(line), highlight=False, soft_wrap=True)
    if not gate.kept:
        raise typer.Exit(1)


@app.command()
def trigger(
    run: Annotated[Path, typer.Argument(help="The run directory of a job that runs.")],
    steps: Annotated[
        int | None,
        typer.Option(help="Steps to record; the schedule's number where none is given.", min=1, max=STEPS_AT_MOST),
    ] = None,
    with_stack: Annotated[bool, typer.Option("--with-stack", help="Python call stacks; they slow the steps most.")] = (
        False
    ),
    memory: Annotated[bool, typer.Option("--memory", help="Every allocation.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the window.", min=0)] = 600.0,
) -> None:
    """Ask a running job for a window soon; prints the window's path when it is there."""
    from harness.commands.trigger import trigger as ask

    print(ask(run, steps=steps, with_stack=with_stack, memory=memory, timeout_s=timeout))


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
