"""The readers of stores and of the indexes of corpora, as functions of bytes, each with valid inputs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from reply_readers import QUESTIONS, Read, dumped, reply_of, run

from fcjax.core.errors import InputError, OutputError
from fcjax.core.passages import Passage
from fcjax.core.prompts import Failure, PendingError, Prompt, Reply
from fcjax.io.batches.book import Book, custom_id
from fcjax.io.batches.collector import Collector
from fcjax.io.batches.outputs import import_outputs
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.entries import DamagedError, pack_answer, prompt_key, unpack_answer, unpack_found
from fcjax.io.maintenance import export, import_rows, inventory
from fcjax.io.retrievers import index
from fcjax.io.rows import read_row
from fcjax.io.store import Store

FOLDER: Final = Path(tempfile.mkdtemp(prefix="fcjax-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
"""Where all readers of files have theirs."""

# The store.

REPLY: Final = Reply(text="[Neutral]", tokens=reply_of(b"[Neutral]").tokens, model="m")
PROMPT: Final = Prompt(messages=(("user", "?"),), template="t/1")
FOUND: Final = (Passage(title="Rome", text="Old.", link="http://a.example"),)
KEY: Final = prompt_key("http://127.0.0.1/v1", "m", PROMPT)


def packed(data: bytes) -> None:
    """The packed answers of a store's row: as they are, and packed from any JSON."""
    for content in (data, zlib.compress(data, 1)):
        for read in (unpack_answer, unpack_found):
            try:
                answer = read(content)
            except DamagedError as error:
                str(error)
            else:
                pack_answer(answer)
                if isinstance(answer, Reply):
                    _used(answer)


def _used(reply: Reply) -> None:
    """A stored reply is read like one from a server."""
    for question in QUESTIONS:
        question.read(reply)


def exported_row(data: bytes) -> None:
    """A line of an export."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    read_row(document, time.time())


def imported(data: bytes) -> None:
    """A file of exported rows, into a store that is then read."""
    source, path = FOLDER / "rows.jsonl", FOLDER / "imported.sqlite"
    drop(path)
    source.write_bytes(data)
    import_rows(path, source)
    export(path, FOLDER / "out.jsonl")


def batch_folder() -> tuple[Path, str]:
    """A folder with one request, and the id of the request."""
    folder = FOLDER / "batch"
    shutil.rmtree(folder, ignore_errors=True)
    where = Endpoint("http://127.0.0.1/v1", "m")

    async def ask(collector: Collector) -> None:
        with Store.open(FOLDER / "batch.sqlite") as store:
            async with Client(where, store=store, batch=collector) as client:
                with suppress(PendingError):
                    await client.ask(PROMPT)

    drop(FOLDER / "batch.sqlite")
    with Collector.open(folder) as collector:
        run(ask(collector))
        collector.write()
    return folder, custom_id(1, bytes.fromhex(KEY))


def batch_output(path: Path) -> None:
    """An output of a batch, into a store that is then read."""
    store = FOLDER / "taken.sqlite"
    drop(store)
    import_outputs(store, [path], FOLDER / "batch")
    export(store, FOLDER / "out.jsonl")
    with Book.open(FOLDER / "batch") as book, book.change() as connection:
        connection.execute("UPDATE requests SET outcome = NULL")


def drop(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def made_store() -> bytes:
    """A small store, as bytes."""
    path = FOLDER / "seed.sqlite"
    drop(path)
    endpoint = "http://127.0.0.1/v1"

    async def fill() -> None:
        with Store.open(path) as store:
            await store.put(KEY, prompt=PROMPT, endpoint=endpoint, model="m", outcome=REPLY)
            await store.put_found("wikipedia/2", "Rome", 3, FOUND)
            await store.put_found("wikipedia/2", "Oslo", 3, Failure("timeout", "x", 1))

    run(fill())
    return path.read_bytes()


def store(path: Path) -> None:
    """A store's file: opened, looked into, exported."""

    async def look() -> None:
        with Store.open(path) as found:
            for replay in (False, True):
                await found.get(KEY, replay=replay)
                await found.get_found("wikipedia/2", "Rome", 3, replay=replay, max_age=None if replay else 60.0)
            await found.put_found("wikipedia/2", "Oslo", 3, FOUND)

    content = path.read_bytes()
    for step in (lambda: inventory(path, check=True), lambda: export(path, FOLDER / "out.jsonl"), lambda: run(look())):
        drop(path)  # a new file each time: one that changes under an open connection is no store
        path.write_bytes(content)
        try:
            step()
        except (InputError, OutputError) as error:
            str(error)


# The index of a corpus.

PASSAGES: Final = tuple(Passage(title=f"Title {i}", text=f"Rome is city number {i}.", link=f"l{i}") for i in range(5))


def made_index() -> Path:
    folder = FOLDER / "index"
    folder.mkdir(exist_ok=True)
    draft = index.Draft(folder)
    name = draft.write(PASSAGES)
    draft.finish(name)
    return folder / name


def index_files() -> list[tuple[str, bytes]]:
    path = made_index()
    return [(file.name, file.read_bytes()) for file in sorted(path.iterdir())]


def index_reader(files: list[tuple[str, bytes]]) -> Read:
    """A file of an index, named on the first line, is changed; its digest, its size and the folder's name fit."""
    names = [name for name, _ in files]

    def read(data: bytes) -> None:
        first, _, content = data.partition(b"\n")
        name = first.decode("latin-1")
        if name not in names:
            name, content = names[len(data) % len(names)], data
        folder = FOLDER / "foreign"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for one, given in files:
            (folder / one).write_bytes(content if one == name else given)
        if name != index._ABOUT:
            about = json.loads((folder / index._ABOUT).read_bytes())
            about["bytes"][name] = len(content)
            about["digests"][name] = index._hashed(folder / name)
            (folder / index._ABOUT).write_bytes(dumped(about))
        digest = index._digest()
        digest.update((folder / index._PASSAGES).read_bytes())
        place = FOLDER / digest.hexdigest()[:32]
        shutil.rmtree(place, ignore_errors=True)
        folder.rename(place)
        try:
            if found := index.Index.load(place):
                for number in found.best("Rome is city number 3", 3):
                    found.passage(number)
                found.close()
        finally:
            shutil.rmtree(place, ignore_errors=True)

    return read
