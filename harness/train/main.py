"""From a command line to trained runs: composed by Hydra, and each trained by :mod:`harness.train.run`.

Starts without torch, so that a mistake is told at once. Run by ``harness train`` and by ``python -m harness.train``,
with Hydra's grammar and flags.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness import console, credentials, search_path
from harness.config import misspelt, names, overrides, schema
from harness.distributed import launch
from harness.distributed.world import World, join
from harness.errors import DivergedError, NotSavedError, UsageError
from harness.logdir.layout import MANIFEST
from harness.train import completion, resume, sweep
from harness.train.run import InterruptedRun, Runs

THE_USERS = (UsageError, HydraException, OmegaConfBaseException)
"""Mistakes in what was asked for."""


def main(arguments: list[str] | None = None, *, prog: str = "harness train") -> int:
    """Run Hydra's command line.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad usage or input, 129, 130 or 143 interrupted.
    """
    with console.lasting():
        return Command(prog, sys.argv[1:] if arguments is None else arguments).run()


class Command:
    """One command, from its line to its exit status."""

    def __init__(self, prog: str, arguments: Sequence[str]) -> None:
        self._prog, self._arguments = prog, list(arguments)
        self._wants_traceback = "HYDRA_FULL_ERROR" in os.environ
        self._world = World()
        self._sweep: sweep.Followed | None = None

    def run(self) -> int:
        failed = False
        try:
            if script := completion.script(self._arguments):
                print(script)
            else:
                self._world = join()
                self._train()
        except InterruptedRun as stop:
            return _status_of_stop(int(stop.code or 0))
        except launch.ProcessesEnded as ended:
            return ended.status
        except Exception as error:
            failed = True
            if self._wants_traceback:
                traceback.print_exc()
            return self._report(error)
        finally:
            self._world.leave(failed=failed)
        return 0

    def _train(self) -> None:
        schema.register()
        world, arguments = self._world, self._arguments
        name = world.agree("run", names.new_name())
        in_sweep = bool(set(overrides.MULTIRUN) & set(arguments))
        if in_sweep and world.joined:
            raise UsageError(
                "a sweep starts the processes of each of its runs itself: harness train -m trainer.devices=N"
            )
        if (path := world.earlier_path()) is not None and (Path(path) / MANIFEST).exists():
            arguments = [*arguments, overrides.assign("resume", path)]
        if in_sweep:
            arguments, before = sweep.resumed(arguments)
            name = before or name
            self._sweep = sweep.Followed(sweep.Sweep(id=name, arguments=list(arguments)))
            arguments = [*arguments, f"sweep={name}", sweep.names_only_what_varies(arguments)]
        else:
            arguments = resume.complete(arguments)
        # Hydra keeps a sweep's arguments, and its errors repeat them.
        if secret := [text.partition("=")[0] for text in arguments if credentials.has_secret(text)]:
            raise UsageError(
                *(f"{key}: its address holds a password or a token, and {credentials.HOW}" for key in secret)
            )
        runs = Runs(world=world, followed=self._sweep, wants_traceback=self._wants_traceback)
        sheltered = search_path.Sheltered() if in_sweep else nullcontext()
        with (
            names.resolvers(name),
            sweep.following(self._sweep),
            _hydra_environment([self._prog, *arguments]),
            sheltered,
        ):
            self._compose(runs)
        if runs.error is not None:
            raise runs.error

    def _compose(self, runs: Runs) -> None:
        """Have Hydra compose what is asked for, and call ``runs`` with it."""
        try:
            hydra.main(version_base="1.3", config_path=str(schema.CONF), config_name="config")(runs.train)()
        except (HydraException, UsageError):
            raise
        except Exception as error:
            if self._sweep is not None and self._sweep.could_not_begin():
                raise UsageError(f"no job of the sweep could be started: {error}") from error
            if runs.began or self._sweep is not None or not isinstance(error, OSError):
                raise
            raise UsageError(f"the run's directory cannot be made: {error}; choose another logdir") from error
        finally:
            if self._sweep is not None:
                self._sweep.show()

    def _report(self, error: Exception) -> int:
        """Say what went wrong, briefly where it is the user's to mend, and once for all ranks; the exit status."""
        known = self._sweep.errors if self._sweep is not None else ()
        if isinstance(error, THE_USERS):
            message = _explained(error)
            if self._world.leads and message not in known:
                hidden = isinstance(error, UsageError) and error.__cause__ is not None
                console.error(message + ("\n(HYDRA_FULL_ERROR=1 shows where)" if hidden else ""))
            return 2
        if isinstance(error, DivergedError | NotSavedError):
            if self._world.leads and str(error) not in known:
                console.error(error)
            return 1
        traceback.print_exception(error)
        return 1


def _explained(error: Exception) -> str:
    explained = misspelt.explain(error, schema.CONF)
    message = explained or str(error)
    if not explained and isinstance(error, HydraException) and str(error.__cause__ or "") not in message:
        message += f"\n{error.__cause__}"
    # Where in OmegaConf's own tree of types it happened helps nobody.
    return "\n".join(line for line in message.splitlines() if "_type=" not in line)


def _status_of_stop(status: int) -> int:
    """An elastic launcher that may start the processes again takes every status but 0 as its sign to do so."""
    return 0 if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) else status


@contextmanager
def _hydra_environment(argv: list[str]) -> Iterator[None]:
    """What Hydra reads from the process, and where modules of the user's own are found."""
    saved_argv, saved_path, saved_errors = sys.argv, list(sys.path), os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = argv
    search_path.join_users_folder()
    # Hydra ends errors with a message of its own and status 1 unless it is told to let them through.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv, sys.path[:] = saved_argv, saved_path
        if saved_errors is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
