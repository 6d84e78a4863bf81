"""Options that have an effect only together with another one. One table for all commands.

An option that would have no effect is refused: a result that ignores part of the command line looks like one that
follows it. Upper bounds that are not reached (budgets, rate limits, `--concurrency` with `--replay`) are followed, and
`--dry-run` describes the run without it, so these are not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from fcjax.cli.options.types import WEB
from fcjax.core.errors import SettingsError

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Requirement:
    """Options, by parameter name, that have no effect where `unmet` holds for the values of `reads`."""

    options: tuple[str, ...]
    reads: tuple[str, ...]
    unmet: Callable[[Values], bool]
    seen: str  # "without --method wmb"
    remedy: str  # "add --method wmb"; the other remedy is to remove the option


_RELATIONS: Final = (
    *("style", "pack", "votes", "default", "screen", "max_tokens", "calibration", "force", "relation_model", "wording"),
    *("ask", "settle", "ask_at_most"),
)
_NUMBERS: Final = ("preset", "encoding", "context_prior", "atom_prior")
_SEARCH: Final = ("contexts_per_atom", "queries", "allow_domain", "deny_domain", "priors")
_PROOF: Final = ("effort", "limit_width", "rows", "seconds", "tail", "backend")
_ENGINE: Final = (*_PROOF, "memory", "method", "i_bound")
_CLIENT: Final = (
    *("base_url", "model", "config", "litellm", "timeout", "store", "replay", "concurrency", "tries", "price"),
    *("constrain", "requests_per_minute", "tokens_per_minute", "budget_prompts", "budget_tokens", "budget_dollars"),
)


_ASKING: Final = ("base_url", "model", "config", "litellm", "timeout", "tries", "price", "constrain", "batch_out")
_ASKS: Final = ("stages", "no_revise", "queries", "retriever", "corpus", "summarise")


def asking_stages(values: Values, *, local_relations: bool = False) -> tuple[str, ...]:
    """The stages that may ask a model, by the options of a critic; with `local_relations`, a local relation model
    stands in for it in the stage relate."""
    queries = values["queries"] or ("model" if values["retriever"] in WEB else "atom")
    by_sentences = values["atomizer"] == "sentences"
    asks = {
        "atomize": not by_sentences,
        "revise": not (by_sentences or values["no_revise"]),
        "query": queries == "model" and not _is_given(values),
        "summarise": bool(values["summarise"]),
        "relate": not local_relations,
    }
    return tuple(stage for stage, asked in asks.items() if asked and not _leaves_out(stage)(values))


def is_local(values: Values) -> bool:
    """Whether a local model reads the relations, and none is asked: with --ask adaptive, it only goes first."""
    return values["relation_model"] is not None and values.get("ask") != "adaptive"


def may_do_without(values: Values) -> bool:
    """Whether there is a way without an endpoint: what cases bring along may spare the stages that ask."""
    return values["atomizer"] == "sentences" or is_local(values)


def needs_endpoint(values: Values, *, local_relations: bool = False) -> bool:
    """Whether a critic with these options may ask a model, so that an endpoint is needed."""
    return bool(asking_stages(values, local_relations=local_relations))


def _leaves_out(stage: str) -> Callable[[Values], bool]:
    return lambda values: values["stages"] is not None and stage not in values["stages"]


def _is_given(values: Values) -> bool:
    """Whether evidence is what the cases have: `--retriever given`, or neither a retriever nor a corpus."""
    return values["retriever"] == "given" or (values["retriever"] is None and values["corpus"] is None)


def _writes_no(*formats: str) -> Callable[[Values], bool]:
    def unmet(values: Values) -> bool:
        to = values["to"] or ("uai" if values["out"].endswith(".uai") else "cases")
        return to not in formats

    return unmet


def _is_baseline(values: Values) -> bool:
    return values["corrector"] != "factcorrector"


def _needs_stage(stage: str, *options: str) -> Requirement:
    return Requirement(
        options, ("stages",), _leaves_out(stage), f"with a --stages list that lacks {stage}", f"add {stage} to --stages"
    )


REQUIREMENTS: Final = (
    # Engine
    Requirement(("i_bound",), ("method",), lambda v: v["method"] != "wmb", "without --method wmb", "add --method wmb"),
    Requirement(_PROOF, ("method",), lambda v: v["method"] == "wmb", "with --method wmb", "remove --method wmb"),
    Requirement(
        ("tail",),
        ("effort",),
        lambda v: v["effort"] == "fast",
        "with --effort fast, which does not prove intervals",
        "use --effort tight or label",
    ),
    # Output
    Requirement(("overwrite",), ("out",), lambda v: v["out"] in (None, "-"), "without an output file", "add -o FILE"),
    Requirement(("seed",), ("sample",), lambda v: v["sample"] is None, "without --sample", "add --sample N"),
    # Batch files
    Requirement(("folder", "price"), ("batch", "sources"), lambda v: not v["batch"], "without --batch", "add --batch"),
    Requirement(("every",), ("wait",), lambda v: not v["wait"], "without --wait", "add --wait"),
    Requirement(
        ("replay", "litellm", "timeout", "budget_prompts", "budget_tokens", "budget_dollars"),
        ("batch_out",),
        lambda v: v["batch_out"] is not None,
        "with --batch-out, which sends nothing",
        "remove --batch-out",
    ),
    Requirement(
        ("batch_requests", "batch_size"),
        ("batch_out",),
        lambda v: v["batch_out"] is None,
        "without --batch-out",
        "add --batch-out FOLDER",
    ),
    # Relations
    Requirement(
        ("style", "pack", "votes", "default", "wording", "max_tokens"),
        ("relation_model",),
        is_local,
        "with --relation-model, which asks nothing",
        "remove --relation-model",
    ),
    Requirement(
        ("pack",), ("style",), lambda v: v["style"] != "packed", "without --style packed", "add --style packed"
    ),
    Requirement(
        ("default",), ("votes",), lambda v: bool(v["votes"]), "with --votes, which replaces it", "remove --votes"
    ),
    Requirement(
        ("force",),
        ("calibration", "relation_model"),
        lambda v: v["calibration"] is None and v["relation_model"] is None,
        "without --calibration or --relation-model",
        "add one of them",
    ),
    Requirement(
        ("base_url", "model", "config", "litellm", "timeout", "max_tokens", "concurrency"),
        ("relation_model", "prompts"),  # of doctor alone
        lambda v: v["relation_model"] is not None,
        "with --relation-model",
        "remove --relation-model",
    ),
    Requirement(
        _ASKING,
        ("relation_model", "calibration"),  # of relate and calibrate; a critic has other stages that may ask
        lambda v: is_local(v) and "atomizer" not in v,
        "with --relation-model, which asks nothing",
        "remove --relation-model",
    ),
    Requirement(
        ("settle", "ask_at_most"),
        ("ask",),
        lambda v: v["ask"] != "adaptive",
        "without --ask adaptive",
        "add --ask adaptive",
    ),
    # Evidence
    Requirement(
        _SEARCH,
        ("retriever", "corpus"),
        _is_given,
        "with --retriever given, which uses the cases' own contexts",
        "specify a source with --corpus or --retriever",
    ),
    Requirement(
        ("language",),
        ("atomizer",),
        lambda v: v["atomizer"] != "sentences",
        "without --atomizer sentences",
        "add --atomizer sentences",
    ),
    Requirement(
        ("no_revise",),
        ("atomizer",),
        lambda v: v["atomizer"] == "sentences",
        "with --atomizer sentences, which never rewords atoms",
        "use --atomizer model",
    ),
    Requirement(
        ("templates",),
        ("atomizer", "templates"),
        lambda v: v["atomizer"] == "sentences" and not {"atomize", "revise"}.isdisjoint(v["templates"]),
        "with --atomizer sentences, which asks no model to atomize and revise",
        "use --atomizer model",
    ),
    Requirement(
        _ASKING,
        ("atomizer", "relation_model", *_ASKS),
        lambda v: may_do_without(v) and "corrector" not in v and not needs_endpoint(v, local_relations=is_local(v)),
        "with stages that ask no model",
        "choose a stage that asks one",
    ),
    _needs_stage("atomize", "atomizer", "language"),
    _needs_stage("retrieve", *_SEARCH),
    _needs_stage("summarise", "summarise"),
    _needs_stage("relate", *_RELATIONS),
    Requirement(
        ("queries",),
        ("queries", "stages"),
        lambda v: v["queries"] == "model" and _leaves_out("query")(v),
        "with a --stages list that lacks query",
        "add query to --stages",
    ),
    Requirement(
        ("templates",),
        ("templates", "stages"),
        lambda v: v["stages"] is not None and any(stage not in v["stages"] for stage in v["templates"]),
        "with a --stages list that lacks its stage",
        "add the stage to --stages",
    ),
    # Correction
    Requirement(
        ("theta", "no_guards", "guard_by", "may_lose", "refine_template"),
        ("corrector",),
        _is_baseline,
        "with this --corrector",
        "use --corrector factcorrector",
    ),
    Requirement(
        ("rounds",),
        ("corrector",),
        lambda v: v["corrector"] not in ("factcorrector", "critic"),
        "with this --corrector",
        "use --corrector factcorrector or critic",
    ),
    Requirement(
        (*_RELATIONS, *_NUMBERS, *_ENGINE, "version", "summarise", "priors"),
        ("corrector",),
        _is_baseline,
        "with this --corrector, which does not use inference",
        "use --corrector factcorrector",
    ),
    Requirement(
        ("guard_by", "may_lose"),
        ("no_guards",),
        lambda v: bool({"supported", "all"} & set(v["no_guards"])),
        "with --no-guard supported or all",
        "keep the supported guard",
    ),
    Requirement(
        ("refiner_price",),
        ("refiner_model", "refiner_base_url", "refiner_config"),
        lambda v: not (v["refiner_model"] or v["refiner_base_url"] or v["refiner_config"]),
        "without a separate refiner model",
        "add --refiner-model, --refiner-base-url or --refiner-config",
    ),
    # Conversion
    Requirement(
        ("case_id", "version", "encoding"), ("to", "out"), _writes_no("uai"), "without a UAI model", "add --to uai"
    ),
    Requirement(
        ("preset", "context_prior"),
        ("to", "out"),
        _writes_no("uai", "graph"),
        "without a graph to write",
        "add --to graph or --to uai",
    ),
    Requirement(
        ("atom_prior",),
        ("to", "out", "detected"),
        lambda v: _writes_no("uai", "graph")(v) and v["detected"] != "graph",
        "without a graph to read or write",
        "add --to graph or --to uai",
    ),
    Requirement(
        ("preset", "context_prior", "atom_prior"),
        ("to", "detected"),
        lambda v: v["to"] == v["detected"] == "graph",
        "with a fact graph as input, which has its own priors",
        "use --to cases",
    ),
    # Evaluation
    Requirement(
        ("folder", "replay", "dry_run", "force", "budget_prompts", "budget_tokens", "budget_dollars"),
        ("rendered",),
        lambda v: v["rendered"],
        "with a folder, whose tables are only recreated",
        "specify a YAML file",
    ),
    # Data sets
    Requirement(
        ("seed",),
        ("files", "limit", "split"),  # of eli5, which has `wrong`, it draws the splits in any case
        lambda v: "wrong" not in v and v["limit"] is None and v["split"] is None,
        "without --limit or --split",
        "add one of these",
    ),
    Requirement(
        ("seed",), ("feedback", "split"), lambda v: v["split"] in (None, "all"), "without --split", "add --split train"
    ),
    Requirement(
        ("errors", "dry_run", *_CLIENT), ("wrong",), lambda v: not v["wrong"], "with --no-wrong", "use --wrong"
    ),
)


def check(ctx: click.Context, **known: Any) -> None:
    """Raise `SettingsError` for the first option of the command line that has no effect.

    `known` are values that are found out later than the command line is read.
    """
    values = {**ctx.params, **known}
    given = [name for name in ctx.params if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    for requirement in REQUIREMENTS:
        if values.keys() >= set(requirement.reads) and requirement.unmet(values):
            for name in given:
                if name in requirement.options:
                    raise SettingsError(
                        f"{option_name(ctx, name)} has no effect {requirement.seen}; remove it, or {requirement.remedy}"
                    )


def option_name(ctx: click.Context, parameter: str) -> str:
    """The long name of an option by its parameter's name."""
    for declared in ctx.command.params:
        if declared.name == parameter:
            return max(declared.opts, key=len)
    return parameter
