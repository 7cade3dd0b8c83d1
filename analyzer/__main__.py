"""``python -m analyzer`` and the command ``analyze``."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exits with its status."""
    # As ``process.SELDOM``, whose module is slow to import: what is imported and predicted lives on.
    gc.set_threshold(500_000, 50, 100)
    from analyzer.cli import clean_up_on_sigterm, run_command_line

    clean_up_on_sigterm()
    status = run_command_line(sys.argv[1:])
    # The interpreter ends with a search for garbage, which goes with the process anyway.
    gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
