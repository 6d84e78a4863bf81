"""Evidence from your own documents: a folder or a file, searched by words, without a network."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

import orjson

from fcjax.core.checks import check_number
from fcjax.core.errors import Fault, InputError, OutputError, SettingsError
from fcjax.core.folders import cache_folder, private_folder
from fcjax.core.passages import Found
from fcjax.core.prompts import Failure
from fcjax.io.files.streams import replacing
from fcjax.io.retrievers.corpus import CHUNK, CorpusFile, Faults, entries, passages
from fcjax.io.retrievers.index import FORMAT, Draft, Index

LONGEST: Final = 4000  # characters of a passage's text at most (SPEC 1)
_FRESH: Final = 2_000_000_000  # ns before reading; a file that changed since may have changed unnoticed


class LocalCorpus:
    """A `Retriever` over documents; `LocalCorpus.open` makes one.

    The same query gives the same passages in the same order. `name` stands for all passages and the way they are
    searched: other files, another name. `faults` are the first hundred of the `fault_count` things that could not be
    read; `size` counts the passages.
    """

    def __init__(self, index: Index, digest: str, faults: Faults):
        self.size = index.size
        self.faults: tuple[Fault, ...] = tuple(faults.kept)
        self.fault_count = faults.count
        self._index = index
        self._name = f"local:{digest}"
        self._thread = ThreadPoolExecutor(1, "fcjax corpus")

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        chunk: int = CHUNK,
        index: str | os.PathLike[str] | None = None,
    ) -> Self:
        """The corpus of a folder or file (see `corpus`), cut into passages of at most `chunk` characters.

        Its index is kept in the folder `index`, by default in the user's cache, and is made where there is none or
        files have changed, which takes some ten seconds for 50,000 passages; call it before the event loop runs, or in
        a thread. Any number of processes may do so at once.

        Raises `InputError` where nothing at all can be read, `OutputError` where no index can be kept.
        """
        check_number("chunk", chunk, 50, LONGEST, whole=True)
        place = Path(path).resolve()
        folder = (Path(index) if index is not None else default_folder()).resolve()
        if folder.is_relative_to(place) and not any(part[0] == "." for part in folder.relative_to(place).parts):
            raise SettingsError(
                f"index is {str(folder)!r}, inside the corpus; choose a hidden folder, or one elsewhere"
            )
        try:
            private_folder(folder)
            return cls(*_opened(place, folder, chunk))
        except InputError:
            raise
        except OSError as error:
            message = f"{folder}: cannot keep an index there ({error.strerror or error}); choose another folder"
            raise OutputError(message) from error

    @property
    def name(self) -> str:
        return self._name

    async def search(self, query: str, k: int) -> Found | Failure:
        """The `k` best passages; empty if no passage has a word of the query. The work is done in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.find, query, k)

    def find(self, query: str, k: int) -> Found:
        """The same as `search`, but synchronous."""
        check_number("k", k, 1, whole=True)
        return tuple(self._index.passage(number) for number in self._index.best(query, k))

    async def close(self) -> None:
        """Release the index; a second call does nothing."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._index.close()


def default_folder() -> Path:
    """Where indexes are kept by default: `fcjax/indexes` in the user's cache folder."""
    return cache_folder() / "indexes"


def _opened(place: Path, folder: Path, chunk: int) -> tuple[Index, str, Faults]:
    """The index of a corpus, its name and what could not be read: as it was left, or made now.

    A note beside the indexes says which one the corpus has, and of which files it was made. An index is named by its
    content and never changes, so that processes cannot get into each other's way.
    """
    key = hashlib.sha256(f"{FORMAT} {chunk} {place}".encode(errors="surrogateescape")).hexdigest()[:32]
    note = folder / f"{key}.json"
    for _ in range(3):
        faults, began = Faults(), time.time_ns()
        files = entries(place, faults)
        state = _state(files)
        old = _read_note(note)
        known = old.get("files") == state and all(max(times) + _FRESH < old["began"] for *_, times in state)
        if known and (index := Index.load(folder / old["name"])):
            return index, old["name"], Faults([Fault(**fault) for fault in old["faults"]], old["fault_count"])
        _sweep(folder)
        draft = Draft(folder)
        try:
            name = draft.write(passages(files, chunk, faults))
            if not draft.size:
                raise InputError(Fault("no text could be read from it", file=str(place)), *faults.kept)
            if _state(entries(place, Faults())) != state:
                continue  # it changed while it was read
            index = Index.load(folder / name)
            if index is None:
                draft.finish(name)
                index = Index.load(folder / name)
        finally:
            draft.discard()
        if index is None:
            continue  # another process has swept it away
        with replacing(note, private=True) as stream:
            report = {"faults": [asdict(fault) for fault in faults.kept], "fault_count": faults.count}
            stream.write(orjson.dumps({"corpus": str(place), "name": name, "began": began, "files": state, **report}))
        if old and old["name"] != name:
            _forget(folder, old["name"])
        return index, name, faults
    raise InputError(Fault("its files change while they are being read; wait until they are complete", file=str(place)))


def _state(files: list[CorpusFile]) -> list[Any]:
    """What shows whether files have changed, as JSON."""
    return [[file.name, file.size, [file.mtime_ns, file.ctime_ns]] for file in files]


def _read_note(note: Path) -> dict[str, Any]:
    """What a note says; nothing where there is none that can be read, or one that this module did not write.

    The folder may be shared: a name in it becomes a path that is opened and removed, so only a digest is a name.
    """
    with suppress(OSError, ValueError):
        if stat.S_ISREG(note.lstat().st_mode) and _is_note(said := orjson.loads(note.read_bytes())):
            return dict(said)
    return {}


def _is_note(said: Any) -> bool:
    """Whether a JSON value is a note of this module, in every type."""
    if not isinstance(said, dict) or not all(type(said.get(key)) is list for key in ("files", "faults")):
        return False
    files, faults = said["files"], said["faults"]
    return (
        type(said.get("name")) is str
        and _NAME.fullmatch(said["name"]) is not None
        and type(said.get("began")) is int
        and type(said.get("fault_count")) is int
        and said["fault_count"] >= len(faults)
        and all(
            type(file) is list
            and [type(part) for part in file] == [str, int, list]
            and [type(time) for time in file[2]] == [int, int]
            for file in files
        )
        and all(
            type(fault) is dict
            and fault.keys() == _FAULT_TYPES.keys()
            and all(type(fault[key]) in types for key, types in _FAULT_TYPES.items())
            for fault in faults
        )
    )


_NAME: Final = re.compile("[0-9a-f]{32}")
_TEXT: Final = (str, type(None))
_FAULT_TYPES: Final = {"message": (str,), "file": _TEXT, "line": (int, type(None)), "case": _TEXT, "field": _TEXT}


def _forget(folder: Path, name: str) -> None:
    """Remove an index that its corpus has outgrown, unless another corpus has the same. `name` is that of a note."""
    if all(_read_note(note).get("name") != name for note in folder.glob("*.json")):
        shutil.rmtree(folder / name, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed have left of their work, a day later."""
    for draft in folder.glob(".*.part"):
        with suppress(OSError):
            if _NAME.fullmatch(draft.name[1:-5]) and draft.lstat().st_mtime < time.time() - 86400:
                shutil.rmtree(draft)
