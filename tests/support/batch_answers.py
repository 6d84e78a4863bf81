"""A scripted model that reads files of batch requests and writes their outputs, and a server that takes batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from jsonl import rows_in
from scripted_server import Answer, Messages, completion, without_examples

URL = "/v1/chat/completions"


def output_of(request: dict[str, Any], answer: Callable[[Messages], Answer]) -> dict[str, Any]:
    """The line of an output file, as OpenAI writes it."""
    assert (request["method"], request["url"]) == ("POST", URL)
    said = answer(without_examples(request["body"]["messages"]))
    body = completion(request["body"], {"text": said} if isinstance(said, str) else said)
    return line(request, 200, body)


def line(request: dict[str, Any], status: int, body: Any, error: Any = None) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "req-1", "body": body}
    return {"id": "batch_req-1", "custom_id": request["custom_id"], "response": response, "error": error}


def failed(request: dict[str, Any], status: int = 500, message: str = "The server had an error") -> dict[str, Any]:
    return line(request, status, {"error": {"message": message, "type": "server_error"}})


def expired(request: dict[str, Any]) -> dict[str, Any]:
    """A request that the batch had no time for."""
    error = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
    return {"id": "batch_req-1", "custom_id": request["custom_id"], "response": None, "error": error}


def failed_in_vllm(request: dict[str, Any], status: int, message: str) -> dict[str, Any]:
    """As `vllm run-batch` writes an error: its description outside the response, which has no body."""
    return line(request, status, None, {"error": {"message": message, "type": "BadRequestError", "code": status}})


def last_round(folder: Path) -> list[Path]:
    """The files of requests of the last round, in order."""
    files = [path for path in folder.iterdir() if re.fullmatch(r"round-\d+-part-\d+\.jsonl", path.name)]
    newest = max(path.name[:9] for path in files)
    return sorted(path for path in files if path.name.startswith(newest))


def output_file(requests: Path) -> Path:
    return requests.with_suffix(".output.jsonl")


def answer_file(
    requests: Path,
    answer: Callable[[Messages], Answer],
    *,
    fails: Callable[[int], bool] = lambda number: False,
    as_failed: Callable[[dict[str, Any]], dict[str, Any]] = failed,
) -> Path:
    """Answer a file of requests; `fails` says by a request's number in the file, from 0, which ones have an error."""
    lines = [
        as_failed(one) if fails(number) else output_of(one, answer) for number, one in enumerate(rows_in(requests))
    ]
    out = output_file(requests)
    out.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in lines))
    return out


class BatchServer:
    """OpenAI's Files and Batches APIs, as routes for `served`: batches end after `looks` looks at them.

    `trouble` maps a method and path to what is answered instead, once for each entry: a status, or `lost` for a request
    that is carried out and whose answer is lost.
    """

    def __init__(self, answer: Callable[[Messages], Answer], *, key: str | None = None, looks: int = 1):
        self.answer, self.key, self.looks = answer, key, looks
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.looked: dict[str, int] = {}
        self.trouble: dict[tuple[str, str], list[int | str]] = {}
        self.fails: Callable[[int], bool] = lambda number: False
        self.refuses: str | None = None  # why every batch fails its validation
        self.requests: list[tuple[str, str]] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}, status=401)
        waiting = self.trouble.get((request.method, request.path), [])
        trouble = waiting.pop(0) if waiting else None
        if isinstance(trouble, int):
            return web.json_response({"error": {"message": "trouble"}}, status=trouble)
        response = await self._route(request)
        return web.json_response({"error": {"message": "lost"}}, status=503) if trouble == "lost" else response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.method, request.path.removeprefix("/v1").strip("/").split("/"):
            case "POST", ["files"]:
                content = await request.read()
                assert re.search(rb'name="purpose"\r\n(?:[^\r\n]+\r\n)*\r\nbatch\r\n', content)
                begin = content.index(b'{"custom_id"')
                name = f"file-{len(self.files)}"
                self.files[name] = content[begin : content.rindex(b"\n--") - 1]
                return web.json_response({"id": name, "object": "file"})
            case "POST", ["batches"]:
                asked = orjson.loads(await request.read())
                assert (asked["endpoint"], asked["completion_window"]) == (URL, "24h")
                name = f"batch-{len(self.batches)}"
                self.batches[name] = {"id": name, "input_file_id": asked["input_file_id"], "status": "validating"}
                return web.json_response(self.batches[name])
            case "GET", ["batches"]:
                return web.json_response({"data": list(self.batches.values()), "has_more": False})
            case "GET", ["batches", name]:
                return web.json_response(self._look(name))
            case "GET", ["files", name, "content"]:
                return web.Response(body=self.files[name])
        return web.json_response({"error": {"message": "no such place"}}, status=404)

    def _look(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        self.looked[name] = self.looked.get(name, 0) + 1
        if self.refuses:
            batch |= {"status": "failed", "errors": {"data": [{"message": self.refuses, "line": 1}]}}
        elif self.looked[name] >= self.looks and batch["status"] != "completed":
            lines = self.files[batch["input_file_id"]].splitlines()
            requests = [orjson.loads(one) for one in lines]
            good = [output_of(one, self.answer) for n, one in enumerate(requests) if not self.fails(n)]
            bad = [failed(one) for n, one in enumerate(requests) if self.fails(n)]
            for field, rows in (("output_file_id", good), ("error_file_id", bad)):
                if rows:
                    batch[field] = f"{name}-{field}"
                    self.files[batch[field]] = b"\n".join(orjson.dumps(row) for row in rows)
            batch["status"] = "completed"
        return batch
