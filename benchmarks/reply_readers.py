"""The readers of what models, servers and web pages send, as functions of bytes, each with valid inputs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson
from mutations import as_text

from fcjax.core.prompts import Failure, Prompt, Reply, Token
from fcjax.core.records import Atom, Case, Context
from fcjax.correction.revision import revision
from fcjax.correction.verdicts import Vocabulary
from fcjax.io.endpoint import Endpoint
from fcjax.io.entries import pack_answer, unpack_answer, unpack_found
from fcjax.io.files.cases import case_to_dict, relation_to_dict
from fcjax.io.http import read_discreetly
from fcjax.io.outcome import Outcome, retry_after
from fcjax.io.retrievers import serper, wikipedia
from fcjax.io.retrievers.api import SearchApi
from fcjax.io.retrievers.extraction import PDF, ExtractionError, kind_of, text_of
from fcjax.stages.atomize import Atomizer
from fcjax.stages.falsify import Falsifier
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import Pair, RelationModel, relate
from fcjax.stages.revise import Reviser
from fcjax.stages.summarise import Summariser

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Reader:
    """A reader of bytes, valid inputs, and the exceptions that it declares. Any other exception is a crash."""

    name: str
    read: Read
    seeds: Sequence[bytes]
    errors: tuple[type[BaseException], ...] = ()
    share: float = 1.0  # of the time, compared with the other readers
    elsewhere: bool = False  # whether it waits for another process, so that its own CPU time says little


def dumped(value: Any) -> bytes:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


# Replies of a model: texts.

VERDICTS: Final = Vocabulary({"same": ("same", "the same"), "different": ("different", "not same")})
LABELS: Final = tuple(
    text.encode()
    for text in (
        *("[neutral]", "The passage says so. [Entailment]", "**[Contradiction]**", "Label: neutral", "entailment"),
        *("Neutral. It is about tea.", "\\boxed{\\text{neutral}}", "[entailment] or [neutral]", "not [entailment]"),
        *(
            '{"1": "neutral", "2": "entailment", "3": "contradiction", "4": "neutral", "5": "neutral"}',
            "[Entailment]\n",
        ),
        *('[{"claim": 1, "label": "neutral"}, {"claim": 2, "label": "entailment"}]', '"1": "neutral",\n"2": "entails"'),
        *("1. [neutral]\n2. [entailment]\n3. contradiction", "| 1 | neutral |\n| 2 | entailment |", "[same]"),
        *('The premise says "it is [neutral] to us". [contradiction]', "<premise>[neutral]</premise> [entailment]"),
        *("<think>[neutral]</think>\n[entailment]", "Verdict: different", "1. same\n2. not same", "[neut"),
    )
)
LISTS: Final = tuple(
    text.encode()
    for text in (
        *(
            '["Rome is old.", "Rome is a city."]',
            '```json\n[{"fact": "Rome is old."}]\n```',
            "1. Rome is old.\n2. It is.",
        ),
        *(
            "- [x] Rome is old.\n- [ ] Rome is a city.",
            "| No | Fact |\n|---|---|\n| 1 | Rome is old. |",
            "I cannot help.",
        ),
        *('{"1": "Rome is old.", "2": "Rome is a city."}', '{"summary": "Rome is old.", "confidence": 0.9}', "none"),
        *(
            "summary: Rome is old.\nconfidence: 0.9",
            "[{'text': 'Rome\\'s old', 'id': 1,}, {'text': \"a\" b\"}",
            "REFUSED",
        ),
        *(
            "<revised>\nRome is old.\n</revised>",
            "Here is the revised response:\n\nRome is old.\n\nNote: I changed it.",
        ),
        *("Rome <wrong>is</wrong> new.", '{"facts": {"facts": ["a b", "c d"]}, "note": null}', "**1.** “Rome is old.”"),
        *('["Rome is old.", "Rome is a c', "Atomic facts:\n* Rome is old,\n  and big.\n* It is.", "[]"),
    )
)


def on_text(read: Callable[[str], object]) -> Read:
    """A reader of texts as one of bytes."""
    return lambda data: read(as_text(data))


def reply_of(data: bytes) -> Reply:
    """A reply with tokens and alternatives that are drawn from the text itself."""
    text = as_text(data)
    random = Random(len(data))
    pieces: list[str] = []
    at = 0
    while at < len(text) and len(pieces) < 3000:
        pieces.append(text[at : at + random.choice((1, 1, 2, 3, 5, 8))])
        at += len(pieces[-1])
    pieces += [text[at:]] if at < len(text) else []
    odds = (0.0, -0.1, -2.0, -9999.0, float("-inf"), float("nan"), 5.0, None)

    def token(piece: str) -> Token:
        top = [(random.choice(pieces), random.choice((-0.1, -3.0, float("-inf"), float("nan")))) for _ in range(3)]
        raw = random.choice((None, None, piece.encode("utf-8", "surrogatepass")[:3]))
        return Token(piece, random.choice(odds), (*top, (piece, -0.2)), raw)

    return Reply(text=text or " ", tokens=tuple(map(token, pieces)), finish=random.choice(("stop", "stop", "length")))


LOOP: Final = asyncio.new_event_loop()


def run(work: Awaitable[Any]) -> Any:
    """The result of a coroutine, in the one loop of this process."""

    async def main() -> Any:
        return await work

    return LOOP.run_until_complete(main())


ATOMS: Final = tuple(Atom(id=f"a{i}", text=f"Statement {i} says that it is so.", contexts=("c0",)) for i in range(5))
CASE: Final = Case(
    id="1",
    query="Who was it?",
    response="Statement 1 says that it is so. It was Ada who wrote it in 1843. " * 3,
    atoms=ATOMS,
    contexts=(Context(id="c0", text="Ada wrote it in 1843. " * 40), Context(id="c1", text="It was so.")),
)
PAIRS: Final = tuple(Pair("c0", atom.id, "Ada wrote it.", atom.text) for atom in ATOMS)
QUESTIONS: Final = tuple(
    next(RelationModel(style=style, votes=votes).questions(PAIRS))
    for style, votes in (("pairwise", 0), ("pairwise", 2), ("packed", 0), ("packed", 1))
)


def relations(data: bytes) -> None:
    """Relations from a reply with logprobs, in all styles; every probability is one."""
    reply = reply_of(data)

    async def ask(prompt: Prompt) -> Reply:
        return reply

    for question in QUESTIONS:
        for relation in run(relate(question, ask)):
            orjson.dumps(relation_to_dict(relation))
            assert relation.probability is None or 0 < relation.probability < 1, relation


def stages(data: bytes) -> None:
    """Atoms, revisions, queries, summaries and wrong statements from a reply."""
    reply = reply_of(data)

    async def ask(prompt: Prompt) -> Reply:
        return reply

    bare = Case(id="1", query=CASE.query, response=CASE.response)
    for stage, case in ((Atomizer(), bare), (Reviser(), CASE), (QueryBuilder(), CASE), (Falsifier(), bare)):
        written(run(stage.run(case, ask)))  # type: ignore[attr-defined]
    written(run(Summariser().run(CASE, ask)))


def written(case: Case | Failure) -> None:
    """What a stage has made of a reply can be written as JSON."""
    if isinstance(case, Case):
        orjson.dumps(case_to_dict(case))


def revisions(data: bytes) -> None:
    """A rewritten response from a reply, tagged or not."""
    text = as_text(data)
    asked = Prompt(messages=(("user", "Revise this.\n\n<response>\nRome is new.\n</response>"),), template="t/1")
    for reply in (Reply(text=text or " "), Reply(text=f"<revised>{text}</revised>", finish="length")):

        async def ask(prompt: Prompt, reply: Reply = reply) -> Reply:
            return reply

        found = run(revision(asked, "Rome is <new>.", ask, statements=["Rome is new."]))
        orjson.dumps([found.text, found.why])


# Responses of servers: a status, headers and a body, as they come over the wire.

CHAT: Final = {
    "id": "1",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "[Neutral]", "reasoning_content": "Well.", "refusal": None},
            "logprobs": {
                "content": [
                    {
                        "token": "[",
                        "logprob": -0.1,
                        "bytes": [91],
                        "top_logprobs": [{"token": "[", "logprob": -0.1, "bytes": [91]}, {"token": "N", "logprob": -3}],
                    },
                    {"token": "Neutral]", "logprob": -0.2, "bytes": None, "top_logprobs": []},
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}
LEGACY: Final = {
    "choices": [
        {
            "text": "yes",
            "logprobs": {"tokens": ["yes"], "token_logprobs": [-0.1], "top_logprobs": [{"yes": -0.1, "no": -3}]},
        }
    ]
}
ERRORS: Final = (
    (429, {"error": {"message": "Rate limit reached. Please try again in 1m2.5s.", "type": "x", "code": "rate_limit"}}),
    (400, {"error": {"message": "top_logprobs must be less than or equal to 5", "code": 400, "param": "top_logprobs"}}),
    (422, {"detail": [{"loc": ["body", "logprobs"], "msg": "extra fields not permitted", "input": {"a": 1}}]}),
    (200, {"error": {"code": 502, "message": "Provider returned error"}}),
    (500, [{"error": {"code": 500, "message": "internal", "status": "INTERNAL"}}]),
    (404, {"object": "error", "message": "The model `x` does not exist", "code": 404}),
)
HEADERS: Final = (
    "Content-Type: application/json\r\nRetry-After: 3\r\nx-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset: 6m0s",
    'content-type: text/html; charset="utf-8"\r\nretry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\nretry-after-ms: 12.5',
)


def wire(status: int, body: bytes, headers: str = HEADERS[0]) -> bytes:
    """A response as it comes over the wire."""
    return f"HTTP/1.1 {status} X\r\n{headers}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


MODELS: Final = dumped({"object": "list", "data": [{"id": "m", "max_model_len": 4096, "meta": {"n_ctx_train": 8192}}]})
COMPLETIONS: Final = tuple(
    [wire(200, dumped(CHAT)), wire(200, dumped(LEGACY), HEADERS[1]), wire(200, MODELS)]
    + [wire(status, dumped(error), HEADERS[i % 2]) for i, (status, error) in enumerate(ERRORS)]
)
SERPER: Final = {
    "searchParameters": {"q": "x"},
    "answerBox": {"title": "Rome", "answer": "old", "snippet": "Rome is old.", "link": "http://a.example/1"},
    "organic": [{"title": "Rome", "link": "http://a.example/2", "snippet": "Rome is a city.", "position": 1}],
    "knowledgeGraph": {"title": "Rome", "description": "A city.", "descriptionLink": "http://a.example/3"},
}
WIKIPEDIA: Final = {
    "batchcomplete": True,
    "query": {
        "pages": [
            {
                "pageid": 5,
                "index": 1,
                "title": "Rome",
                "fullurl": "http://a.example/Rome",
                "extract": "Rome is old.\n\n" * 9,
            },
            {"pageid": 6, "index": 2, "title": "Roma", "pageprops": {"disambiguation": ""}},
        ]
    },
}
SEARCHES: Final = (
    wire(200, dumped(SERPER)),
    wire(200, dumped(WIKIPEDIA)),
    wire(200, dumped({"error": {"code": "maxlag", "info": "Waiting for a server"}}), HEADERS[1]),
    wire(403, dumped({"message": "Unauthorized.", "statusCode": 403})),
    wire(400, dumped({"message": "Not enough credits", "statusCode": 400})),
)


def apart(data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a response, however it is broken."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    digits = "".join(sign for sign in first[8:14] if sign in "0123456789")
    pairs = [line.partition(":") for line in lines]
    return int(digits[:3] or 200), {name.strip(): value.strip() for name, _, value in pairs}, body


ENDPOINT: Final = Endpoint("http://127.0.0.1:9/v1", "m", "sk-secret-12345")


def outcome(data: bytes) -> None:
    """A response of a model server; a reply can be stored and read again."""
    read = read_discreetly(ENDPOINT, *apart(data))
    if isinstance(read, Reply):
        again = unpack_answer(pack_answer(read))
        assert isinstance(again, Reply)
        assert (again.text, again.finish, again.usage) == (read.text, read.finish, read.usage)
    else:
        unpack_answer(pack_answer(_failure(read)))


def _failure(read: Outcome) -> Any:
    assert not isinstance(read, Reply)
    assert read.reason.isprintable(), read.reason
    return Failure(read.kind, read.reason, 1)


def headers(data: bytes) -> None:
    """The seconds of Retry-After, if any; the kind and text of a document by its content type."""
    _, given, body = apart(data)
    for now in (0.0, time.time()):
        after = retry_after(given, now)
        assert after is None or after >= 0, after
    for value in given.values():
        kind = kind_of(value.partition(";")[0], body[:1024])
        if kind and kind != PDF and len(body) < 1000:
            charset = value.rpartition("charset=")[2]
            _without_text(kind, body, charset)


def _without_text(kind: str, body: bytes, charset: str | None) -> str:
    try:
        return text_of(kind, body, charset, time.monotonic() + 5)[0]
    except ExtractionError:
        return ""


SERPER_API: Final = SearchApi("http://127.0.0.1:9", judge=serper._judge, secret="0123456789abcdef")
WIKIPEDIA_API: Final = SearchApi("http://127.0.0.1:9", judge=wikipedia._judge)


def searches(data: bytes) -> None:
    """A response of a search service; what it found can be stored and read again."""
    given = apart(data)
    found = SERPER_API._read(*given)
    if isinstance(found, dict):
        hits = tuple(serper.passages(found))
        assert unpack_found(pack_answer(hits)) == hits
    found = WIKIPEDIA_API._read(*given)
    if isinstance(found, dict):
        wikipedia._hits(found)
