"""The console script as a user starts it, its exit codes, and the variables that lead it to a scripted server."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from fcjax.io.entries import unpack

SCRIPT = Path(sys.executable).with_name("fcjax")


OK, SOME_FAILED, UNUSABLE, INTERRUPTED = 0, 1, 2, 130


def fcjax(*args, stdin=b"", **env):
    """Run the script to its end; nothing that it prints may be a traceback."""
    done = subprocess.run(
        [SCRIPT, *map(str, args)], input=stdin, capture_output=True, timeout=120, env=os.environ | env, check=False
    )
    assert b"Traceback" not in done.stderr + done.stdout
    return done


KEY = "sk-a-secret-nobody-may-see"


def environment(server, tmp_path):
    return {
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": KEY,
        "FCJAX_MODEL": "scripted",
        "FCJAX_STORE": str(tmp_path / "store.sqlite"),
    }


def stored(path):
    """The questions that have a reply in a store, whatever process made it."""
    with closing(sqlite3.connect(path)) as store:
        rows = store.execute("SELECT asked FROM entries WHERE status = 'answered'").fetchall()
    return {unpack(asked)["messages"][-1][1] for (asked,) in rows}
