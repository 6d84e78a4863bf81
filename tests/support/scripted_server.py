"""A real server for chat completions on loopback, whose answers and whose bad weather are scripted.

    with ScriptedServer(answer=lambda messages: "[Neutral]", weather=["429", "ok"]) as server:
        ...  # ask server.url; server.asked counts what arrived, by the text of the last message

It runs in a thread of its own; `python tests/support/scripted_server.py --delay 0.01` runs it as a process (for
benchmarks), which prints its URL and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import socket
import struct
import sys
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import orjson
from aiohttp import web

Messages = list[dict[str, str]]
Answer = str | dict[str, Any]
"""A text, or what differs from a plain good reply:

`{"text": ..., "tokens": [(text, logprob, [(other, logprob), ...]), ...], "finish": ..., "message": {...}}` for a reply
(`message` adds fields to the message), `{"body": object or bytes, "status": ..., "headers": {...}}` for anything else.
"""

TROUBLE = {
    "429": (429, {}, {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}),
    "500": (500, {}, {"error": {"message": "The server had an error", "type": "server_error"}}),
    "503": (503, {}, {"error": {"message": "The engine is currently overloaded", "type": "overloaded"}}),
    "529": (529, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    "html": (502, {"content-type": "text/html"}, b"<html><h1>502 Bad Gateway</h1></html>"),
    "garbage": (200, {}, b"\x00\xff not JSON"),
    "truncated": (200, {}, b'{"choices": [{"message": {"content": "[Ent'),
}


@dataclass(frozen=True)
class Weather:
    """Shares of the calls that meet trouble; drawn with `seed`, independent of what is asked."""

    too_many: float = 0.0  # 429, every other one with retry-after-ms
    hang: float = 0.0
    reset: float = 0.0
    garbage: float = 0.0
    seed: int = 0

    def __iter__(self) -> Iterator[str]:
        draw = random.Random(self.seed)
        kinds = ["429", "429 after 20ms", "hang", "reset", "garbage", "truncated", "ok"]
        shares = [self.too_many / 2] * 2 + [self.hang, self.reset] + [self.garbage / 2] * 2
        while True:
            yield draw.choices(kinds, [*shares, 1 - sum(shares)])[0]


def without_examples(messages: Messages) -> Messages:
    """The question and what follows it: of several that quote a premise, the last one is meant. Its texts are put
    between tags, as they are in the other wordings."""
    asked = [i for i, one in enumerate(messages) if one["role"] == "user" and _QUOTING.match(one["content"])]
    if not asked:
        return messages
    question, *rest = messages[asked[-1] :]
    if texts := _PASSAGE.fullmatch(question["content"]):
        premise, claim = texts.groups()
        content = f"<premise>\n{premise}\n</premise>\n\n<hypothesis>\n{claim}\n</hypothesis>"
        question = {"role": "user", "content": content}
    return [question, *rest]


_QUOTING = re.compile(r"Passage: |.*<premise>", re.DOTALL)
_PASSAGE = re.compile(r"Passage: (.*)\nClaim: (.*)")


class ScriptedServer:
    """`POST /v1/chat/completions` and `GET /v1/models` on a free port of 127.0.0.1.

    `weather` says what happens to one call after the other (`ok` once it is exhausted): a key of `TROUBLE`, `hang`,
    `reset`, `429 after 20ms`, `503 after 20ms`. `delay` is the seconds that a good reply takes, give or take the share
    `spread`; `key` is the API key that is demanded; a request for more than `most_logprobs` alternatives is refused as
    OpenAI does it.

    Of the fields that constrain an answer, those in `enforces` are honoured (an answer that does not fit is replaced by
    one that does), those in `refuses` are refused, with the status and the body given for each, and the others are
    ignored. Where an answer has been constrained, it is cut off after `cut` characters. `elsewhere` answers requests to
    other paths.
    """

    def __init__(
        self,
        answer: Callable[[Messages], Answer] = lambda messages: "ok",
        *,
        weather: Iterable[str] = (),
        delay: float = 0.0,
        spread: float = 0.0,
        key: str | None = None,
        models: Iterable[str] = ("scripted",),
        most_logprobs: int = 20,
        enforces: Iterable[str] = (),
        refuses: Mapping[str, tuple[int, Any]] | None = None,
        cut: int | None = None,
        elsewhere: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None,
    ):
        self.answer, self.delay, self.spread = answer, delay, spread
        self.key, self.most_logprobs = key, most_logprobs
        self.models = tuple(models)
        self.enforces, self.refuses, self.cut = frozenset(enforces), dict(refuses or {}), cut
        self.elsewhere = elsewhere
        self.asked: Counter[str] = Counter()  # calls that arrived, by the text of their last message
        self.answered: Counter[str] = Counter()  # of these, the ones that were given a reply
        self.trouble: Counter[str] = Counter()  # the others, by kind
        self.bodies: deque[dict[str, Any]] = deque(maxlen=1000)  # the last requests
        self.headers: deque[Mapping[str, str]] = deque(maxlen=1000)
        self.in_flight = self.most_in_flight = 0
        self._weather = iter(weather)
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        self._wait(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def calls(self) -> int:
        return self.asked.total()

    def restart(self, down: float = 0.1) -> None:
        """Breaks all connections, is away for `down` seconds, and comes back on the same port."""
        self.stop()
        self._wait(asyncio.sleep(down))
        self.start()

    def stop(self) -> None:
        self._wait(self._close())

    def start(self) -> None:
        self._wait(self._open())

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _open(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        await self._runner.cleanup()
        handlers = asyncio.all_tasks() - {asyncio.current_task()}  # those that still sleep
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._route(request)
        finally:
            self.in_flight -= 1

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return reply(401, {}, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})
        if request.path == "/v1/models":
            return reply(200, {}, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
        if request.path != "/v1/chat/completions":
            return await self.elsewhere(request) if self.elsewhere else reply(404, {}, {"detail": "Not Found"})
        body = orjson.loads(await request.read())
        question = body["messages"][-1]["content"]
        self.asked[question] += 1
        self.bodies.append(body)
        self.headers.append(request.headers)
        kind = next(self._weather, "ok")
        if kind != "ok":
            self.trouble[kind] += 1
            return await self._misbehave(kind, request)
        if body.get("top_logprobs", 0) > self.most_logprobs:
            message = f"Invalid value for 'top_logprobs': must be less than or equal to {self.most_logprobs}."
            return reply(400, {}, {"error": {"message": message, "param": "top_logprobs", "code": None}})
        for field, (status, content) in self.refuses.items():
            if field in body:
                return reply(status, {}, content)
        if self.delay:
            await asyncio.sleep(self.delay * random.uniform(1 - self.spread, 1 + self.spread))
        answer = self.answer(without_examples(body["messages"]))
        self.answered[question] += 1
        if isinstance(answer, str):
            answer = {"text": answer}
        if "text" in answer and (fitting := fitting_answer(body, answer["text"], self.enforces)) is not None:
            answer = {**answer, "text": fitting[: self.cut]}
            if self.cut is not None and len(fitting) > self.cut:
                answer["finish"] = "length"
        content = answer["body"] if "body" in answer else completion(body, answer)
        return reply(answer.get("status", 200), answer.get("headers", {}), content)

    async def _misbehave(self, kind: str, request: web.BaseRequest) -> web.StreamResponse:
        name, _, after = kind.partition(" after ")
        if name == "hang":
            await asyncio.sleep(3600)
        if name == "reset":
            assert request.transport is not None
            line = request.transport.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # so that it is a reset
            request.transport.abort()
            return reply(500, {}, b"")  # reaches nobody
        status, headers, content = TROUBLE[name]
        return reply(status, {**headers, **({"retry-after-ms": after.removesuffix("ms")} if after else {})}, content)


def reply(status: int, headers: Mapping[str, str], content: Any) -> web.Response:
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    return web.Response(status=status, headers={"content-type": "application/json", **headers}, body=body)


def unknown(field: str) -> tuple[int, Any]:
    """How OpenAI refuses a field that it does not know."""
    return 400, {"error": {"message": f"Unknown parameter: '{field}'.", "param": field, "code": "unknown_parameter"}}


def fitting_answer(request: Mapping[str, Any], text: str, enforces: frozenset[str]) -> str | None:
    """`text`, or one that fits in its place, as a server that enforces these fields answers; None where it is free."""
    given = {field: request[field] for field in enforces if field in request}
    choices = given.get("guided_choice") or given.get("structured_outputs", {}).get("choice")
    if "grammar" in given:
        choices = [orjson.loads(quoted) for quoted in re.findall(r'"(?:[^"\\]|\\.)*"', given["grammar"])]
    if choices:
        return next((choice for choice in choices if choice == text), choices[0])
    if "response_format" not in given:
        return None
    schema = given["response_format"]["json_schema"]["schema"]
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = text
    return text if fits(value, schema) and value is not text else orjson.dumps(example(schema, value)).decode()


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if schema["type"] == "object":
        keys, properties = schema["required"], schema["properties"]
        return isinstance(value, dict) and list(value) == keys and all(fits(value[k], properties[k]) for k in keys)
    if schema["type"] == "array":
        return isinstance(value, list) and all(fits(one, schema["items"]) for one in value)
    return isinstance(value, str) and value in schema.get("enum", [value])


def example(schema: Mapping[str, Any], value: Any) -> Any:
    """What fits a schema, as much like a value as it may be."""
    if fits(value, schema):
        return value
    if "anyOf" in schema:
        return example(schema["anyOf"][0], value)
    if schema["type"] == "object":
        own = value if isinstance(value, dict) else {}
        return {key: example(schema["properties"][key], own.get(key)) for key in schema["required"]}
    if schema["type"] == "array":
        return [value] if fits(value, schema["items"]) else []
    return schema.get("enum", ["none"])[0]


def completion(request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion as OpenAI writes it, with logprobs where the request asked for them."""
    text = answer["text"]
    words = re.findall(r"\s*\w+|\s*[^\w\s]|\s+", text)
    tokens = answer.get("tokens") or [(word, -0.01, [(word, -0.01), (" other", -5.0)]) for word in words]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **answer.get("message", {})},
        "logprobs": None,
        "finish_reason": answer.get("finish", "stop"),
    }
    if request.get("logprobs"):
        most = request.get("top_logprobs") or 0
        choice["logprobs"] = {
            "content": [
                {**entry(token, logprob), "top_logprobs": [entry(*other) for other in top[:most]]}
                for token, logprob, top in tokens
            ]
        }
    prompt = sum(len(message["content"]) for message in request["messages"]) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens), "total_tokens": prompt + len(tokens)}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [choice],
        "usage": usage,
    }


def entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a reply takes")
    parser.add_argument("--spread", type=float, default=0.0, help="share of it that varies, up and down")
    parser.add_argument("--text", default="The premise says so. [Entailment]", help="what is answered")
    given = parser.parse_args()
    with ScriptedServer(lambda messages: given.text, delay=given.delay, spread=given.spread) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
