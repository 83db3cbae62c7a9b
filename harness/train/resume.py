"""Going on with a run: what it keeps of its configuration, and the overrides given now.

::

    .hydra/{overrides,config,hydra}.yaml    what the run was started with; there before run.json is, never written again
    run.json    the overrides that hold now, those of resumptions among them, and the checksums of all of this

So one file says what holds, and it is replaced as a whole: whatever a kill leaves is the old or the new configuration.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from omegaconf import OmegaConf

from harness import console
from harness.credentials import MASK
from harness.errors import UsageError
from harness.files import TEMPORARY, read_regular, sync_folder
from harness.logdir.layout import HYDRA, MANIFEST
from harness.logdir.manifest import Manifest, read_manifest
from harness.train import overrides

OVERRIDES = "overrides.yaml"
NEVER_KEPT = {"resume", "sweep"}


def complete(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with what a ``resume=RUN`` among them stands for: the run's own overrides, before the new ones.

    Raises:
        UsageError: where RUN is no run, its configuration is damaged, or several are to be resumed at once.
    """
    places = [place for place, text in enumerate(arguments) if overrides.key(text) == "resume"]
    named = overrides.path(arguments[places[-1]]) if places else None
    if named is None:
        return list(arguments)
    if set(overrides.MULTIRUN) & set(arguments):
        raise UsageError("resume goes on with one run; leave out -m")
    run = Path(named)
    given = {overrides.key(text) for text in arguments} | NEVER_KEPT
    kept = [text for text in kept_overrides(run) if overrides.key(text) not in given]
    for text in kept:
        if f":{MASK}@" in text or f"={MASK}" in text:
            raise UsageError(
                f"resume={run}: its override {text} has lost its secret, which is written nowhere; give "
                f"{overrides.key(text)}=... again, without it or as ${{oc.env:NAME}}"
            )
    new = [text for place, text in enumerate(arguments) if place not in places[:-1]]
    place = places[-1] - len(places) + 1
    new[place] = overrides.assign("resume", named)
    # Hydra takes overrides from one place of the line only, so they go where the others are.
    while place and overrides.key(new[place - 1]) is not None:
        place -= 1
    return [*new[:place], *kept, *new[place:]]


def command(run: Path) -> str:
    """The command that goes on with a run, as one pastes it into a shell here, whatever its path is made of."""
    return console.command(f"train {shlex.quote(overrides.assign('resume', console.path(run)))}")


def sweep_command(sweep: str, logdir: Path, *more: str) -> str:
    """The same of a sweep, by its id; the logdir is named unless it lies here, where sweeps are looked for."""
    arguments = [overrides.assign("resume", sweep)]
    if logdir.absolute().parent != Path.cwd():
        arguments.append(overrides.assign("logdir", console.path(logdir)))
    return console.command(f"train -m {shlex.join([*arguments, *more])}")


def kept_overrides(run: Path) -> list[str]:
    """The overrides that hold for ``run``.

    Raises:
        UsageError: where it is no run, or what it has kept is not what it was started with.
    """
    manifest = read_manifest(run)
    require_whole(run, manifest)
    return manifest.overrides


def require_whole(run: Path, manifest: Manifest) -> None:
    """See that the run's configuration is what it was started with.

    Raises:
        UsageError: where a file of it is missing, damaged or another one.
    """
    found = checksums(run, manifest.overrides)
    if manifest.configuration is None:
        # Version 0.1.0 kept no checksums; its two copies agree unless a kill came between them.
        if _list_in(run / HYDRA / OVERRIDES) != manifest.overrides:
            raise _refused(run, run / HYDRA / OVERRIDES, f"is not what {MANIFEST} says", manifest)
        return
    for name, checksum in manifest.configuration.items():
        if found.get(name) == checksum:
            continue
        path = run / MANIFEST if name == "overrides" else run / HYDRA / name
        if name == "overrides":
            why = "has other overrides than the run trained with"
        elif name not in found:
            why = "is missing or cannot be read"
        else:
            why = "is not what the run was started with" if path.stat().st_size else "is empty"
        raise _refused(run, path, why, manifest)


def keep(run: Path, texts: Mapping[str, str]) -> None:
    """Lay down the configuration of a run that does not show yet, all of it or nothing.

    Args:
        texts: By the names of their files.
    """
    final, build = run / HYDRA, run / f"{HYDRA}.{os.getpid()}{TEMPORARY}"
    try:
        build.mkdir()
        for name, text in texts.items():
            with (build / name).open("wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        sync_folder(build)
        # Of a start that was killed: nobody has seen that one.
        shutil.rmtree(final, ignore_errors=True)
        build.rename(final)
        sync_folder(run)
    except OSError:
        shutil.rmtree(build, ignore_errors=True)
        raise


def checksums(run: Path, holding: Sequence[str]) -> dict[str, str]:
    """SHA-256 of each file of a run's configuration, and of the overrides that hold, for its manifest."""
    found = {"overrides": hashlib.sha256(msgspec.json.encode(list(holding))).hexdigest()}
    for path in sorted((run / HYDRA).glob("*.yaml")):
        with suppress(OSError):
            found[path.name] = hashlib.sha256(read_regular(path)).hexdigest()
    return found


def _list_in(path: Path) -> list[str] | None:
    """The texts in a YAML file; None where it cannot be read or holds something else."""
    try:
        found = OmegaConf.to_container(OmegaConf.create(read_regular(path).decode()))
    except Exception:  # a damaged file raises whatever its parser does
        return None
    return [str(text) for text in found] if isinstance(found, list) else None


def _refused(run: Path, path: Path, why: str, manifest: Manifest) -> UsageError:
    trained = " ".join(manifest.overrides) or "no override"
    return UsageError(
        f"{run} cannot be resumed: {path} {why}. Put it back as it was; a change is given as an override, beside "
        f"resume=. By {MANIFEST} the run trained with: {trained}"
    )
