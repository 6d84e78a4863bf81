"""`--batch-out`: a run that asks by files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from fcjax.cli import shell
from fcjax.cli.summary import counts, dollars
from fcjax.core.prompts import PendingError, Usage
from fcjax.io.batches.collector import Collector, Written
from fcjax.io.providers import Price, price_at

SHARE: Final = 0.5
"""The share of the listed price that OpenAI bills for a batch."""


@dataclass(frozen=True, slots=True)
class BatchOut:
    """Where a run puts the prompts that the store lacks, in files of which size, and how it says so; without a
    `collector`, it asks an endpoint."""

    collector: Collector | None
    limits: dict[str, int]
    price: tuple[float, float] | None
    quiet: bool
    as_json: bool

    @contextmanager
    def written(self, ctx: click.Context, about: dict[str, Any]) -> Iterator[None]:
        """Where the run in the block lacks replies, write the prompts, say what to do next, and leave."""
        try:
            yield
        except PendingError:
            assert self.collector is not None
            written, folder = self.collector.write(**self.limits), self.collector.book.folder
            if self.as_json:
                shell.print_json(about | {"batch": _report(written, folder, self.price)})
            elif not self.quiet:
                for line in _lines(written, folder, self.price):
                    shell.echo(line, err=about["output"] == "-")
            ctx.exit(shell.WAITING)


@contextmanager
def open_batch(parameters: dict[str, Any], *, dry_run: bool, quiet: bool, as_json: bool) -> Iterator[BatchOut]:
    """What `batch_options` describe; their values are taken out of `parameters`. A dry run writes nothing."""
    folder = parameters.pop("batch_out")
    given = {"requests": parameters.pop("batch_requests"), "size": parameters.pop("batch_size")}
    limits = {name: value for name, value in given.items() if value is not None}
    with ExitStack() as opened:
        collector = None
        if folder is not None and not dry_run:
            collector = opened.enter_context(Collector.open(Path(folder), tries=parameters["tries"]))
        yield BatchOut(collector, limits, parameters["price"], quiet, as_json)


def _report(written: Written, folder: Path, price: tuple[float, float] | None) -> dict[str, Any]:
    """A round as JSON."""
    return {
        "folder": str(folder),
        "round": written.round,
        "is_new": written.is_new,
        "n_prompts": written.requests,
        "files": [{"file": str(one.path), "requests": one.requests, "bytes": one.bytes} for one in written.parts],
        "input_tokens": sum(one.input for one in written.tokens),
        "output_tokens": sum(one.output for one in written.tokens),
        "cost": _cost(written, price),
        "n_under_way": written.under_way,
        "asked_again": dict(written.again),
        "not_imported": written.unimported,
    }


def _lines(written: Written, folder: Path, price: tuple[float, float] | None) -> Iterator[str]:
    """What was written, and what to do next."""
    if written.under_way:
        yield f"{shell.counted(written.under_way, 'prompt')} under way; run fcjax batch fetch {folder}"
    if not written.parts:
        return
    size = shell.byte_size(sum(part.bytes for part in written.parts))
    same = "" if written.is_new else ", as before: no output of them has been imported"
    files = shell.counted(len(written.parts), "file")
    yield f"round {written.round}: {shell.counted(written.requests, 'prompt')} in {files} ({size}){same}"
    if written.again:
        yield f"of these, {written.again.total():,} were asked before and failed: {counts(written.again)}"
    for name in written.unimported:
        yield f"no output of {folder / name} has been imported, so what is lacking of it is asked again"
    inputs, outputs = (sum(getattr(one, side) for one in written.tokens) for side in ("input", "output"))
    cost = dollars(_cost(written, price))
    yield f"about {inputs:,} input and at most {outputs:,} output tokens; cost at most {cost}"
    for part in written.parts:
        yield f"  {part.path}: {shell.counted(part.requests, 'request')}"
    first = written.parts[0].path
    yield f"next: fcjax batch submit {folder}, and later fcjax batch fetch {folder}; or, offline, for each file,"
    yield f"  vllm run-batch --model NAME -i {first} -o {first.with_suffix('')}.output.jsonl"
    yield f"then: fcjax cache import --batch {folder}, and the same command again"


def _cost(written: Written, price: tuple[float, float] | None) -> float | None:
    """US dollars at most, at the given price, or at half the listed one; None where one is unknown."""
    costs = [
        cost(Usage(one.input, one.output)) if (cost := batch_price(one.source, one.model, price)) else None
        for one in written.tokens
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def batch_price(endpoint: str, model: str, given: tuple[float, float] | None) -> Price | None:
    """The price of a model in batches: as given in US dollars per million tokens, else half the listed price."""
    if given is not None:
        return Price(given[0] / 1e6, given[1] / 1e6)
    listed = price_at(endpoint, model)
    return None if listed is None else Price(SHARE * listed.prompt, SHARE * listed.completion)
