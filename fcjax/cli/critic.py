"""The critic that the options of evidence, relations, graph and engine describe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import click

from fcjax.cli import shell
from fcjax.cli.client import ModelAccess
from fcjax.cli.options.engine import inference_limits
from fcjax.cli.options.types import WEB
from fcjax.core.errors import Fault, InputError, OutputError, SettingsError
from fcjax.core.passages import Retriever
from fcjax.critic.calibration_file import read_calibration
from fcjax.critic.critic import Critic
from fcjax.critic.relation_config import RelationConfig
from fcjax.inference.backend import use_persistent_cache
from fcjax.io.files.small import read_small
from fcjax.io.files.streams import refuse_input
from fcjax.io.retrievers.cached import Cached
from fcjax.io.retrievers.domains import Domains, domain, read_priors
from fcjax.scoring.settings import Settings
from fcjax.stages.atomize import Atomizer
from fcjax.stages.pipeline import Pipeline
from fcjax.stages.query import QueryBuilder
from fcjax.stages.relate import Relater, RelationModel
from fcjax.stages.retrieve import EvidenceSearch
from fcjax.stages.revise import Reviser
from fcjax.stages.summarise import Summariser
from fcjax.stages.templates import Template
from fcjax.stages.wordings import WORDINGS, wording

_SHOWN: Final = 5  # documents that could not be read, named in a warning


@dataclass(slots=True)
class CorpusFaults:
    """What of a corpus could not be read: the first hundred faults, and how many there are."""

    faults: tuple[Fault, ...] = ()
    count: int = 0

    def warn(self, corpus: str) -> None:
        """Warn of the faults: those of whole documents first, then of rows, then of files left out by name."""
        if not self.count:
            return
        shell.say(f"warning: {corpus}: {shell.counted(self.count, 'item')} could not be read")
        place = os.path.realpath(corpus)
        worst = sorted(self.faults, key=lambda fault: (fault.file == place, fault.line is not None))
        for fault in worst[:_SHOWN]:
            shell.say(f"warning: {fault}")
        if self.count > _SHOWN:
            shell.say(f"warning: and {self.count - _SHOWN:,} more; --json lists the first hundred")

    def to_dict(self) -> dict[str, Any]:
        """The faults as JSON."""
        return {"n_corpus_faults": self.count, "corpus_faults": [shell.fault_dict(fault) for fault in self.faults]}


def retriever_name(parameters: dict[str, Any]) -> str:
    """The retriever that is named, else the one that follows from `--corpus`. Raises `SettingsError`."""
    corpus = parameters["corpus"]
    name = str(parameters["retriever"] or ("local" if corpus else "given"))
    if name == "local" and corpus is None:
        raise SettingsError("--retriever local needs documents to search; add --corpus PATH")
    if name != "local" and corpus is not None:
        raise SettingsError(f"--corpus has no effect with --retriever {name}; remove it, or use --retriever local")
    return name


def open_critic(
    parameters: dict[str, Any], access: ModelAccess, *, dry_run: bool = False, faults: CorpusFaults | None = None
) -> Critic:
    """The critic that `critic_options` describe; their values are taken out of `parameters`.

    A dry run opens no source of evidence. `faults` is filled with what of a corpus could not be read, which is also
    printed as warnings. Raises `SettingsError`, `InputError` and `OutputError`.
    """
    name = retriever_name(parameters)
    corpus, files = parameters.pop("corpus"), parameters.pop("templates")
    del parameters["retriever"]
    config = relation_config(parameters, access, files.get("relate"))
    domains = _domains(parameters)
    pipeline = _pipeline(parameters, name, domains, files)
    numbers = {given: parameters.pop(given) for given in ("preset", "encoding", "context_prior", "atom_prior", "k")}
    engine = {given: parameters.pop(given) for given in ("effort", "method", "i_bound", "backend")}
    settings = Settings(version=config.version, limits=inference_limits(parameters), **numbers, **engine)
    critic = Critic(
        access.client_or_none,
        retrieve=None if dry_run else _retriever(name, corpus, domains, access, faults or CorpusFaults()),
        relate=config.model,
        settings=settings,
        pipeline=pipeline,
        screen=config.screen,
        ask=config.ask,
        settle=config.settle,
        ask_at_most=config.ask_at_most,
        first=config.first,
        open_cases=min(max(64, access.window // 4), 4096),
        window=access.window,
    )
    return critic.using(pipeline=replace(critic.pipeline, searches=name != "given"))


def relation_config(parameters: dict[str, Any], access: ModelAccess, template: str | None = None) -> RelationConfig:
    """What `relation_options` describe, for the model of this access; their values are taken out of `parameters`.

    Raises `SettingsError`, also for the calibration of another model, style or wording, and `InputError`.
    """
    version, screen = parameters.pop("version"), parameters.pop("screen")
    asking = {name: value for name in ("ask", "settle", "ask_at_most") if (value := parameters.pop(name)) is not None}
    first: Relater | None = None
    if asking["ask"] == "adaptive" and (folder := parameters["relation_model"]) is not None:
        from fcjax.encoders.relation_model import LocalRelationModel  # loads jax

        first = LocalRelationModel.open(folder, store=access.store, force=parameters["force"])
        _warn_of_doubt(first, folder)
        parameters["relation_model"] = None  # it stands before the model that is asked, not in its place
    model = relation_model(parameters, access, template)
    return RelationConfig(version=version, screen=screen, model=model, first=first, **asking)


def relation_model(parameters: dict[str, Any], access: ModelAccess, template: str | None = None) -> Relater:
    """What `asking_options`, `calibration` and `force` describe, as `relation_config` does. `fcjax calibrate` has no
    `force`: it measures a calibration whatever its gate says."""
    style, file, force = parameters.pop("style"), parameters.pop("calibration"), parameters.pop("force", None)
    folder = parameters.pop("relation_model")
    words = wording(parameters.pop("wording"))
    chosen = {name: parameters.pop(name) for name in ("pack", "votes", "default", "max_tokens")}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if template is not None:
        words = words._replace(**{style: with_words_of(getattr(words, style), template)})
    calibration = None if file is None else replace(read_calibration(file), force=force is not False)
    if folder is not None:
        if template is not None:
            raise SettingsError(f"--template {template} has no effect with --relation-model; remove one of them")
        use_persistent_cache()
        from fcjax.encoders.relation_model import LocalRelationModel  # loads jax, which looks for its cache then

        forced = force is not False
        model: Relater = LocalRelationModel.open(folder, store=access.store, calibration=calibration, force=forced)
    else:
        model = RelationModel(style=style, **words._asdict(), **chosen)
        if calibration is not None:
            model.check(calibration, access.model)
            model = model.calibrated(calibration)
    if force is not None:  # else it is only measured
        _warn_of_doubt(model, str(file or folder))
    return model


def _warn_of_doubt(model: Relater, where: str) -> None:
    """Warn of what is in doubt about a relation model that is to be used."""
    if doubt := model.doubt if model.calibration is None else model.calibration.doubt:
        shell.say(f"warning: {where}: {doubt}")


def warn_of_constraint(access: ModelAccess, model: Relater) -> None:
    """Warn of a `--constrain` for labels in a wording whose answers are not labels alone."""
    how = access.client_or_none.constrain if access.client_or_none else "none"
    if how in ("auto", "none") or not isinstance(model, RelationModel) or model.can_hold_labels:
        return
    named = any(model.template in one for one in WORDINGS.values())
    why = "this wording has a sentence before them" if named else "a custom wording does not say which they are"
    more = "" if model.style == "packed" else " and to the labels of --wording 1"
    shell.say(
        f"warning: --constrain {how} has no effect on the labels of relations: {why}; it applies to answers in JSON"
        f"{more}"
    )


def with_words_of(template: Template, file: str) -> Template:
    """A template with the wording of a file. Raises `InputError` and `SettingsError`."""
    try:
        return template.reworded(read_small(file), Path(file).stem)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); expected a UTF-8 text file") from error


def refuse_corpus(corpus: str | None, *outs: str | None) -> None:
    """Raise `OutputError` where an output would replace a document of the corpus, or become one."""
    for out in outs:
        if corpus is None or out is None or out == "-":
            continue
        refuse_input(out, corpus)
        inside = os.path.relpath(os.path.realpath(out), os.path.realpath(corpus)).split(os.sep)
        if os.path.isdir(corpus) and not any(part.startswith(".") for part in inside):
            raise OutputError(f"{out}: is inside the corpus {corpus}; specify a file elsewhere")


def _domains(parameters: dict[str, Any]) -> Domains:
    allow, deny, priors = (parameters.pop(name) for name in ("allow_domain", "deny_domain", "priors"))
    return Domains(
        allow=[domain(name, "--allow-domain") for name in allow] or None,
        deny=[domain(name, "--deny-domain") for name in deny],
        priors=read_priors(priors) if priors else None,
    )


def _pipeline(parameters: dict[str, Any], retriever: str, domains: Domains, files: dict[str, str]) -> Pipeline:
    queries = parameters.pop("queries") or ("model" if retriever in WEB else "atom")
    stages, atomizer, language = (parameters.pop(name) for name in ("stages", "atomizer", "language"))
    work: dict[str, Any] = {
        "atomize": Atomizer(),
        "revise": None if parameters.pop("no_revise") else Reviser(),
        "query": QueryBuilder() if queries == "model" else None,
        "summarise": Summariser() if parameters.pop("summarise") else None,
    }
    for stage, file in files.items():
        if stage == "relate":
            continue
        if work[stage] is None:
            remedy = {"query": "add --queries model", "summarise": "add --summarise"}.get(stage, "remove --no-revise")
            raise SettingsError(f"--template {stage}={file} has no effect: the stage {stage} does not run; {remedy}")
        work[stage] = replace(work[stage], template=with_words_of(work[stage].template, file))
    filters = domains.restricted and retriever != "serper"  # which skips denied pages before it reads them
    retrieve = EvidenceSearch(
        k=parameters.pop("contexts_per_atom"),
        allowed=domains.admits if filters else None,
        prior=domains.prior if domains.priors else None,
    )
    work |= {} if stages is None else {"stages": stages}
    return Pipeline(retrieve=retrieve, atomizer=atomizer, language=language, **work)


def _retriever(
    name: str, corpus: str | None, domains: Domains, access: ModelAccess, faults: CorpusFaults
) -> Retriever | None:
    """The source of evidence, with the store in front of it; a corpus is on disk already."""
    source: Retriever
    match name:  # each one is imported where it is used: a corpus needs no web client, nor the reverse
        case "local":
            from fcjax.io.retrievers.local import LocalCorpus

            assert corpus is not None
            source = LocalCorpus.open(corpus)
            faults.faults, faults.count = source.faults, source.fault_count
            faults.warn(corpus)
        case "serper":
            from fcjax.io.retrievers.pages import PageReader
            from fcjax.io.retrievers.serper import Serper

            source = Serper(pages=PageReader(), domains=domains, replay=access.replay)
        case "wikipedia":
            from fcjax.io.retrievers.wikipedia import Wikipedia

            source = Wikipedia()
        case _:
            return None
    store = None if name == "local" else access.store
    return Cached(source, store, replay=access.replay and store is not None)


def searches_of(critic: Critic) -> Cached | None:
    """The critic's source of evidence with its counts; None where there is none."""
    return critic.retriever if isinstance(critic.retriever, Cached) else None


def check_outputs(out: str | None, cases_out: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Raise `SettingsError` where an output is missing, or where two share standard output."""
    if out is None and not dry_run:
        raise SettingsError("no output file given; add -o OUT, or use --dry-run to see what a run would send")
    if as_json and "-" in (out, cases_out):
        raise SettingsError("--json and - both use standard output; specify files for -o and --cases, or remove --json")


class Monitor(Protocol):
    """Follows a run, and knows what is finished."""

    begun: bool

    def kept(self, out: str, access: ModelAccess) -> str:
        """What is finished and where it is kept."""

    def close(self) -> None: ...


@contextmanager
def resume_hint(ctx: click.Context, monitor: Monitor, out: str, access: ModelAccess) -> Iterator[None]:
    """Add to the message of whatever stops the run in the block how to resume it; the monitor is closed."""
    try:
        with shell.stopped(ctx, lambda: monitor.kept(out, access)):
            yield
    except SettingsError as error:
        if not monitor.begun:
            raise
        raise SettingsError(f"{error}; {monitor.kept(out, access)}") from error
    finally:
        monitor.close()
