"""Options of the commands that ask a model, and the client that they describe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from fcjax.core.errors import SettingsError

if TYPE_CHECKING:
    from fcjax.core.prompts import Prompt
    from fcjax.io.client import Client, Price
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.http import Transport
    from fcjax.io.pacing import Budget
    from fcjax.io.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])

COUNT = click.IntRange(1, 2**31 - 1)
"""From one to more than any run has, and no more than a request's fields and a counter hold."""


class Amount(click.FloatRange):
    """A finite number in a range; click's own takes NaN, which is neither too low nor too high."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no amount; allowed: a finite number", param, ctx)
        return number


_ENDPOINT = (
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint. [default: $OPENAI_BASE_URL]"),
    click.option("--model", metavar="NAME", help="The model to ask. [default: $FCJAX_MODEL]"),
    click.option(
        "--config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="A TOML file with base_url, model, api_key_env and [options] of every request.",
    ),
    click.option("--litellm", is_flag=True, help="Reach MODEL through litellm; its name begins with the provider's."),
    click.option("--timeout", type=Amount(0.001, 1e6), metavar="S", help="Seconds for one call."),
)
_RUN = (
    click.option(
        "--store",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Where replies are kept. [default: $FCJAX_STORE, or .cache/fcjax/replies.sqlite in the home folder]",
    ),
    click.option("--replay", is_flag=True, help="Take every answer from the store; nothing is sent."),
    click.option(
        "--concurrency",
        type=click.IntRange(1, 4096),
        default=64,
        show_default=True,
        metavar="N",
        help="Calls on the wire at once, at most.",
    ),
    click.option("--requests-per-minute", type=Amount(0, min_open=True), metavar="N", help="A rate limit."),
    click.option("--tokens-per-minute", type=Amount(0, min_open=True), metavar="N", help="Another one."),
    click.option("--tries", type=COUNT, default=8, show_default=True, metavar="N", help="For one prompt."),
    click.option("--budget-prompts", type=click.IntRange(0), metavar="N", help="Stop after so many prompts sent."),
    click.option("--budget-tokens", type=click.IntRange(0), metavar="N", help="Stop before more tokens are used."),
    click.option("--budget-dollars", type=Amount(0), metavar="X", help="Stop before more is spent."),
    click.option(
        "--price",
        type=(Amount(0, 1e6), Amount(0, 1e6)),
        metavar="IN OUT",
        help="US dollars for a million tokens of prompts and of answers. [default: litellm's list, for OpenAI's own "
        "endpoint and with --litellm; else unknown]",
    ),
)
_NAMES = (
    *("base_url", "model", "config", "litellm", "timeout", "store", "replay", "concurrency", "tries", "price"),
    *("requests_per_minute", "tokens_per_minute", "budget_prompts", "budget_tokens", "budget_dollars"),
)


def endpoint_options(command: Command) -> Command:
    """Options that say who is asked: the arguments of `transport`."""
    for option in reversed(_ENDPOINT):
        command = option(command)
    return command


def client_options(command: Command) -> Command:
    """Options that say who is asked and what that may take; `taken_client` takes them out of the others."""
    for option in reversed(_RUN):
        command = option(command)
    return endpoint_options(command)


class OpenClient(NamedTuple):
    """An opened client, and what to tell people about it."""

    client: Client
    endpoint: str  # its name, without secrets
    model: str
    store: Path | None  # None where nothing is stored
    window: int  # questions that may be under way at once
    count_tokens: Callable[[Prompt], int] | None  # None where four bytes each must do
    kept: Store | None  # where replies and searches are kept
    replay: bool  # whether it alone answers
    budget: Budget  # what the run may spend, whoever is asked


@contextmanager
def open_client(options: dict[str, Any], *, dry_run: bool = False) -> Iterator[OpenClient]:
    """The client that the options of `client_options` describe, with its store; they are taken out of `options`.

    A dry run only reads the store, and makes none. Raises `SettingsError`, `InputError` and `OutputError`.
    """
    from fcjax.io.client import Client
    from fcjax.io.http import Timeouts
    from fcjax.io.pacing import Budget, RateLimit, Retry
    from fcjax.io.store import Store, default_path

    given = {name: options.pop(name) for name in _NAMES}
    timeout, concurrency = given["timeout"], given["concurrency"]
    where = transport(*(given[name] for name in ("base_url", "model", "config", "litellm", "timeout")))
    rate = RateLimit(requests=given["requests_per_minute"], tokens=given["tokens_per_minute"])
    budget = Budget(prompts=given["budget_prompts"], tokens=given["budget_tokens"], dollars=given["budget_dollars"])
    count = None
    if given["litellm"]:
        from fcjax.io.providers import count_tokens

        count = partial(count_tokens, where.model)
    path = given["store"] or default_path()
    store = None
    if path.exists() or not dry_run:
        store = Store.open(path, readonly=dry_run or given["replay"])
    try:
        client = Client(
            where,
            store=store,
            replay=given["replay"] and not dry_run,
            concurrency=concurrency,
            rate=rate,
            retry=Retry(attempts=given["tries"]),
            budget=budget,
            price=price_of(where, given["price"]),
            timeouts=Timeouts(read=timeout, total=timeout) if timeout else None,
        )
        kept = path if store else None
        yield OpenClient(client, where.name, where.model, kept, 4 * concurrency, count, store, given["replay"], budget)
    finally:
        if store is not None:
            store.close()


def transport(
    base_url: str | None, model: str | None, config: str | None, litellm: bool, timeout: float | None
) -> Endpoint | Transport:
    """Who is asked. Raises `SettingsError` where that is not clear."""
    if litellm:
        from fcjax.io.http import Timeouts
        from fcjax.io.providers import LitellmTransport

        if not model or config:
            seen = "a config file is given" if config else "no model is named"
            raise SettingsError(f"--litellm: {seen}; allowed: --model PROVIDER/MODEL, and --base-url if need be")
        return LitellmTransport(model, api_base=base_url, timeout=timeout or Timeouts().total)
    from fcjax.io.endpoint import Endpoint

    return Endpoint.from_env(base_url, model, config)


def price_of(where: Endpoint | Transport, given: tuple[float, float] | None) -> Price | None:
    """The price that was given, else the listed one; None where it is unknown."""
    from fcjax.io.endpoint import OPENAI
    from fcjax.io.providers import Price, price

    if given is not None:
        return Price(given[0] / 1e6, given[1] / 1e6)
    # A model of the same name on a server of one's own costs something else.
    return price(where.model) if where.name == OPENAI or where.name.startswith("litellm") else None
