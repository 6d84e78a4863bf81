"""Options of the stages that take a response apart and find evidence, and all that describe a critic."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import click

from fcjax.cli.command import COMMON, EVIDENCE, option, options
from fcjax.cli.options.engine import engine_options
from fcjax.cli.options.graph import k_option, number_options
from fcjax.cli.options.relations import relation_options
from fcjax.cli.options.types import FILE, WEB
from fcjax.core.errors import SettingsError

STAGES: Final = ("atomize", "revise", "query", "retrieve", "summarise", "relate")  # as in `stages.pipeline`
_WITH_PROMPTS: Final = tuple(stage for stage in STAGES if stage != "retrieve")
_evidence = partial(option, section=EVIDENCE)


def _stages(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if unknown := [name for name in names if name not in STAGES]:
        raise click.BadParameter(f"unknown stage {unknown[0]!r}; expected {', '.join(STAGES)}, separated by commas")
    return names


def _templates(_: click.Context, __: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        stage, equals, file = value.partition("=")
        if not equals or stage not in _WITH_PROMPTS or not file:
            raise click.BadParameter(
                f"found {value!r}; expected STAGE=FILE, where STAGE is one of {', '.join(_WITH_PROMPTS)}"
            )
        found[stage] = file
    return found


def _language(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from fcjax.stages.sentences import check_language  # loaded where it is used: help texts need no stages

    if value is not None:
        try:
            check_language(value)
        except SettingsError as error:
            raise click.BadParameter(str(error)) from error
    return value


critic_options = options(
    option(
        "--corpus",
        metavar="PATH",
        type=click.Path(exists=True),
        section=COMMON,
        help="Folder of documents to search (.txt, .md, .html, .pdf, .json, .jsonl, plain or .gz), or one such file.",
    ),
    _evidence(
        "--retriever",
        type=click.Choice(["given", "local", *WEB]),
        help="Source of evidence. given: the cases' own contexts; local: --corpus; serper: Google through serper.dev "
        "(key in SERPER_API_KEY); wikipedia. [default: local with --corpus, else given]",
    ),
    _evidence(
        "--contexts-per-atom",
        type=click.IntRange(1, 1000),
        default=3,
        show_default=True,
        metavar="N",
        help="Number of passages to retrieve per atom (unrelated to --k).",
    ),
    _evidence(
        "--queries",
        type=click.Choice(["atom", "model"]),
        help="atom: search for the atom's own words; model: search with queries written by the model. [default: model "
        "for web search, else atom]",
    ),
    _evidence(
        "--allow-domain",
        multiple=True,
        metavar="DOMAIN",
        help="Use evidence only from this domain and its subdomains; repeatable.",
    ),
    _evidence(
        "--deny-domain",
        multiple=True,
        metavar="DOMAIN",
        help="Exclude evidence from this domain and its subdomains; repeatable.",
    ),
    _evidence(
        "--priors",
        metavar="FILE",
        type=FILE,
        help='TOML file with priors for retrieved passages by domain, e.g. "example.org" = 0.9.',
    ),
    _evidence(
        "--atomizer",
        type=click.Choice(["model", "sentences"]),
        default="model",
        show_default=True,
        help="model: the model splits a response into atoms and rewords them; sentences: each sentence is an atom, "
        "with pronouns as they are, and no model is asked.",
    ),
    _evidence(
        "--language",
        metavar="CODE",
        callback=_language,
        help="Language of the responses, e.g. en, de or zh, for --atomizer sentences. [default: guessed]",
    ),
    _evidence("--no-revise", is_flag=True, help="Keep atoms as worded in the response."),
    _evidence("--summarise", is_flag=True, help="Summarise passages and remove irrelevant ones."),
    _evidence(
        "--stages",
        metavar="A,B,...",
        callback=_stages,
        help=f"Stages that may run. [default: {','.join(STAGES)}]",
    ),
    _evidence(
        "--template",
        "templates",
        multiple=True,
        callback=_templates,
        metavar="STAGE=FILE",
        help="File with the prompt template for a stage; repeatable.",
    ),
    relation_options,
    number_options,
    k_option,
    engine_options,
)
"""The stages, evidence, relations and scoring of a critic; `fcjax.cli.critic.open_critic` reads them."""

from_stage = _evidence(
    "--from-stage",
    type=click.Choice(STAGES),
    help="Redo this stage and all later ones, even if the cases already contain their output.",
)
