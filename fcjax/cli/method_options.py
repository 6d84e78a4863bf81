"""Options that say how responses are corrected, and the method that they describe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from fcjax.cli import shell
from fcjax.cli.model_options import Amount, OpenClient, price_of
from fcjax.cli.relate import worded
from fcjax.core.errors import SettingsError

if TYPE_CHECKING:
    from fcjax.correction.guards import Guards
    from fcjax.correction.method import Method
    from fcjax.critic.critic import Critic
    from fcjax.io.client import Client

CORRECTORS: Final = ("factcorrector", "llm1", "llm2", "rac", "critic", "sft")  # as in `baselines.METHODS`
GUARDS: Final = ("supported", "oscillation", "length", "language")
correction_options = shell.added(
    click.option(
        "--corrector",
        type=click.Choice(CORRECTORS),
        default="factcorrector",
        show_default=True,
        help="The method: FactCorrector, or one that it is compared with. These do not evaluate what they make.",
    ),
    click.option("--theta", type=Amount(0, 1), metavar="T", help="Leave a response alone whose Pr is T. [default: 1]"),
    click.option(
        "--rounds",
        type=click.IntRange(0, 1000),
        metavar="R",
        help="Revisions of a response, at most. [default: 1; of critic 3]",
    ),
    click.option(
        "--no-guard",
        "no_guards",
        type=click.Choice([*GUARDS, "all"]),
        multiple=True,
        help="Keep a better revision even if it loses supported statements, was there before, or is of another length "
        "or language; may be given more than once.",
    ),
    click.option(
        "--guard-by",
        type=click.Choice(["relation", "text"]),
        help="When a supported statement is kept: where the revision entails it, or has it word for word. "
        "[default: relation]",
    ),
    click.option("--may-lose", type=Amount(0, 1), metavar="X", help="Supported statements that may go. [default: 0]"),
    click.option("--refiner-model", metavar="NAME", help="Who rewrites. [default: the critic's model]"),
    click.option("--refiner-base-url", metavar="URL", help="Where that one is asked. [default: the critic's endpoint]"),
    click.option(
        "--refiner-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="A file as of --config for whoever rewrites.",
    ),
    click.option(
        "--refiner-price",
        type=(Amount(0, 1e6), Amount(0, 1e6)),
        metavar="IN OUT",
        help="As --price, for whoever rewrites.",
    ),
    click.option(
        "--refine-template",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Another wording of the prompt that asks for a revision.",
    ),
)
"""The method and what it may do; `taken_method` takes them out of the others."""


METHOD: Final = ("corrector", "theta", "rounds", "no_guards", "guard_by", "may_lose", "refine_template")
"""Options that `method_of` wants."""


@contextlib.contextmanager
def open_writer(asking: OpenClient, given: dict[str, Any], asked: dict[str, Any]) -> Iterator[Client | None]:
    """The client of whoever rewrites, with the critic's store; None where that is the critic's model."""
    if not any(given.values()):
        yield None
        return
    if given["price"] and not (given["model"] or given["base_url"] or given["config"]):
        raise SettingsError("--refiner-price is given and no other refiner; name one, or leave it out for --price")
    from fcjax.io.client import Client
    from fcjax.io.endpoint import Endpoint
    from fcjax.io.http import Timeouts
    from fcjax.io.pacing import Retry

    config = given["config"]
    url = given["base_url"] or (None if config else asked["base_url"])
    where = Endpoint.from_env(url, given["model"] or (None if config else asked["model"]), config)
    timeout = asked["timeout"]
    yield Client(
        where,
        store=asking.kept,
        replay=asking.replay and asking.kept is not None,
        concurrency=asked["concurrency"],
        retry=Retry(attempts=asked["tries"]),
        budget=asking.budget,
        price=price_of(where, given["price"]),
        timeouts=Timeouts(read=timeout, total=timeout) if timeout else None,
    )


def method_of(given: dict[str, Any], critic: Critic, writer: Client | None, *, open_cases: int) -> Method:
    """The method that the options of `correction_options` describe. Raises `SettingsError`."""
    from fcjax.correction.baselines import method_of as named
    from fcjax.correction.factcorrector import Corrector
    from fcjax.correction.refine import REFINE, Refiner

    kind = named(given["corrector"])
    more: dict[str, Any] = {"client": writer, "open_cases": open_cases}
    if kind is Corrector:
        refiner = Refiner()
        if given["refine_template"]:
            refiner = replace(refiner, template=worded(REFINE, given["refine_template"]))
        more |= {"guards": guards_of(given["no_guards"], given["guard_by"], given["may_lose"]), "refiner": refiner}
        more |= {name: given[name] for name in ("theta", "rounds") if given[name] is not None}
        return Corrector(critic, **more)
    allowed = ("rounds",) if given["corrector"] == "critic" else ()
    for name in ("theta", "rounds", "no_guards", "guard_by", "may_lose", "refine_template"):
        if given[name] not in (None, ()) and name not in allowed:
            option = {"no_guards": "--no-guard"}.get(name, f"--{name.replace('_', '-')}")
            raise SettingsError(f"{option} is given, and {kind.name} has no such thing; leave it out")
    more |= {name: given[name] for name in allowed if given[name] is not None}
    return kind(critic, **more)


def guards_of(off: tuple[str, ...], by: Any, may_lose: float | None) -> Guards:
    """The guards without those that are switched off. Raises `SettingsError` where an option has no meaning then."""
    from fcjax.correction.guards import Guards

    off = GUARDS if "all" in off else off
    if "supported" in off and (by or may_lose is not None):
        raise SettingsError("--guard-by and --may-lose belong to the guard that is switched off; leave them out")
    chosen: dict[str, Any] = {"supported": None} if "supported" in off else {"supported": by or "relation"}
    chosen |= {name: False for name in ("oscillation", "language") if name in off}
    chosen |= {"shortest": None, "longest": None} if "length" in off else {}
    return Guards(may_lose=may_lose or 0.0, **chosen)
