"""Files to and from a server with OpenAI's Files and Batches APIs: upload, create, look, download.

Every step is in the folder's book before the next one, so that a stopped errand continues where it was. A batch costs
money: before one is created, the book says so, and where that is all it says, the server's list is looked through for
a batch of the uploaded file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Failure, Reply
from fcjax.io.batches.book import Book, Part
from fcjax.io.batches.outputs import ERRORS, OUTPUT, output_path
from fcjax.io.endpoint import Endpoint
from fcjax.io.files.streams import replacing
from fcjax.io.http import behind_proxy, read_body, read_discreetly
from fcjax.io.outcome import Again, read_exception, scrubbed

CREATING: Final = "creating"  # the state of a part between the request to create its batch and the answer
FAILED: Final = "failed"
ENDED: Final = ("completed", FAILED, "expired", "cancelled")
"""Statuses of a batch that does not change any more."""
WINDOW: Final = "24h"
"""The time that a batch may take; OpenAI knows no other."""

_LARGEST: Final = 16 << 20  # bytes of an answer about a file or batch
_TRIES: Final = 4  # of a request that changes nothing
_PIECE: Final = 1 << 20  # bytes of a download that are held at a time
_URL: Final = "/v1/chat/completions"


class ErrandError(SettingsError):
    """A server that does not take files or batches, or refused one; the message says why and what to do."""


class Errands:
    """The errands of a folder's book at an endpoint; use it as `async with`. Raises `ErrandError` in all its methods,
    with the server's words.

    `on_step(part, what)` hears of every step; `delay` is the seconds before the first repetition of a request that
    found the server unavailable.
    """

    def __init__(
        self, book: Book, endpoint: Endpoint, *, on_step: Callable[[Part, str], None] | None = None, delay: float = 1.0
    ):
        self._book, self._endpoint, self._delay = book, endpoint, delay
        self._on_step = on_step or (lambda part, what: None)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity", **self._endpoint.headers},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600),
            trust_env=behind_proxy(self._endpoint.completions),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def submit(self) -> list[Part]:
        """Upload every file of the last round that is not at the server, and create a batch of each one; returns those
        that were submitted now."""
        done = []
        for part in self._book.parts(round=self._book.round):
            if part.imported or part.batch is not None:
                continue
            file = part.file or await self._upload(part)
            batch = await self._found(file) if part.state == CREATING else None
            if batch is None:
                self._book.note(part.id, file=file, state=CREATING)
                try:
                    batch = await self._created(part, file)
                except ErrandError:
                    if (batch := await self._found(file)) is None:
                        self._book.note(part.id, state=None)  # it was refused, and is free for another try
                        raise
            self._note(part, batch)
            self._on_step(part, f"submitted as {batch['id']}")
            done.append(part)
        return done

    async def look(self) -> list[Part]:
        """All files with their batches' latest status."""
        for part in self._book.parts():
            if part.batch is not None and part.state not in ENDED:
                self._note(part, await self._json("GET", f"/batches/{part.batch}"))
        return self._book.parts()

    async def fetch(self) -> list[Path]:
        """Download the outputs and errors of all batches that have ended and are not imported; returns the files. A
        batch that ended without either is marked, so that its prompts are asked again."""
        files = []
        for part in await self.look():
            if part.batch is None or part.imported or part.state not in ENDED:
                continue
            for file, ending in ((part.output, OUTPUT), (part.errors, ERRORS)):
                if file is None:
                    continue
                path = output_path(self._book.folder, part.name, ending)
                if not path.is_file():
                    await self._download(file, path)
                    self._on_step(part, f"{path.name} downloaded")
                files.append(path)
            if part.output is None and part.errors is None:
                self._book.note(part.id, imported=1)
                self._on_step(part, f"{part.state} without any output")
        return files

    def _note(self, part: Part, batch: dict[str, Any]) -> None:
        """Note what a server says of a part's batch."""
        errors = batch.get("errors")
        listed = errors.get("data") if isinstance(errors, dict) else None
        words = [str(one.get("message")) for one in listed or () if isinstance(one, dict)]
        self._book.note(
            part.id,
            batch=str(batch["id"]),
            state=str(batch.get("status") or "validating"),
            output=_name(batch.get("output_file_id")),
            errors=_name(batch.get("error_file_id")),
            note=scrubbed("; ".join(words)) if words else None,
        )

    async def _upload(self, part: Part) -> str:
        path = self._book.folder / part.name
        if not path.is_file() or path.stat().st_size != part.bytes:
            seen = "is not as it was written" if path.is_file() else "is missing"
            raise ErrandError(f"{path}: {seen}; run the command with --batch-out again to write it anew")
        with path.open("rb") as stream:
            form = aiohttp.FormData()
            form.add_field("purpose", "batch")
            form.add_field("file", stream, filename=part.name, content_type="application/jsonl")
            answer = await self._json("POST", "/files", data=form, tries=1)
        file = _named(answer, "an upload")
        self._book.note(part.id, file=file)
        self._on_step(part, f"uploaded as {file}")
        return file

    async def _created(self, part: Part, file: str) -> dict[str, Any]:
        asked = {"input_file_id": file, "endpoint": _URL, "completion_window": WINDOW, "metadata": {"file": part.name}}
        answer = await self._json("POST", "/batches", data=orjson.dumps(asked), tries=1)
        _named(answer, "a new batch")
        return answer

    async def _found(self, file: str) -> dict[str, Any] | None:
        """The batch that was made of an uploaded file; None where the server has none."""
        after = ""
        while True:
            answer = await self._json("GET", "/batches", query=f"limit=100{after}")
            batches = [one for one in answer.get("data") or () if isinstance(one, dict) and one.get("id")]
            for batch in batches:
                if batch.get("input_file_id") == file:
                    return batch
            if not (answer.get("has_more") and batches):
                return None
            after = f"&after={batches[-1]['id']}"

    async def _download(self, file: str, path: Path) -> None:
        """A file's content to `path`, whole or not at all."""
        assert self._session is not None
        place = f"/files/{file}/content"
        try:
            async with self._session.get(self._endpoint.at(place), allow_redirects=False) as response:
                if response.status != 200:
                    raise self._refused("GET", place, response, await read_body(response, _LARGEST))
                with replacing(path, private=True) as stream:
                    async for piece in response.content.iter_chunked(_PIECE):
                        stream.write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreached("GET", place, error) from error

    async def _json(
        self, method: str, place: str, *, data: Any = None, query: str = "", tries: int = _TRIES
    ) -> dict[str, Any]:
        """The JSON object that a server answers a request with."""
        for attempt in range(1, tries + 1):
            try:
                return await self._once(method, place, data, query)
            except ErrandError as error:
                if attempt == tries or not isinstance(error.__cause__, _PassingError):
                    raise
                await asyncio.sleep(self._delay * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    async def _once(self, method: str, place: str, data: Any, query: str) -> dict[str, Any]:
        assert self._session is not None
        url = self._endpoint.at(place, query)
        headers = {"Content-Type": "application/json"} if isinstance(data, bytes) else {}
        try:
            sent = self._session.request(method, url, data=data, headers=headers, allow_redirects=False)
            async with sent as response:
                body = await read_body(response, _LARGEST)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreached(method, place, error) from _PassingError()
        if response.status >= 300 or body is None:
            raise self._refused(method, place, response, body)
        try:
            answer = orjson.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ErrandError(f"{method} {place}: HTTP {response.status} without a JSON object; is this a Batches API?")
        return answer

    def _refused(self, method: str, place: str, response: aiohttp.ClientResponse, body: bytes | None) -> ErrandError:
        outcome = read_discreetly(self._endpoint, response.status, response.headers, body or b"")
        reason = Failure("unreadable", f"HTTP {response.status}") if isinstance(outcome, Reply) else outcome
        error = ErrandError(f"{method} {place}: {reason.reason}; run the same command to continue")
        error.__cause__ = _PassingError() if isinstance(outcome, Again) else None
        return error

    def _unreached(self, method: str, place: str, error: BaseException) -> ErrandError:
        reason = self._endpoint.scrubbed(read_exception(error).reason)
        return ErrandError(f"{method} {place}: {reason}; run the same command to continue")


class _PassingError(Exception):
    """The cause of an error that another try may not meet."""


def _named(answer: dict[str, Any], what: str) -> str:
    if not (name := _name(answer.get("id"))):
        raise ErrandError(f"the server answered {what} without an id; is this a Batches API?")
    return name


def _name(given: Any) -> str | None:
    """A server's name for something, for a URL."""
    if not isinstance(given, str) or not given:
        return None
    if not all(sign.isalnum() or sign in "-_.:" for sign in given) or len(given) > 200 or given in (".", ".."):
        raise ErrandError(f"the server names something {given!r:.60}; expected: letters, digits, - and _")
    return given
