"""Going on with a run: the overrides that it was started with, and the ones given now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from harness.credentials import MASK
from harness.errors import UsageError
from harness.files import read_regular
from harness.run import HYDRA, read_manifest

OVERRIDES = "overrides.yaml"
NEVER_KEPT = {"resume", "sweep"}


def complete(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with what a ``resume=RUN`` among them stands for: the run's own overrides, before the new ones.

    Raises:
        UsageError: where RUN is no run, or several are to be resumed at once.
    """
    runs = [value for key, value in map(_split, arguments) if key == "resume" and value not in ("", "null")]
    if not runs:
        return list(arguments)
    if {"-m", "--multirun"} & set(arguments):
        raise UsageError("resume goes on with one run; leave out -m")
    run = Path(runs[-1].strip("'\""))
    read_manifest(run)
    given = {key for key, _ in map(_split, arguments)}
    kept = [text for text in saved_overrides(run) if _split(text)[0] not in given | NEVER_KEPT]
    for text in kept:
        if f":{MASK}@" in text or f"={MASK}" in text:
            raise UsageError(
                f"resume={run}: its override {text} has lost its secret, which is written nowhere; give "
                f"{_split(text)[0]}=... again, without it or as ${{oc.env:NAME}}"
            )
    return [*kept, *arguments]


def saved_overrides(run: Path) -> list[str]:
    """The overrides that ``run`` was started with.

    Raises:
        UsageError: where the run has not kept them.
    """
    path = run / HYDRA / OVERRIDES
    try:
        overrides = OmegaConf.to_container(OmegaConf.create(read_regular(path).decode()))
    except Exception as error:  # a damaged file raises whatever its parser does
        raise UsageError(f"{run} cannot be resumed: {path} cannot be read ({error})") from error
    return [str(text) for text in overrides or []]


def _split(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value
