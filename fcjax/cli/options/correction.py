"""Options of the method of correction."""

from __future__ import annotations

from functools import partial
from typing import Final

import click

from fcjax.cli.command import CORRECTION, option, options
from fcjax.cli.options.types import FILE, PRICES, Amount

_correction = partial(option, section=CORRECTION)

CORRECTORS: Final = ("factcorrector", "llm1", "llm2", "rac", "critic", "sft")  # as in `baselines.METHODS`
GUARDS: Final = ("supported", "oscillation", "length", "language")
METHOD: Final = ("corrector", "theta", "rounds", "no_guards", "guard_by", "may_lose", "refine_template")
"""Parameters that `fcjax.cli.corrector.method_of` reads."""

correction_options = options(
    _correction(
        "--theta", type=Amount(0, 1), metavar="T", help="Keep a response whose precision Pr is at least T. [default: 1]"
    ),
    _correction(
        "--rounds",
        type=click.IntRange(0, 1000),
        metavar="R",
        help="Maximum revisions per response. [default: 1; 3 with --corrector critic]",
    ),
    _correction(
        "--corrector",
        type=click.Choice(CORRECTORS),
        default="factcorrector",
        show_default=True,
        help="Method of correction. The other ones are for comparison and do not evaluate their revisions.",
    ),
    _correction(
        "--no-guard",
        "no_guards",
        type=click.Choice([*GUARDS, "all"]),
        multiple=True,
        help="Accept a better revision that loses supported statements (supported), returns to an earlier text "
        "(oscillation), or changes in length or language; repeatable.",
    ),
    _correction(
        "--guard-by",
        type=click.Choice(["relation", "text"]),
        help="A supported statement is kept if the revision entails it (relation) or repeats it word for word (text). "
        "[default: relation]",
    ),
    _correction(
        "--may-lose",
        type=Amount(0, 1),
        metavar="X",
        help="Fraction of supported statements that may be lost. [default: 0]",
    ),
    _correction("--refiner-model", metavar="NAME", help="Model that rewrites. [default: the critic's]"),
    _correction("--refiner-base-url", metavar="URL", help="Endpoint of that model. [default: the critic's]"),
    _correction("--refiner-config", metavar="FILE", type=FILE, help="Same as --config, for that model."),
    _correction("--refiner-price", type=PRICES, metavar="IN OUT", help="Same as --price, for that model."),
    _correction("--refine-template", metavar="FILE", type=FILE, help="Prompt template that asks for a revision."),
)
"""The method and its settings; `fcjax.cli.corrector` reads them."""
