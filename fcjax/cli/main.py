"""The command line: a table of commands, each in a module of its own that is imported on first use.

A command's module declares its options and needs click alone. What it runs is imported when it runs, so that help is
printed at once.
"""

from __future__ import annotations

from typing import Final

import click

from fcjax.cli.command import Lazy, LazyGroup

COMMANDS: Final = {
    "doctor": Lazy("fcjax.cli.doctor:doctor", "Test what an endpoint or a local relation model supports."),
    "critique": Lazy("fcjax.cli.critique:critique", "Check the claims of responses against evidence."),
    "correct": Lazy("fcjax.cli.correct:correct", "Rewrite responses according to the critic's findings."),
    "eval": Lazy("fcjax.cli.evaluate:evaluate", "Compare correction methods, models and data sets."),
    "relate": Lazy("fcjax.cli.relate:relate", "Ask a model how contexts relate to atoms."),
    "calibrate": Lazy("fcjax.cli.calibrate:calibrate", "Measure a relation model on labelled pairs, and calibrate it."),
    "train": Lazy("fcjax.cli.train:train", "Fine-tune a local relation model on labelled pairs."),
    "score": Lazy("fcjax.cli.score:score", "Score cases that have relations."),
    "rescore": Lazy("fcjax.cli.score:rescore", "Rescore the output of `fcjax critique` with different settings."),
    "validate": Lazy("fcjax.cli.validate:validate", "Check files and list all faults."),
    "convert": Lazy("fcjax.cli.convert:convert", "Convert a file to another format."),
    "infer": Lazy("fcjax.cli.infer:infer", "Compute the marginals of a UAI model."),
    "data": Lazy("fcjax.cli.data:data", "Build cases from public data sets, and training data from corrections."),
    "batch": Lazy("fcjax.cli.batch:batch", "Send files of prompts to a server, and fetch the outputs."),
    "cache": Lazy("fcjax.cli.cache:cache", "Manage the store of replies and searches."),
}

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

_EPILOG = """\b
From responses:
  fcjax critique responses.jsonl -o results.jsonl --corpus documents/ --base-url URL --model NAME
  fcjax correct results.jsonl -o corrected.jsonl --corpus documents/ --base-url URL --model NAME

\b
From cases with atoms and contexts:
  fcjax relate cases.jsonl -o related.jsonl --base-url URL --model NAME
  fcjax score related.jsonl -o results.jsonl

`fcjax COMMAND --help` lists the options of a command. Exit codes: 0 success, 1 some cases failed, 2 bad usage or
unreadable input, 130 interrupted."""


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="fcjax", message="%(prog)s %(version)s")
def commands() -> None:
    """Find out which statements in a long answer are false, on what evidence, and with what certainty."""
