"""``python -m analyzer`` and the command ``analyze``."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exits with its status."""
    from analyzer.cli import clean_up_on_sigterm, run_command_line

    clean_up_on_sigterm()
    status = run_command_line(sys.argv[1:])
    # The interpreter ends with a search for garbage, which goes with the process anyway.
    gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
