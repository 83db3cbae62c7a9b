"""``python -m harness.train``: the same as ``harness train``, for torchrun and other launchers of processes."""

import sys

from harness.train.main import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m harness.train"))
