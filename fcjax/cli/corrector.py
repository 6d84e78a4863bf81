"""The method of correction that the options describe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fcjax.cli.client import ModelAccess, price_of, timeouts_of
from fcjax.cli.critic import with_words_of
from fcjax.cli.options.correction import GUARDS
from fcjax.correction.baselines import method_of as method_by_name
from fcjax.correction.factcorrector import Corrector
from fcjax.correction.guards import Guards
from fcjax.correction.method import Method
from fcjax.correction.refine import REFINE, Refiner
from fcjax.critic.critic import Critic
from fcjax.io.client import Client
from fcjax.io.endpoint import Endpoint
from fcjax.io.pacing import Retry


@contextlib.contextmanager
def open_refiner(access: ModelAccess, given: dict[str, Any], critic: dict[str, Any]) -> Iterator[Client | None]:
    """The client of the model that rewrites, with the critic's store; None where that is the critic's model.

    `given` are the values of `--refiner-...` without that prefix, `critic` those of the critic's own options.
    """
    if not any(given.values()):
        yield None
        return
    config = given["config"]
    url = given["base_url"] or (None if config else critic["base_url"])
    endpoint = Endpoint.from_env(url, given["model"] or (None if config else critic["model"]), config)
    yield Client(
        endpoint,
        store=access.store,
        batch=access.batch,
        replay=access.replay and access.store is not None,
        concurrency=critic["concurrency"],
        retry=Retry(attempts=critic["tries"]),
        budget=access.budget,
        price=price_of(endpoint, given["price"]),
        timeouts=timeouts_of(critic["timeout"]),
    )


def method_of(given: dict[str, Any], critic: Critic, refiner: Client | None, *, open_cases: int) -> Method:
    """The method that `correction_options` describe; `fcjax.cli.requirements` refuses what it does not use."""
    method = method_by_name(given["corrector"])
    settings: dict[str, Any] = {"client": refiner, "open_cases": open_cases}
    settings |= {name: given[name] for name in ("theta", "rounds") if given[name] is not None}
    if method is not Corrector:
        return method(critic, **settings)
    prompt = Refiner()
    if given["refine_template"]:
        prompt = replace(prompt, template=with_words_of(REFINE, given["refine_template"]))
    guards = guards_of(given["no_guards"], given["guard_by"], given["may_lose"])
    return Corrector(critic, guards=guards, refiner=prompt, **settings)


def guards_of(off: tuple[str, ...], by: Any, may_lose: float | None) -> Guards:
    """The guards without those that are switched off."""
    off = GUARDS if "all" in off else off
    chosen: dict[str, Any] = {"supported": None} if "supported" in off else {"supported": by or "relation"}
    chosen |= {name: False for name in ("oscillation", "language") if name in off}
    chosen |= {"shortest": None, "longest": None} if "length" in off else {}
    return Guards(may_lose=may_lose or 0.0, **chosen)
