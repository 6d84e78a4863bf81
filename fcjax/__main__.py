"""`python -m fcjax`, and the console script. Nothing is imported before an interrupt can be reported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The console script."""
    try:
        from fcjax.cli.main import commands

        commands(prog_name="fcjax")
    except KeyboardInterrupt:  # before the commands handle it
        sys.stderr.write("fcjax: stopped\n")
        sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    main()
