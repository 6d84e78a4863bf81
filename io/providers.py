"""Providers that are not OpenAI-compatible, through litellm, and litellm's price table.

litellm takes several seconds to load, so it is loaded on first use. Prices are read from the file that comes with it,
without loading it. The only network access is the call to the model.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from fcjax.core.checks import check_number
from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Prompt, Reply, Usage
from fcjax.io.endpoint import OPENAI, Endpoint, masked
from fcjax.io.http import request_body, without_secrets
from fcjax.io.outcome import Outcome, read_response

_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")
_PRICES: Final = "model_prices_and_context_window_backup.json"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per token. Discounts for cached prompts and surcharges for long ones are left out.

    Raises `SettingsError` for a value that is not a price: with NaN, a budget would never be used up.
    """

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        for name in ("prompt", "completion"):
            check_number(f"price of a {name} token", getattr(self, name), 0, 1)

    def __call__(self, usage: Usage) -> float:
        """The cost of `usage`, in US dollars."""
        return self.prompt * usage.prompt + self.completion * usage.completion


def price(model: str) -> Price | None:
    """The list price of `model`, with or without its provider (`openai/gpt-4o`); None where the table has none."""
    table = _table()
    entry = table.get(model)
    if entry is None:
        provider, _, name = model.partition("/")
        entry = table.get(name)
        if entry is None or entry[0] != provider:
            return None
    return entry[1]


def price_at(endpoint: str, model: str) -> Price | None:
    """The list price of `model` at the endpoint of this name. None at other servers, where it is another one: only
    OpenAI's own, and those that litellm reaches, have listed prices."""
    is_listed = endpoint.partition("?")[0] == OPENAI or endpoint.startswith("litellm")
    return price(model) if is_listed else None


def count_tokens(model: str, prompt: Prompt) -> int:
    """Tokens of a prompt by the model's own tokenizer if litellm includes it, else by one of OpenAI's."""
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    return int(_litellm().token_counter(model=model, messages=messages))


@dataclass(eq=False)
class LitellmTransport:
    """Calls `model`, named as in litellm (`anthropic/claude-sonnet-4-5`), at its provider.

    The key is `api_key`, or in the provider's own variable (ANTHROPIC_API_KEY); `api_base` is another address than the
    provider's own. `timeout` is in seconds per call. litellm itself does not retry: the client does.

    Raises `SettingsError` for a model whose provider litellm does not know.
    """

    model: str
    api_key: str | None = field(default=None, repr=False)
    api_base: str | None = field(default=None, repr=False)
    timeout: float = 600.0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        # An address is named as an endpoint is, without what may be secret in it.
        self.name = f"litellm+{Endpoint(self.api_base, self.model).name}" if self.api_base else "litellm"
        try:
            _litellm().get_llm_provider(self.model)
        except Exception as error:
            raise SettingsError(
                f"the model {self.model!r} does not name a provider; allowed: PROVIDER/MODEL, such as "
                f"anthropic/claude-sonnet-4-5"
            ) from error

    async def send(self, prompt: Prompt) -> Outcome:
        """Ask once; an exception of litellm is read as the response that it stands for."""
        settings = {"api_key": self.api_key, "api_base": self.api_base, "timeout": self.timeout}
        try:
            answer = await _litellm().acompletion(
                **request_body(self.model, prompt), **settings, num_retries=0, max_retries=0
            )
        except Exception as error:
            outcome = _read_error(error, masked(str(error), self._secrets()))
        else:
            # The standard library's JSON can hold -inf, which is a valid logprob.
            outcome = read_response(200, {}, json.dumps(answer.model_dump(), default=str).encode(), now=time.time())
        if isinstance(outcome, Reply):
            return without_secrets(outcome, self._secrets())
        return replace(outcome, reason=masked(outcome.reason, self._secrets()))

    def _secrets(self) -> list[str]:
        """The secrets that were given, and those of the environment, where litellm finds its keys."""
        found = [value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8]
        given = (self.api_key, *(Endpoint(self.api_base, self.model).secrets if self.api_base else ()))
        return [secret for secret in (*given, *found) if secret]

    async def close(self) -> None:
        """Close litellm's connections, which are shared by the whole process."""
        await _litellm().close_litellm_async_clients()


def _read_error(error: Exception, words: str) -> Outcome:
    """litellm's exceptions hold the response; one without a status is a fault of litellm itself."""
    status = getattr(error, "status_code", None)
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
    detail = {"message": words, "type": type(error).__name__, "code": getattr(error, "code", None)}
    body = json.dumps({"error": detail}, default=str).encode()
    return read_response(status if isinstance(status, int) else 500, headers, body, now=time.time())


@cache
def _litellm() -> Any:
    # Read when litellm is imported: the table of prices that comes with it, not one from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True  # it would print advice on standard output
    litellm.disable_hf_tokenizer_download = True  # a count of tokens needs no network
    return litellm


@cache
def _table() -> dict[str, tuple[str, Price]]:
    """Provider and price of every model in litellm's file that has a price per token."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    entries: dict[str, dict[str, Any]] = orjson.loads(Path(spec.origin).with_name(_PRICES).read_bytes())
    return {
        name: (str(entry.get("litellm_provider")), Price(entry["input_cost_per_token"], entry["output_cost_per_token"]))
        for name, entry in entries.items()
        if name != "sample_spec" and {"input_cost_per_token", "output_cost_per_token"} <= entry.keys()
    }
