"""`python -m fcjax`, and the console script. Nothing is imported before an interrupt can be reported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The console script."""
    _replace_closed_streams()
    try:
        from fcjax.cli.main import commands
        from fcjax.cli.shell import escape_log_lines

        escape_log_lines()
        commands(prog_name="fcjax")
    except KeyboardInterrupt:  # before the commands handle it
        sys.stderr.write("fcjax: stopped\n")
        sys.stderr.flush()
        os._exit(130)


def _replace_closed_streams() -> None:
    """Put the null device in the place of closed standard streams, which Python gives as None.

    Otherwise the next file that is opened takes the number of the closed stream. What reads standard input finds it
    empty, what writes to standard output gets an error as on a full disk, and messages go nowhere.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
