"""The lock on an output: against other runs in this process and in others, and gone with the process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
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


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has temporary files per user")
def test_locks_lie_in_a_folder_that_no_other_user_can_write_to(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    out, folder = tmp_path / "out.jsonl", tmp_path / "temporary" / f"fcjax-{os.getuid()}"
    (tmp_path / "temporary").mkdir()
    with locked(out):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(list(folder.iterdir())) == 1
    folder.chmod(0o777)
    for _ in range(2):  # a folder that is open to all, then a link to a folder
        with pytest.raises(OutputError, match="only this user can write to; remove it, or set TMPDIR"), locked(out):
            pass
        if not folder.is_symlink():
            folder.rename(tmp_path / "elsewhere")
            (tmp_path / "elsewhere").chmod(0o700)
            folder.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(OutputError, match="cannot be made: No such file or directory; set TMPDIR"), locked(out):
        pass
