"""The client that the options of the model describe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fcjax.cli.options.model import CLIENT, ENDPOINT
from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Prompt
from fcjax.io.client import Client
from fcjax.io.endpoint import OPENAI, Endpoint
from fcjax.io.http import Timeouts, Transport
from fcjax.io.pacing import Budget, RateLimit, Retry
from fcjax.io.providers import LitellmTransport, Price, count_tokens, price_at
from fcjax.io.stats import Stats
from fcjax.io.store import Store, default_path

if TYPE_CHECKING:
    from fcjax.io.batches.collector import Collector


class ModelAccess(NamedTuple):
    """An open client and what belongs to it; where no model is asked, there is none."""

    client_or_none: Client | None
    endpoint: str | None  # its name, without secrets
    model: str
    store_path: Path | None  # None where nothing is stored
    window: int  # prompts that may be in progress at once
    count_tokens: Callable[[Prompt], int] | None  # None: four bytes per token
    store: Store | None  # of replies and searches
    replay: bool  # whether answers come from the store only
    budget: Budget  # of the run, for all of its models
    batch: Collector | None = None  # takes what the store lacks

    @property
    def client(self) -> Client:
        """The client, of a command that cannot do without."""
        assert self.client_or_none is not None
        return self.client_or_none

    @property
    def stats(self) -> Stats:
        """What the client has done: nothing, where there is none."""
        return Stats() if self.client_or_none is None else self.client_or_none.stats


@contextmanager
def open_client(
    parameters: dict[str, Any],
    *,
    dry_run: bool = False,
    asks: bool = True,
    stores: bool = False,
    batch: Collector | None = None,
) -> Iterator[ModelAccess]:
    """The client that `client_options` describe, with its store; their values are taken out of `parameters`.

    A dry run only reads the store and does not create one. Unless it `asks`, there is no client, and a store only for a
    run that `stores` other answers, of the web or of a local model. A `batch` takes the prompts that the store
    lacks; then an endpoint that is not named is OpenAI's. Raises `SettingsError`, `InputError` and `OutputError`.
    """
    given = {name: parameters.pop(name) for name in CLIENT}
    if batch is not None and not (is_configured({**given, "model": None})):
        given["base_url"] = OPENAI
    transport = open_transport(**{name: given[name] for name in ENDPOINT}) if asks else None
    rate = RateLimit(requests=given["requests_per_minute"], tokens=given["tokens_per_minute"])
    budget = Budget(prompts=given["budget_prompts"], tokens=given["budget_tokens"], dollars=given["budget_dollars"])
    path = given["store"] or default_path()
    store = None
    if (asks or stores) and (path.exists() or not dry_run):
        store = Store.open(path, readonly=dry_run or given["replay"])
    place, window = path if store else None, 4 * given["concurrency"]
    try:
        if transport is None:
            yield ModelAccess(None, None, "", place, window, None, store, given["replay"], budget)
            return
        client = Client(
            transport,
            store=store,
            replay=given["replay"] and not dry_run,
            constrain=given["constrain"],
            batch=batch,
            concurrency=given["concurrency"],
            rate=rate,
            retry=Retry(attempts=given["tries"]),
            budget=budget,
            price=price_of(transport, given["price"]),
            timeouts=timeouts_of(given["timeout"]),
        )
        name, model = transport.name, transport.model
        count = partial(count_tokens, model) if given["litellm"] else None
        yield ModelAccess(client, name, model, place, window, count, store, given["replay"], budget, batch)
    finally:
        if store is not None:
            store.close()


def is_configured(given: dict[str, Any]) -> bool:
    """Whether options or variables name an endpoint, complete or not."""
    named = any(given[name] for name in ("base_url", "model", "config", "litellm"))
    return named or any(os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"))


def open_transport(
    base_url: str | None, model: str | None, config: str | None, litellm: bool, timeout: float | None
) -> Endpoint | Transport:
    """The endpoint that `endpoint_options` describe. Raises `SettingsError` where they are incomplete."""
    if not litellm:
        return Endpoint.from_env(base_url, model, config)
    if not model or config:
        found = (
            "--config has no effect with --litellm; remove one of them"
            if config
            else "--litellm needs a model; add --model PROVIDER/NAME"
        )
        raise SettingsError(found)
    return LitellmTransport(model, api_base=base_url, timeout=timeout or Timeouts().total)


def timeouts_of(seconds: float | None) -> Timeouts | None:
    """The timeouts of a request; None for the client's own."""
    return Timeouts(read=seconds, total=seconds) if seconds else None


def price_of(transport: Endpoint | Transport, given: tuple[float, float] | None) -> Price | None:
    """The price that was given, else the listed one; None where it is unknown."""
    if given is not None:
        return Price(given[0] / 1e6, given[1] / 1e6)
    return price_at(transport.name, transport.model)
