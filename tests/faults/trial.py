"""One trial: a job is started, killed, gone on with, killed again, and goes on to its end; then it is looked at."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.logdir.layout import staging_root
from tests.faults import outcome
from tests.faults.jobs import JOBS, Job, read_manifest
from tests.faults.outcome import Result
from tests.faults.watch import Instant, Watch
from tests.launch import Command, Ended, Launcher, session, wait_until

LIFE_S = 120.0
"""A job that takes longer hangs."""
NOTICE_S = 15.0
"""How long the other ranks may take to notice that one was killed."""
MOST_KILLS = 6

START = (
    r"logs/[^/]+/[^/]+$",
    r"/\.lock$",
    r"/\.hydra$",
    r"/\.hydra/.*config\.yaml",
    r"/\.hydra/.*hydra\.yaml",
    r"/\.hydra/.*overrides\.yaml",
    r"/\.run\.json\.",
    r"/run\.json$",
    r"/train\.log$",
    r"/events\.out\.",
    r"\.sweep\.json",
)
CHECKPOINT = (r"/checkpoints$", r"/checkpoints/\.step_", r"/checkpoints/step_", r"/checkpoints/\.?best", r"state\.pt")
PUBLISH = (
    r"staging/.*/window_\d+$",
    r"staging/.*/window_\d+/.*\.json$",
    r"staging/.*/window_\d+\.(tmp|job)$",
    r"\.tries$",
    r"\.publishing$",
    r"\.publishing/.*gz$",
    r"\.publishing/window\.json$",
    r"/profile$",
    r"/profile/window_\d+$",
    r"\.ranks",
)
PHASES = {"start or resumption": 0.3, "checkpoint": 0.25, "publishing": 0.25, "any time": 0.2}
PATTERNS = {"start or resumption": START, "checkpoint": CHECKPOINT, "publishing": PUBLISH}
VICTIMS = {"job": 0.5, "job and publisher": 0.35, "publisher": 0.15}
NO_LOSS = ("part interval", "window not recorded", "without findings", "left by a run that never showed")
"""What is counted and is none."""


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One that was made."""

    phase: str
    victim: str
    instant: str


class Trial(msgspec.Struct, kw_only=True):
    """What came of one."""

    number: int
    job: str
    kills: list[Kill]
    lives: int
    windows: int
    """That were visible."""
    checkpoints: int
    """The newest step that was acknowledged, of all its runs together."""
    found: list[str]
    """What is wrong, a line each; the kind stands before the colon."""
    seconds: float

    @property
    def losses(self) -> list[str]:
        return [text for text in self.found if not text.startswith(NO_LOSS)]


class Shot(msgspec.Struct, kw_only=True):
    """One to be made."""

    phase: str
    victim: str
    instant: Instant


def draw_shot(draw: random.Random, seconds: float, size: int) -> Shot:
    """When to kill whom, with weights on what is written.

    Args:
        seconds: How long the undisturbed job took.
        size: Ranks; of several, one may die alone.
    """
    (phase,) = draw.choices(list(PHASES), list(PHASES.values()))
    (victim,) = draw.choices(list(VICTIMS), list(VICTIMS.values()))
    if size > 1 and victim == "job":
        victim = "one rank"
    if phase == "any time":
        instant = Instant(draw.uniform(0, seconds))
    else:
        # Mostly at once: what is small is written in microseconds.
        delay = draw.choice((0.0, 0.02 * draw.random() ** 3, 0.02 * draw.random()))
        latest, number = draw.uniform(0.6, 1.1) * seconds, draw.choice((1, 1, 1, 2, 2, 3, 5))
        instant = Instant(latest, draw.choice(PATTERNS[phase]), number=number, delay=delay)
    return Shot(phase=phase, victim=victim, instant=instant)


class Killer:
    """Kills processes of a job, and no others."""

    def __init__(self, commands: Sequence[Command], victim: str, draw: random.Random) -> None:
        self._commands, self._victim = commands, victim
        self._one = draw.choice(commands)

    def __call__(self) -> None:
        if self._victim == "publisher":
            for pid in self._publishers():
                _kill(pid)
            return
        for command in [self._one] if self._victim == "one rank" else self._commands:
            command.signal(signal.SIGKILL)
        if self._victim == "job and publisher":
            for command in self._commands:
                command.kill_session()
            # As where the machine goes down: nobody goes on while some of it lives.
            wait_until(lambda: not session(*(command.pid for command in self._commands)), LIFE_S, "its end")

    def _publishers(self) -> list[int]:
        found = [pid for command in self._commands for pid in session(command.pid) if pid != command.pid]
        return [pid for pid in found if b"harness.publish" in _command_line(pid)]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Undisturbed(msgspec.Struct, kw_only=True):
    """What a job comes to where nobody kills it."""

    results: dict[str, Result]
    seconds: float


