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
        "--theta",
        type=Amount(0, 1),
        metavar="T",
        help="Leave responses with a precision Pr of at least T unchanged. [default: 1]",
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
        help="Correction method. All but factcorrector are baselines, which do not evaluate their revisions.",
    ),
    _correction(
        "--no-guard",
        "no_guards",
        type=click.Choice([*GUARDS, "all"]),
        multiple=True,
        help="Accept a better revision even if it loses supported statements (supported), repeats an earlier text "
        "(oscillation), or differs in length or language; repeatable.",
    ),
    _correction(
        "--guard-by",
        type=click.Choice(["relation", "text"]),
        help="When a supported statement counts as kept: if the revision entails it (relation) or contains it verbatim "
        "(text). [default: relation]",
    ),
    _correction(
        "--may-lose",
        type=Amount(0, 1),
        metavar="X",
        help="Fraction of supported statements that a revision may lose. [default: 0]",
    ),
    _correction("--refiner-model", metavar="NAME", help="Model that rewrites responses. [default: the critic's model]"),
    _correction(
        "--refiner-base-url", metavar="URL", help="Endpoint of the refiner model. [default: the critic's endpoint]"
    ),
    _correction("--refiner-config", metavar="FILE", type=FILE, help="Same as --config, for the refiner model."),
    _correction("--refiner-price", type=PRICES, metavar="IN OUT", help="Same as --price, for the refiner model."),
    _correction("--refine-template", metavar="FILE", type=FILE, help="File with the prompt template for revisions."),
)
"""The method and its settings; `fcjax.cli.corrector` reads them."""
