"""`fcjax infer`: the marginals of a UAI model."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli import shell
from fcjax.cli.command import COMMON, command, option
from fcjax.cli.options.engine import engine_options, inference_limits, with_option_names
from fcjax.cli.options.files import output, print_options
from fcjax.cli.options.types import INPUT
from fcjax.core.errors import SettingsError
from fcjax.inference.backend import use_persistent_cache

_EPILOG = """\b
Examples:
  fcjax infer model.uai
  fcjax infer model.uai --evid model.uai.evid --json

Variable names come from MODEL.uai.names if that file exists (`fcjax convert` writes it). Exit codes: 0 success, 1
no marginals (Z = 0, or too wide), 2 bad usage or unreadable input."""


@command(epilog=_EPILOG)
@click.argument("model", metavar="MODEL.uai", type=INPUT)
@output(help="JSON file for the result.")
@option("--evid", metavar="FILE", type=INPUT, section=COMMON, help="UAI evidence file with the observed variables.")
@print_options()
@engine_options
@click.pass_context
def infer(
    ctx: click.Context,
    /,
    model: str,
    evid: str | None,
    out: str | None,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Compute the marginals of a UAI model.

    MODEL.uai is a Markov network of two-state variables. Prints P(true) of each variable, and log Z.
    """
    if as_json and out == "-":
        raise SettingsError("--json and -o - both use standard output; remove one of them")
    import orjson

    from fcjax.graph.fact_graph import FactGraph
    from fcjax.inference.engine import infer as run
    from fcjax.io.files import read_uai
    from fcjax.io.files.streams import refuse_input, write_lines
    from fcjax.scoring.rows import model_answer

    if out is not None:
        refuse_input(out, model, evid, f"{model}.names")
    graph = FactGraph.from_model(read_uai(model, evid))
    use_persistent_cache()
    found = run([graph], limits=inference_limits(parameters), **parameters)[0]
    answer = {"model": model, **model_answer(graph, found)}
    if out:
        write_lines(out, [orjson.dumps(answer)], bare=True)
    if as_json:
        shell.print_json(answer)
    elif not (quiet or out == "-" or found.status.failed):
        from fcjax.cli.display import marginals_table, show

        show(marginals_table(answer))
    if found.status.failed:
        shell.say(f"error: {model}: {found.status}: {with_option_names(str(found.reason))}")
    ctx.exit(shell.SOME_FAILED if found.status.failed else shell.OK)