def undisturbed(launcher: Launcher, job: Job, folder: Path) -> Undisturbed:
    """Train it to its end."""
    folder.mkdir(parents=True)
    started = time.monotonic()
    lives = 0
    while not job.is_over(folder):
        ended = [command.wait(LIFE_S) for command in job.begin(launcher, folder)]
        assert all(one.status == 0 for one in ended), "\n".join(one.text for one in ended)
        lives += 1
    seconds = (time.monotonic() - started) / lives
    return Undisturbed(
        results={name: outcome.result(run) for name, run in job.results(folder).items()}, seconds=seconds
    )


def choose(seed: str, number: int, jobs: Sequence[Job] = JOBS) -> tuple[Job, random.Random]:
    """The job of a trial, and what the rest is drawn from."""
    draw = random.Random(f"{seed}/{number}")
    (job,) = draw.choices(jobs, [job.weight for job in jobs])
    return job, draw


def trial(launcher: Launcher, number: int, job: Job, draw: random.Random, folder: Path, like: Undisturbed) -> Trial:
    """Kill a job at random until it has had enough, and let it end.

    Args:
        number: Of the trial.
        folder: A new one, for all that it writes.
        like: What the job comes to undisturbed.
    """
    folder.mkdir(parents=True)
    started = time.monotonic()
    made = Trial(number=number, job=job.name, kills=[], lives=0, windows=0, checkpoints=0, found=[], seconds=0.0)
    wanted = draw.randint(1, MOST_KILLS)
    with Watch(folder) as watch:
        while not job.is_over(folder) and not made.found:
            _live(launcher, job, draw, folder, like, watch, made, more=wanted - len(made.kills))
        if not made.losses:
            _look_at_the_end(launcher, job, folder, watch, made, like)
        launcher.end_all()
    made.found += watch.seen.faults
    made.windows = len(watch.seen.windows)
    made.checkpoints = sum(watch.seen.acknowledged.values())
    made.seconds = time.monotonic() - started
    return made


def _live(
    launcher: Launcher,
    job: Job,
    draw: random.Random,
    folder: Path,
    like: Undisturbed,
    watch: Watch,
    made: Trial,
    more: int,
) -> None:
    """One life of the job: to its end, or until it is killed."""
    made.lives += 1
    shots = [draw_shot(draw, like.seconds, job.size) for _ in range(draw.randint(1, 2))] if more > 0 else []
    before = _steps(folder, watch)
    commands = job.begin(launcher, folder)
    killed = False
    for shot in shots:
        watch.aim(shot.instant, Killer(commands, shot.victim, draw))
        while not watch.shot.is_set() and any(command.running for command in commands):
            watch.shot.wait(0.01)
        watch.stand_down()
        if watch.shot.is_set():
            phase = shot.phase if watch.hit else "any time"
            made.kills.append(Kill(phase=phase, victim=shot.victim, instant=watch.hit or "at a random time"))
            killed = killed or shot.victim != "publisher"
        if killed:
            break
    if killed and len(commands) > 1:
        _end_the_others(commands)
    try:
        ended = [command.wait(LIFE_S) for command in commands]
    except AssertionError as error:
        doing = [_doing(pid) for command in commands for pid in session(command.pid)]
        made.found.append(f"hang: {error}; {doing}")
        return
    watch.settle()
    made.found += _wrong_ends(ended, killed)
    for run, acknowledged in before.items():
        now = read_manifest(folder / "logs" / run).resumed_from if run in watch.seen.runs else []
        if now and len(now) > acknowledged[0] and now[-1] < acknowledged[1]:
            made.found.append(f"resumption: {run} went on from {now[-1]}, and {acknowledged[1]} was acknowledged")
    for run in watch.seen.runs:
        made.found += outcome.torn_checkpoints(folder / "logs" / run, watch.seen.acknowledged.get(run))


