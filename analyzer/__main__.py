"""``python -m analyzer`` and the command ``analyze``."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and exits with its status."""
    from analyzer.cli import end_in_order, run_command_line

    end_in_order()
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
