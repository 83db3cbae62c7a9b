"""Kills: real jobs, killed at random and gone on with, against the same jobs undisturbed; and damaged files by the
thousand.

    python -m benchmarks.faults --kills 1000
    python -m benchmarks.faults --fuzz 1000

A trial is one small job (``tests/faults/jobs.py``): it is killed up to six times, the process alone, with its
publisher, the publisher alone or one rank of two, at instants that are drawn from the seed with weights on start and
resumption, checkpoints and publishing, and each time gone on with by the same command that a user would give. Then it
ends, and is compared.

A loss is a checkpoint or a window that was there and is not there whole, a recorded window that never appears, a
``run.json`` that cannot be read at any time, a run that does not go on, that ends with another state, to the last bit,
or with other curves, a wrong exit status, a traceback, or a file left over. ``--keep-failures DIR`` keeps what a trial
with a loss has left; ``--only N`` repeats a trial, as closely as the machine allows. Status 1 where anything was lost.

``--fuzz N`` makes N damaged files for each reader instead (``tests/faults/readers.py``). A fault is an error that is
not the documented one or does not name the file, a reader that takes more than half a minute or 500 MB, or that runs
anything.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.table import Row, arguments, show
from tests.faults.fuzz import fuzz
from tests.faults.fuzz import keep as keep_files
from tests.faults.jobs import JOBS, Job
from tests.faults.readers import READERS
from tests.faults.trial import NO_LOSS, Trial, Undisturbed, choose, keep, trial, undisturbed
from tests.launch import Launcher

PROGRESS_S = 2.0
err = Console(stderr=True)


class Lane:
    """What one process of the pool has: its launcher, its place."""

    launcher: Launcher
    folder: Path

    @staticmethod
    def open(folder: Path) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # TensorBoard says of every run that was gone on with that points of an earlier life are gone.
        logging.getLogger("tensorboard").setLevel(logging.ERROR)
        Lane.folder = Path(tempfile.mkdtemp(dir=folder))
        Lane.launcher = Launcher(Lane.folder)
        # The first job of a launcher compiles and reads what all later ones find in memory.
        undisturbed(Lane.launcher, JOBS[0], Lane.folder / "first")


def train_undisturbed(job: Job) -> Undisturbed:
    return undisturbed(Lane.launcher, job, Path(tempfile.mkdtemp(dir=Lane.folder)) / "undisturbed")


def kill(seed: str, number: int, like: Undisturbed, kept: Path | None) -> Trial:
    job, draw = choose(seed, number)
    with tempfile.TemporaryDirectory(dir=Lane.folder, ignore_cleanup_errors=True) as there:
        folder = Path(there) / "trial"
        made = trial(Lane.launcher, number, job, draw, folder, like)
        if made.losses and kept is not None:
            keep(folder, made, kept)
    return made


def trials(pool: ProcessPoolExecutor, lanes: int, options: Options) -> Iterator[Trial]:
    """One after the other as they end, until there were enough kills; what is under way is waited for."""
    numbers = iter([options.only] if options.only is not None else range(sys.maxsize))
    begun = {job.name: pool.submit(train_undisturbed, job) for job in JOBS}
    like = {name: future.result() for name, future in begun.items()}
    err.print(f"{len(like)} jobs trained undisturbed", highlight=False)
    running: set[Future[Trial]] = set()
    kills = 0
    try:
        while running or kills < options.kills:
            while kills < options.kills and len(running) < lanes and (number := next(numbers, None)) is not None:
                job, _ = choose(options.seed, number)
                running.add(pool.submit(kill, options.seed, number, like[job.name], options.keep_failures))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                made = future.result()
                kills += len(made.kills)
                yield made
    except KeyboardInterrupt:
        err.print("stopped; waiting for what is under way", highlight=False)
        for future in running:
            yield future.result()


class Options(msgspec.Struct):
    """Of the command line."""

    kills: int
    seed: str
    only: int | None
    keep_failures: Path | None


def rows(made: Sequence[Trial]) -> list[Row]:
    """What was done, and what was lost."""
    kills = [one for each in made for one in each.kills]
    lost = Counter(text.partition(":")[0] for each in made for text in each.losses)
    apart = Counter(text.partition(":")[0] for each in made for text in each.found if text.startswith(NO_LOSS))
    total = len(kills) or 1
    found = [
        Row(name="kills", value=len(kills), unit="kills"),
        Row(name="losses", value=lost.total(), unit="losses", ratio=lost.total() / total, versus="kills"),
        *(Row(name=f"  {kind}", value=count, unit="losses") for kind, count in lost.most_common()),
    ]
    for what in ("phase", "victim"):
        counted = Counter(getattr(one, what) for one in kills)
        found += [
            Row(
                name=f"kills of the {name}" if what == "victim" else f"kills at {name}",
                value=count,
                unit="kills",
                ratio=count / total,
                versus="kills",
            )
            for name, count in counted.most_common()
        ]
    found += [
        Row(name="jobs that came to their end", value=sum(not each.losses for each in made), unit="jobs"),
        Row(name="lives", value=sum(each.lives for each in made), unit="lives"),
        Row(name="windows that were seen", value=sum(each.windows for each in made), unit="windows"),
        *(Row(name=f"no loss: {kind}", value=count, unit="times") for kind, count in apart.most_common()),
    ]
    return found


def damage(count: int, seed: str, kept: Path | None) -> tuple[list[Row], bool]:
    """Feed every reader so many damaged files; the rows, and whether there was a fault."""
    counts: Counter[tuple[str, str]] = Counter()
    said = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults.", ignore_cleanup_errors=True) as folder:
        try:
            for answer in fuzz(Path(folder), seed, count):
                counts[answer.reader, answer.outcome] += 1
                if answer.outcome == "fault":
                    where = f"{answer.reader}, number {answer.number}, {answer.file} ({answer.damage})"
                    err.print(f"{where}: {answer.text}", highlight=False, markup=False)
                    if kept is not None:
                        keep_files(Path(folder), answer, kept)
                if time.monotonic() - said > PROGRESS_S:
                    said = time.monotonic()
                    err.print(f"{counts.total()}/{count * len(READERS)} files", highlight=False)
        except KeyboardInterrupt:
            err.print("stopped", highlight=False)
    found = []
    for name in (reader.name for reader in READERS):
        files = sum(counts[name, outcome] for outcome in ("read", "refused", "fault"))
        found.append(Row(name=f"{name}: damaged files", value=files, unit="files"))
        found += [
            Row(
                name=f"  {outcome}",
                value=counts[name, key],
                unit="files",
                ratio=counts[name, key] / (files or 1),
                versus="files",
            )
            for outcome, key in (("refused", "refused"), ("faults", "fault"))
        ]
    return found, any(outcome == "fault" for _, outcome in counts)


def tell(made: Trial) -> None:
    for text in made.losses:
        err.print(f"trial {made.number}, {made.job}: {text}\n  {made.kills}", highlight=False, markup=False)


def stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--fuzz", type=int, metavar="N", help="damaged files for each reader, in place of kills")
    parser.add_argument("--seed", default="0", help="(default: %(default)s)")
    parser.add_argument("--only", type=int, metavar="N", help="the N-th trial of the seed alone")
    parser.add_argument("--lanes", type=int, default=2, help="trials at a time (default: %(default)s)")
    parser.add_argument("--keep-failures", type=Path, metavar="DIR", help="keep there what a trial with a loss left")
    given = parser.parse_args()
    options = Options(kills=given.kills, seed=given.seed, only=given.only, keep_failures=given.keep_failures)
    if options.keep_failures is not None:
        options.keep_failures.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, stop)
    if given.fuzz is not None:
        found, failed = damage(given.fuzz, given.seed, given.keep_failures)
        show(f"Damaged files: seed {given.seed}", found, given.json)
        return int(failed)
    made: list[Trial] = []
    started = said = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults.", ignore_cleanup_errors=True) as folder:
        pool = ProcessPoolExecutor(given.lanes, get_context("spawn"), initializer=Lane.open, initargs=(Path(folder),))
        with pool:
            for one in trials(pool, given.lanes, options):
                made.append(one)
                tell(one)
                if time.monotonic() - said > PROGRESS_S:
                    said = time.monotonic()
                    counts = f"{sum(len(each.kills) for each in made)}/{options.kills} kills, {len(made)} jobs"
                    losses = sum(len(each.losses) for each in made)
                    err.print(f"{counts}, {losses} losses, {said - started:.0f} s", highlight=False)
    show(f"Kills: seed {options.seed}", rows(made), given.json)
    return int(any(one.losses for one in made))


if __name__ == "__main__":
    sys.exit(main())
