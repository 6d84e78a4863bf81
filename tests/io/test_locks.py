"""The lock on an output: against other runs in this process and in others, and gone with the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from fcjax.core.errors import OutputError
from fcjax.io.files.locks import locked

HOLDER = """
import sys, time
from fcjax.io.files.locks import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def refused(out):
    with (
        pytest.raises(OutputError, match="another run is writing to it; wait until that run ends, or stop it"),
        locked(out),
    ):
        pass


def test_an_output_has_one_writer_under_whatever_name(tmp_path, monkeypatch):
    out, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    out.touch()
    link.symlink_to(out)
    monkeypatch.chdir(tmp_path)
    with locked(out):
        for name in (out, link, "out.jsonl"):
            refused(name)
        with locked(tmp_path / "other.jsonl"):
            pass
        thread = threading.Thread(target=refused, args=(out,))
        thread.start()
        thread.join()
    with locked(link):
        refused(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.jsonl", "out.jsonl"]


def test_a_killed_process_leaves_no_lock(tmp_path):
    out = tmp_path / "out.jsonl"
    with subprocess.Popen([sys.executable, "-P", "-c", HOLDER, out], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        refused(out)
        holder.kill()
    with locked(out):
        pass


def test_streams_have_no_lock():
    for out in ("-", os.devnull):
        with locked(out), locked(out):
            pass
