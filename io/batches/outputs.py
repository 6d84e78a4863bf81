"""Outputs of batches into the store: replies as if the endpoint had given them, errors as its failures.

A line of an output or error file is `{"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}`.
`vllm run-batch` writes an error's description to `error` and leaves the body out.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from fcjax.core.errors import Fault, InputError, OutputError
from fcjax.core.prompts import Failure, Reply, Usage
from fcjax.io.batches.book import ANSWERED, EXPIRED, FEWER, FREE, NAME, Book, Request
from fcjax.io.entries import CHAT, UNREADABLE, DamagedError, failed_status, pack_answer, unpack_answer
from fcjax.io.files.locks import locked
from fcjax.io.files.streams import Source, display_name, read_lines
from fcjax.io.logprobs import fewer_alternatives
from fcjax.io.outcome import Again, Outcome, Refused, StepDown, parsed, read_parsed, scrubbed
from fcjax.io.schema import INSERT, connect, is_busy, patiently, unwritable
from fcjax.io.schema import locked as store_locked

Price = Callable[[str, str], Callable[[Usage], float] | None]
"""The price at an endpoint, by its name, of a model: US dollars for usage; None where it is unknown."""

OUTPUT: Final = ".output.jsonl"
ERRORS: Final = ".errors.jsonl"
"""Endings of the files that outputs are looked for in, after the name of the file of requests."""

_PACK: Final = 500  # lines in one transaction
_MOST_FAULTS: Final = 1000  # that are kept; all are counted
_EXPIRED: Final = ("batch_expired", "batch_cancelled")


@dataclass(slots=True)
class ImportedBatch:
    """What became of the lines of some outputs. `faults` holds the first thousand of `n_faults`: lines that are of no
    use, each with its reason."""

    added: int = 0  # replies that the store did not have
    known: int = 0  # lines that were imported before, or say the same as another one
    failed: Counter[str] = field(default_factory=Counter)  # errors by kind, to be asked again or final
    first_failure: str | None = None
    faults: list[Fault] = field(default_factory=list)
    n_faults: int = 0
    missing: list[tuple[str, int, int]] = field(
        default_factory=list
    )  # file, requests that have no outcome, of how many

    def fault(self, fault: Fault) -> None:
        self.n_faults += 1
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(fault)


class _LineError(ValueError):
    """A line that is of no use; the message says why."""


def output_files(folder: Path) -> list[Path]:
    """The outputs that are in a folder of batch files, under the names that `Errands.fetch` gives them: those to files
    that lack outcomes, or all where there are none of these."""
    with Book.open(folder) as book:
        waiting = book.waiting()
        found = {
            part.id: [path for ending in (OUTPUT, ERRORS) if (path := output_path(folder, part.name, ending)).is_file()]
            for part in book.parts()
        }
    lacking = [path for id, paths in found.items() if id in waiting for path in paths]
    return lacking or [path for paths in found.values() for path in paths]


def output_path(folder: Path, name: str, ending: str) -> Path:
    """Where the outputs go of the file of requests of this `name`; `ending` is `OUTPUT` or `ERRORS`."""
    return folder / f"{name.removesuffix('.jsonl')}{ending}"


def import_outputs(store: Path, files: Iterable[Source], folder: Path, *, price: Price | None = None) -> ImportedBatch:
    """Take outputs of the requests of `folder` into a store, which is made where there is none.

    A line that is no JSON, or belongs to no request of the folder, is a fault; of two answers to one request, the first
    reply stands. What is imported twice changes nothing. Raises `InputError` where a file or the folder's book cannot
    be read, `OutputError` where the store or the book cannot be written.
    """
    done = ImportedBatch()
    with Book.open(folder) as book, locked(folder / NAME):
        connection = connect(store)
        try:
            for file in files:
                for pack in _packs(_read(file, done)):
                    _take(pack, book, connection, done, price or (lambda endpoint, model: None))
        except sqlite3.Error as error:
            raise OutputError(store_locked(store) if is_busy(error) else unwritable(store, error)) from error
        finally:
            connection.close()
        waiting = book.waiting()
        last = [part for part in book.parts(round=book.round) if part.id in waiting and not part.under_way]
        done.missing = [(part.name, waiting[part.id], part.requests) for part in last]
    return done


@dataclass(frozen=True, slots=True)
class _Line:
    place: Fault  # where it is
    document: Any


def _read(file: Source, done: ImportedBatch) -> Iterator[_Line]:
    name = display_name(file)
    for line in read_lines(file):
        place = Fault("", file=name, line=line.number)
        if line.fault is not None:
            done.fault(line.fault)
        elif not isinstance(document := parsed(line.text), dict):
            seen = "is not JSON; it may be cut off" if document is None else f"is a JSON {type(document).__name__}"
            done.fault(replace(place, message=f"the line {seen}; expected: an object of a batch's output"))
        else:
            yield _Line(place, document)


def _packs(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    pack: list[_Line] = []
    for line in lines:
        pack.append(line)
        if len(pack) == _PACK:
            yield pack
            pack = []
    if pack:
        yield pack


def _take(pack: list[_Line], book: Book, store: sqlite3.Connection, done: ImportedBatch, price: Price) -> None:
    """Take lines into the store first and then into the book, so that a killed import only repeats."""
    outcomes: dict[tuple[int, int], str] = {}  # by part and prompt
    limits: list[tuple[str, str, str, str]] = []
    patiently(partial(store.execute, "BEGIN IMMEDIATE"))
    try:
        for line in pack:
            try:
                request = _request(line.document, book)
                seen = outcomes.get((request.part, request.prompt), request.outcome)
                outcome = _outcome(line.document)
                outcomes[request.part, request.prompt] = _store(request, outcome, seen, store, done, price, limits)
            except _LineError as error:
                done.fault(replace(line.place, message=str(error)))
    except BaseException:
        store.execute("ROLLBACK")
        raise
    store.execute("COMMIT")
    with book.change() as connection:
        rows = [(outcome, part, prompt) for (part, prompt), outcome in outcomes.items()]
        connection.executemany("UPDATE requests SET outcome = ? WHERE part = ? AND prompt = ?", rows)
        parts = {(part,) for part, _ in outcomes}
        connection.executemany("UPDATE parts SET imported = 1 WHERE id = ?", list(parts))
        connection.executemany("INSERT OR IGNORE INTO limits VALUES (?, ?, ?, ?)", limits)


def _request(document: dict[str, Any], book: Book) -> Request:
    name = document.get("custom_id")
    if not isinstance(name, str):
        raise _LineError(f"custom_id is {name!r:.60}; expected: that of a request")
    if (request := book.request(name)) is None:
        raise _LineError(
            f"custom_id {name!r:.80} is of no request in {book.folder}; is this the output of another run?"
        )
    return request


def _outcome(document: dict[str, Any]) -> Outcome:
    """What a line says."""
    response, error = document.get("response"), document.get("error")
    if not isinstance(response, dict):
        if not error:
            raise _LineError("the line has neither a response nor an error")
        code = error.get("code") if isinstance(error, dict) else None
        if code in _EXPIRED:
            return Again(EXPIRED, scrubbed(str(error.get("message") or code)))
        return read_parsed(500, {"error": error})
    status, body = response.get("status_code", 200), response.get("body")
    if type(status) is not int or not 100 <= status < 600:
        raise _LineError(f"response.status_code is {status!r:.40}; expected: an HTTP status")
    if body is None and error:
        is_whole = isinstance(error, dict) and ("error" in error or error.get("object") == "error")
        body = error if is_whole else {"error": error}
    return read_parsed(status, body)


def _store(
    request: Request,
    outcome: Outcome,
    seen: str | None,
    store: sqlite3.Connection,
    done: ImportedBatch,
    price: Price,
    limits: list[tuple[str, str, str, str]],
) -> str:
    """Store what came of a request, which has been `seen` with an outcome before or not; returns the outcome that
    stands. Raises `_LineError` for one that contradicts a reply."""
    if isinstance(outcome, Reply):
        cost = price(request.source, request.model)
        usage = outcome.usage
        reply = replace(outcome, cost=None if cost is None or usage is None else cost(usage))
        was_useless = seen == ANSWERED and store.execute(_UNREADABLE, (request.key,)).fetchone() is not None
        if not was_useless and store.execute(INSERT, _row(request, reply, usage)).rowcount:
            done.added += 1
        elif seen == ANSWERED and not was_useless and not _says_the_same(request.key, reply, store):
            raise _LineError("the request has another reply already, which is kept")
        else:
            done.known += 1
        return ANSWERED
    if seen == ANSWERED:
        raise _LineError("the request has a reply already, which is kept, and not this error")
    if isinstance(outcome, StepDown):
        kind = _limit(request, outcome, limits)
        failure = Failure(kind, outcome.reason, 1)
    else:
        assert isinstance(outcome, Again | Refused)
        failure = Failure(outcome.kind, outcome.reason, 1)
    if seen is not None:
        done.known += 1
        return seen
    if failure.kind not in (FEWER, FREE):
        store.execute(INSERT, _row(request, failure, getattr(outcome, "usage", None)))
    done.failed[failure.kind] += 1
    done.first_failure = done.first_failure or f"{failure.kind}: {failure.reason}"
    return failed_status(failure)


def _limit(request: Request, refused: StepDown, limits: list[tuple[str, str, str, str]]) -> str:
    """Note what a server refuses and can be left out; returns the kind of the outcome."""
    if refused.kind == FREE and request.form:
        limits.append((request.source, request.model, FREE, request.form))
        return FREE
    asked = min((most for most in (request.wanted, request.most) if most is not None), default=0)
    if refused.kind == FEWER and request.wanted is not None and asked:
        fewer = fewer_alternatives(asked, refused.allowed)
        limits.append((request.source, request.model, FEWER, str(fewer)))
        return FEWER
    return "invalid_request"


def _row(request: Request, answer: Reply | Failure, usage: Usage | None) -> dict[str, Any]:
    """The columns of an answer's row, as `Store.put` writes them."""
    reply = answer if isinstance(answer, Reply) else None
    return {
        "key": request.key,
        "kind": CHAT,
        "status": failed_status(answer) if isinstance(answer, Failure) else ANSWERED,
        "source": request.source,
        "model": request.model,
        "template": request.template,
        "asked": request.asked,
        "answer": pack_answer(answer),
        "prompt_tokens": usage.prompt if usage else None,
        "completion_tokens": usage.completion if usage else None,
        "cost": reply.cost if reply else None,
        "seconds": reply.seconds if reply else None,
        "attempts": answer.attempts,
        "created": time.time(),
    }


def _says_the_same(key: bytes, reply: Reply, store: sqlite3.Connection) -> bool:
    """Whether the reply that stands in the store has the same text."""
    row = store.execute(_STANDING, (key,)).fetchone()
    try:
        standing = None if row is None else unpack_answer(row[0])
    except DamagedError:
        return True  # a run sets the row aside and asks again
    return isinstance(standing, Reply) and standing.text == reply.text


def book_folder(file: Source) -> Path:
    """The folder of batch files that an output lies in. Raises `InputError` where it has no book."""
    folder = Path(file).parent
    if not (folder / NAME).is_file():
        seen = f"no {NAME} is beside it"
        raise InputError(f"{display_name(file)}: {seen}; name the folder of --batch-out with --folder")
    return folder


_UNREADABLE: Final = f"SELECT 1 FROM entries WHERE key = ? AND status = '{UNREADABLE}'"
_STANDING: Final = f"SELECT answer FROM entries WHERE key = ? AND status = '{ANSWERED}'"
