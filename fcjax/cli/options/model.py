"""Options of the endpoint, the model, and what a run may send and spend."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from fcjax.cli.command import COMMON, MODEL, option, options
from fcjax.cli.options.types import COUNT, FILE, PRICES, Amount, size

_model = partial(option, section=MODEL)

ENDPOINT: Final = ("base_url", "model", "config", "litellm", "timeout")
"""Parameters of `endpoint_options`."""

CLIENT: Final = (
    *ENDPOINT,
    *("store", "replay", "constrain", "concurrency", "tries", "price"),
    *("requests_per_minute", "tokens_per_minute", "budget_prompts", "budget_tokens", "budget_dollars"),
)
"""Parameters of `client_options`."""

endpoint_options = options(
    option(
        "--base-url",
        metavar="URL",
        section=COMMON,
        help="Base URL of an OpenAI-compatible endpoint. [default: $OPENAI_BASE_URL]",
    ),
    option("--model", metavar="NAME", section=COMMON, help="Name of the model. [default: $FCJAX_MODEL]"),
    _model(
        "--config",
        metavar="FILE",
        type=FILE,
        help="TOML file with base_url, model, api_key_env and [options] for every request.",
    ),
    _model("--litellm", is_flag=True, help="Call the model through litellm; --model is then PROVIDER/NAME."),
    _model(
        "--timeout",
        type=Amount(0.001, 1e6),
        metavar="S",
        help="Timeout per request in seconds. [default: 300 without data, 600 in total]",
    ),
)
"""The endpoint: the arguments of `fcjax.cli.client.open_transport`."""

budget_options = options(
    _model("--budget-prompts", type=click.IntRange(0), metavar="N", help="Stop after N prompts."),
    _model("--budget-tokens", type=click.IntRange(0), metavar="N", help="Stop before using more than N tokens."),
    _model("--budget-dollars", type=Amount(0), metavar="X", help="Stop before spending more than X US dollars."),
)
replay = _model("--replay", is_flag=True, help="Use only replies from the store; send nothing.")

BATCH: Final = ("batch_out", "batch_requests", "batch_size")
"""Parameters of `batch_options`."""

batch_options = options(
    _model(
        "--batch-out",
        metavar="FOLDER",
        type=click.Path(file_okay=False),
        help="Send nothing: write the prompts that the store lacks to FOLDER, as OpenAI batch requests.",
    ),
    _model(
        "--batch-requests",
        type=COUNT,
        metavar="N",
        help="Maximum number of requests per file. [default: 50000, OpenAI's limit]",
    ),
    _model(
        "--batch-size",
        metavar="SIZE",
        callback=size,
        help="Maximum size of a file. [default: 200 million bytes, OpenAI's limit]",
    ),
)
"""Asking by files; `fcjax.cli.batch_out` reads them."""

client_options = options(
    endpoint_options,
    _model(
        "--store",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Store file for replies. [default: $FCJAX_STORE, or .cache/fcjax/replies.sqlite in the home folder]",
    ),
    replay,
    _model(
        "--constrain",
        type=click.Choice(("auto", "none", "json_schema", "choice", "guided_choice", "grammar")),
        default="auto",
        show_default=True,
        help="Have the server hold answers to the form asked for: JSON only (auto), nothing, or labels as well, by the "
        "field that fcjax doctor recommends.",
    ),
    _model(
        "--concurrency",
        type=click.IntRange(1, 4096),
        default=64,
        show_default=True,
        metavar="N",
        help="Maximum number of concurrent requests.",
    ),
    _model("--requests-per-minute", type=Amount(0, min_open=True), metavar="N", help="Maximum requests per minute."),
    _model("--tokens-per-minute", type=Amount(0, min_open=True), metavar="N", help="Maximum tokens per minute."),
    _model("--tries", type=COUNT, default=8, show_default=True, metavar="N", help="Maximum attempts per prompt."),
    budget_options,
    _model(
        "--price",
        type=PRICES,
        metavar="IN OUT",
        help="US dollars per million input tokens and per million output tokens. [default: from litellm's price list "
        "for OpenAI's own endpoint and with --litellm, else unknown]",
    ),
)
"""The endpoint and the limits of a run; `fcjax.cli.client.open_client` reads them."""
