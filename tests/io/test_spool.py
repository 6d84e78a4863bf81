"""Rows that wait on disk: they come back as they were, and a disk without room is named."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest

from fcjax.core.errors import OutputError
from fcjax.io.files.digests import DIGEST_SIZE
from fcjax.io.files.spool import Spool

DIGEST = bytes(DIGEST_SIZE)


@contextmanager
def largest_file(size):
    """A limit on every file that this process writes, in place of a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_rows_come_back_in_order(tmp_path):
    with Spool(str(tmp_path)) as spool:
        assert list(spool) == []
        spool.add(b'{"id": "a"}', DIGEST, 2)
        spool.add(b'{"id": "b"}', bytes([1]) * DIGEST_SIZE, None)
        assert list(spool) == [({"id": "a"}, DIGEST), ({"id": "b"}, bytes([1]) * DIGEST_SIZE)]
        assert spool.atoms == [2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize("size", [100, 100_000])  # found when the rows are read again, and at once
def test_a_disk_without_room_is_named_by_its_folder(tmp_path, size):
    row = b'{"id": "%b"}' % (b"a" * size)

    def there_and_back():
        with Spool(str(tmp_path)) as spool:
            spool.add(row, DIGEST, 1)
            return list(spool)

    refused = pytest.raises(OutputError, match=f"{tmp_path}: the results cannot wait there: File too large")
    with largest_file(50), refused:
        there_and_back()
    with pytest.raises(OutputError, match="missing: the results cannot wait there: No such file"):
        Spool(str(tmp_path / "missing")).add(row, DIGEST, 1)
