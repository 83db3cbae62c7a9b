"""The command ``harness``, and ``python -m harness``."""

from harness import search_path

# Before anything is imported in whose place a file of the user's folder could be found.
search_path.leave_the_head()


def main() -> None:
    from harness.cli import main as run

    run()


if __name__ == "__main__":
    main()
