"""The first look at a file of cases: how many there are, K, and whether they can be scored at all.

Everything that has to be known before the work starts, found without building a record: the number of cases (for the
time that is left), K (SPEC 5), the stage that a case lacks (SPEC 7), and a digest of every case for its fingerprint.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import orjson

from fcjax.core.errors import Fault, InputError, refuse_where_all_lack
from fcjax.io.files.cases import missing_stage
from fcjax.io.files.digests import DIGEST_SIZE, count_atoms, digest_of
from fcjax.io.files.objects import Item, read_objects
from fcjax.io.files.streams import Source, display_name
from fcjax.scoring.measures import median_k


@dataclass(slots=True)
class InputScan:
    """What a first pass over `N` cases found."""

    digests: bytearray = field(default_factory=bytearray)  # [N * DIGEST_SIZE], by what each case holds
    atoms: array[int] = field(default_factory=lambda: array("l"))  # numbers of atoms, where they are known
    missing: dict[int, str] = field(default_factory=dict)  # case (from 0) -> the stage it lacks, in words

    def __len__(self) -> int:
        return len(self.digests) // DIGEST_SIZE

    @property
    def k(self) -> float:
        """K of the data set: the median number of atoms, at least 1."""
        return median_k(self.atoms)

    def digest(self, i: int) -> bytes:
        """The digest of case `i`, counted from 0."""
        return bytes(self.digests[i * DIGEST_SIZE : (i + 1) * DIGEST_SIZE])


def scan_input(path: Source, limit: int | None = None) -> InputScan:
    """The survey of the first `limit` cases of a file.

    Raises `InputError` where there is nothing to read, or where every case lacks a stage that scoring needs.
    """
    found = InputScan()
    first = None  # the message about the first case that lacks a stage
    for i, item in enumerate(islice(read_objects(path), limit)):
        value = item.value
        found.digests += _digest(item)
        if not isinstance(value, dict):
            continue
        if (count := count_atoms(value)) is not None:
            found.atoms.append(count)
        if lack := missing_stage(value):
            found.missing[i] = lack
            first = first or item.located(Fault(lack), display_name(path), _id(value))
    refuse_where_all_lack(first, len(found.missing), len(found), "case")
    return found


def _digest(item: Item) -> bytes:
    """A digest of all that a case holds, whatever its file's name, container and white space."""
    try:
        content = orjson.dumps(item.value)
    except TypeError:  # nested too deep for orjson's writer
        content = repr(item.value).encode("utf-8", "surrogatepass")
    if item.faults:
        content += repr([fault.message for fault in item.faults]).encode("utf-8", "surrogatepass")
    return digest_of(content)


def _id(value: dict[str, Any]) -> str | None:
    return None if value.get("id") is None else str(value["id"])


@contextmanager
def readable_twice(source: Source) -> Iterator[str]:
    """A path that gives the bytes of `source` as often as they are asked for: standard input and pipes are spooled."""
    path = os.fspath(source)
    if path != "-" and (os.path.isfile(path) or not os.path.exists(path) or os.path.isdir(path)):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="fcjax-") as spool:
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
            shutil.copyfileobj(stream, spool)
        spool.flush()
        try:
            yield spool.name
        except InputError as error:
            names = {spool.name: display_name(source)}
            raise InputError(*(replace(f, file=names.get(f.file or "", f.file)) for f in error.faults)) from None
