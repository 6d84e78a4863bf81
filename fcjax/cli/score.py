"""`fcjax score` and `fcjax rescore`: results of cases that have relations."""

from __future__ import annotations

from typing import Any

import click

from fcjax.cli import shell
from fcjax.cli.command import command
from fcjax.cli.options.engine import engine_options
from fcjax.cli.options.files import cases_in, limit, output, overwrite, print_options
from fcjax.cli.options.graph import graph_options, k_option, number_options, rescore_graph

_SCORE_EPILOG = """\b
Examples:
  fcjax score cases.jsonl -o results.jsonl
  fcjax score cases.jsonl.gz -o results.jsonl.gz --preset release --graph FR2
  zcat cases.jsonl.gz | fcjax score - -o - --k 12 | jq .measures.precision
  fcjax score cases.jsonl --json | jq .means.precision

An interrupted run resumes when the same command is run again. Exit codes: 0 every case was scored, 1 some cases
failed, 2 bad usage or unreadable input, 130 interrupted."""

_RESCORE_EPILOG = """\b
Examples:
  fcjax rescore results.cases.jsonl -o release.jsonl --preset release
  fcjax rescore results.jsonl -o sceptical.jsonl --context-prior 0.7     reads results.cases.jsonl
  fcjax rescore results.jsonl -o parity.jsonl --graph FR1 --method wmb

With the settings used by `fcjax critique`, the results are byte-for-byte identical. An interrupted run resumes when
the same command is run again. Exit codes: 0 every case was scored, 1 some cases failed, 2 bad usage or unreadable
input, 130 interrupted."""


@command(epilog=_SCORE_EPILOG)
@cases_in
@output(help="File for the results, one per line; - for standard output.")
@limit
@graph_options
@k_option
@overwrite
@print_options()
@engine_options
@click.pass_context
def score(ctx: click.Context, /, source: str, out: str | None, **parameters: Any) -> None:
    """Score cases that have relations.

    Computes a posterior probability and a label for each atom, and measures for each case. IN is a file of cases
    (.jsonl, .jsonl.gz, .json), a FactReasoner problem or fact graph, or - for standard input. OUT receives one JSON
    line per case (.jsonl, .jsonl.gz) or a list of cases (.json). Without OUT, only tables are printed.
    """
    from fcjax.cli.run_score import run

    run(ctx, source, out, feedback=False, **parameters)


@command(epilog=_RESCORE_EPILOG)
@cases_in
@output(required=True, help="File for the results, one per line; - for standard output.")
@limit
@rescore_graph
@number_options
@k_option
@overwrite
@print_options()
@engine_options
@click.pass_context
def rescore(ctx: click.Context, /, source: str, out: str, **parameters: Any) -> None:
    """Rescore the output of `fcjax critique` with different settings.

    No prompts are sent. IN is the cases file written by `fcjax critique` (results.cases.jsonl), or its results file
    with the cases file next to it. OUT receives one JSON line per case, with feedback.
    """
    from fcjax.cli.run_score import cases_of, graph_of, run

    cases = cases_of(source)
    related, asked = graph_of(cases), parameters["version"]
    if related and asked and asked > related and not parameters["quiet"]:
        shell.say(
            f"warning: {cases}: the relations are for --graph {related}; pairs that only {asked} includes are missing; "
            f"run `fcjax critique {cases} --graph {asked}` to add them"
        )
    parameters["version"] = asked or related or "FR2"
    run(ctx, cases, out, feedback=True, **parameters)
