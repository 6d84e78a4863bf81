"""The first look at a file of cases: how many there are, K, and whether they can be scored at all.

Everything that has to be known before the work starts, found without building a record: the number of cases (for the
time that is left), K (SPEC 5), the stage that a case lacks (SPEC 7), and a digest of every case for its fingerprint.
"""

from __future__ import annotations

import marshal
from array import array
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from fcjax.core.errors import Fault, refuse_where_all_lack
from fcjax.io.files.cases import missing_stage
from fcjax.io.files.digests import DIGEST_SIZE, count_atoms, digest_of
from fcjax.io.files.objects import Item, read_objects
from fcjax.io.files.streams import Source, display_name
from fcjax.runs.observer import Preview
from fcjax.scoring.measures import median_k


@dataclass(slots=True)
class InputScan(Preview):
    """What a first pass over `N` cases found; `lacking` says, in words, which stage a case lacks."""

    digests: bytearray = field(default_factory=bytearray)  # [N * DIGEST_SIZE], by what each case holds
    atoms: array[int] = field(default_factory=lambda: array("l"))  # numbers of atoms, where they are known

    @property
    def k(self) -> float:
        """K of the data set: the median number of atoms, at least 1."""
        return median_k(self.atoms)

    def digest(self, i: int) -> bytes:
        """The digest of case `i`, counted from 0."""
        return bytes(self.digests[i * DIGEST_SIZE : (i + 1) * DIGEST_SIZE])


def scan_input(path: Source, limit: int | None = None) -> InputScan:
    """Scan the first `limit` cases of a file.

    Raises `InputError` where there is nothing to read, or where every case lacks a stage that scoring needs.
    """
    found = InputScan()
    first = None  # the message about the first case that lacks a stage
    for i, item in enumerate(islice(read_objects(path), limit)):
        value = item.value
        found.digests += _digest(item)
        found.cases += 1
        if not isinstance(value, dict):
            continue
        if (count := count_atoms(value)) is not None:
            found.atoms.append(count)
        if lack := missing_stage(value):
            found.lacking[i] = lack
            first = first or item.located(Fault(lack), display_name(path), _id(value))
    refuse_where_all_lack(first, len(found.lacking), found.cases, "case")
    return found


def _digest(item: Item) -> bytes:
    """A digest of all that a case holds, whatever its file's name, container and white space."""
    try:
        content = orjson.dumps(item.value)
    except TypeError:  # nested too deep for orjson's writer
        try:
            content = repr(item.value).encode("utf-8", "surrogatepass")
        except RecursionError:  # and for Python's
            content = marshal.dumps(item.value, 1)
    if item.faults:
        content += repr([fault.message for fault in item.faults]).encode("utf-8", "surrogatepass")
    return digest_of(content)


def _id(value: dict[str, Any]) -> str | None:
    return None if value.get("id") is None else str(value["id"])
