"""``python -m harness.train``: the same as ``harness train``, for torchrun and other launchers of processes."""

import sys

from harness import search_path

# Before anything is imported in whose place a file of the user's folder could be found.
search_path.leave_the_head()


def main(*arguments: str) -> None:
    from harness.train.main import main as run

    sys.exit(run(list(arguments), prog="python -m harness.train"))


if __name__ == "__main__":
    main(*sys.argv[1:])