def _end_the_others(commands: Sequence[Command]) -> None:
    """What a launcher does with ranks that do not notice by themselves that one has died, as before they have met."""
    until = time.monotonic() + NOTICE_S
    while any(command.running for command in commands) and time.monotonic() < until:
        time.sleep(0.05)
    for command in commands:
        command.signal(signal.SIGKILL)


def _doing(pid: int) -> str:
    """What a process waits for, as far as the kernel says."""
    lines = [_command_line(pid)[:80].replace(b"\0", b" ").decode(errors="replace")]
    for name in ("wchan", "syscall", "stack"):
        try:
            lines.append(Path(f"/proc/{pid}/{name}").read_text().strip()[:200])
        except OSError:
            continue
    return f"{pid}: {' | '.join(lines)}"


def _steps(folder: Path, watch: Watch) -> dict[str, tuple[int, int]]:
    """Of each run how often it was gone on with, and the newest step that it has to go on from."""
    return {
        run: (len(read_manifest(folder / "logs" / run).resumed_from), watch.seen.acknowledged.get(run, 0))
        for run in watch.seen.runs
    }


def _wrong_ends(ended: Sequence[Ended], killed: bool) -> list[str]:
    found = []
    for one in ended:
        # A loader's worker whose job is killed loses its connection, and a rank that joins the others loses them.
        of_the_kill = killed and (len(ended) > 1 or one.status == 128 + signal.SIGKILL)
        if "Traceback" in one.text and not of_the_kill:
            found.append(f"traceback: {one.text[one.text.index('Traceback') :]}")
        alone = killed and len(ended) > 1 and "cannot join the others" in one.said
        if one.status not in ((0, 1, 128 + signal.SIGKILL) if killed else (0,)) and not alone:
            found.append(f"status: {one.status}: {one.text[-2000:]}")
    return found


def _look_at_the_end(launcher: Launcher, job: Job, folder: Path, watch: Watch, made: Trial, like: Undisturbed) -> None:
    logdir = folder / "logs"
    staging = staging_root(logdir)
    wait_until(lambda: not launcher.living(), LIFE_S, "publishers that go on to end", every=0.03)
    if staging.exists():
        # The last kill left it so; whoever reports publishes what waits.
        done = launcher.run("report", str(logdir), cwd=folder)
        if done.status != 0:
            made.found.append(f"status: harness report: {done.text}")
    watch.settle()
    for name, first_sight in watch.seen.windows.items():
        made.found += outcome.torn_window(logdir / name, first_sight)
    for name in sorted(watch.seen.recorded - watch.seen.windows.keys()):
        made.found.append(f"recorded window: {name} was finished and never appeared")
    made.found += _leftovers(logdir, staging, watch.seen.runs)
    results = job.results(folder)
    if results.keys() != like.results.keys():
        made.found.append(f"resumption: there are the runs {sorted(results)}, not {sorted(like.results)}")
        return
    for name, run in results.items():
        try:
            ours = outcome.result(run)
        except Exception as error:
            made.found.append(f"resumption: the end of {name} cannot be read: {type(error).__name__}: {error}")
            continue
        resumed_from = read_manifest(run).resumed_from
        made.found += outcome.differences(ours, like.results[name], job.log_every, resumed_from)


def _leftovers(logdir: Path, staging: Path, shown: set[str]) -> Iterator[str]:
    """Files that nobody needs any more. What a run has left that was killed before its ``run.json``, nobody goes on
    with: it is no loss, and told apart."""
    for root in (logdir, staging):
        for path in sorted(root.rglob("*")):
            below = str(path.relative_to(root))
            if root == logdir and not path.name.endswith((".tmp", ".aside")):
                continue
            if path.is_dir() and any(path.iterdir()):
                continue
            of_none = shown and not any(below == run or below.startswith(f"{run}/") for run in shown)
            kind = "left by a run that never showed" if of_none else "leftover"
            yield f"{kind}: {path.relative_to(logdir.parent)}"


def keep(folder: Path, made: Trial, kept: Path) -> None:
    """Copy what a trial has left, with what was wrong, for somebody to look at."""
    there = kept / f"trial_{made.number}"
    shutil.copytree(folder, there, symlinks=True)
    (there / "trial.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2))
