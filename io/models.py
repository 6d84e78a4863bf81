"""The models of an endpoint: their names, and how many tokens a prompt and its answer may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from fcjax.core.prompts import Failure, Reply
from fcjax.io.endpoint import Endpoint
from fcjax.io.http import ENCODINGS, behind_proxy, read_body, read_discreetly, too_large
from fcjax.io.outcome import read_exception

_LARGEST: Final = 16 << 20  # bytes of a list of models


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that an endpoint serves."""

    name: str
    context: int | None  # tokens of a prompt and its answer together; None where it is not given


async def list_models(endpoint: Endpoint, *, timeout: float = 30.0) -> tuple[ModelInfo, ...] | Failure:
    """The models of an endpoint, or the reason why it lists none. `timeout` is in seconds."""
    try:
        async with (
            aiohttp.ClientSession(
                headers={**ENCODINGS, **endpoint.headers},
                timeout=aiohttp.ClientTimeout(total=timeout),
                trust_env=behind_proxy(endpoint.completions),
                auto_decompress=False,  # `read_body` does it, within a limit
            ) as session,
            session.get(endpoint.models, allow_redirects=False) as response,
        ):
            status, headers, body = response.status, response.headers, await read_body(response, _LARGEST)
    except Exception as error:
        outcome = read_exception(error)
        return Failure(outcome.kind, endpoint.scrubbed(outcome.reason))
    if body is None:
        outcome = too_large(status, _LARGEST)
        return Failure(outcome.kind, outcome.reason)
    try:
        listed = orjson.loads(body)["data"] if status == 200 else None
        return tuple(ModelInfo(str(entry["id"]), _context(entry)) for entry in listed or ())
    except (ValueError, TypeError, KeyError, RecursionError):  # the last one of an id that is nested too deeply
        pass
    answered = read_discreetly(endpoint, status, headers, body)
    if isinstance(answered, Reply):
        return Failure("unreadable", f"HTTP {status} with a chat completion instead of a list of models")
    return Failure(answered.kind, answered.reason)


def _context(entry: Mapping[str, Any]) -> int | None:
    """The context size, under the names that servers give it; what is in use goes before what is possible."""
    meta = entry.get("meta")
    for source in (entry, meta if isinstance(meta, dict) else {}):
        for name in _NAMES:
            if isinstance(size := source.get(name), int) and size > 0:
                return size
    return None


_NAMES: Final = (
    "max_model_len",
    "n_ctx",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "n_ctx_train",
)
