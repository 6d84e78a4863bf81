"""Options of the commands that take a response apart and look for evidence, and the critic that they describe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from fcjax.cli import shell
from fcjax.cli.model_options import OpenClient
from fcjax.cli.relate import relation_config, relation_options, worded
from fcjax.core.errors import BudgetError, SettingsError

if TYPE_CHECKING:
    from fcjax.core.errors import Fault
    from fcjax.core.passages import Retriever
    from fcjax.critic.critic import Critic
    from fcjax.io.retrievers.cached import Cached
    from fcjax.io.retrievers.domains import Domains
    from fcjax.stages.pipeline import Pipeline

STAGES: Final = ("atomize", "revise", "query", "retrieve", "summarise", "relate")  # as in `stages.pipeline`
WEB: Final = ("serper", "wikipedia")
_WORDED: Final = tuple(stage for stage in STAGES if stage != "retrieve")


def _stages(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if unknown := [name for name in names if name not in STAGES]:
        raise click.BadParameter(f"{unknown[0]!r} is no stage; allowed: {', '.join(STAGES)}, with commas between them")
    return names


def _templates(_: click.Context, __: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        stage, equals, file = value.partition("=")
        if not equals or stage not in _WORDED or not file:
            raise click.BadParameter(f"{value!r} is no STAGE=FILE; allowed: a file for one of {', '.join(_WORDED)}")
        found[stage] = file
    return found


critic_options = shell.added(
    click.option(
        "--retriever",
        type=click.Choice(["given", "local", *WEB]),
        help="Where evidence comes from: the cases' own contexts, a corpus, Google by way of serper.dev (the key is in "
        "SERPER_API_KEY), or Wikipedia. [default: local with --corpus, else given]",
    ),
    click.option(
        "--corpus",
        metavar="PATH",
        type=click.Path(exists=True),
        help="A folder of documents (.txt, .md, .html, .pdf, .json, .jsonl; plain or .gz), or one file of them.",
    ),
    click.option(
        "--k-contexts",
        type=click.IntRange(1, 1000),
        default=3,
        show_default=True,
        metavar="N",
        help="Passages an atom. (--k is another one: K of the measures.)",
    ),
    click.option(
        "--queries",
        type=click.Choice(["atom", "model"]),
        help="What is searched for: the atom's own words, or what the model makes of them. [default: model on the web, "
        "else atom]",
    ),
    click.option(
        "--allow-domain",
        multiple=True,
        metavar="DOMAIN",
        help="Evidence from here alone, and from all below it; may be given more than once.",
    ),
    click.option("--deny-domain", multiple=True, metavar="DOMAIN", help="No evidence from here, nor from below it."),
    click.option(
        "--priors",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="A table from domain to the prior of its passages (.toml, .csv, .json).",
    ),
    click.option("--no-revise", is_flag=True, help="Leave the atoms as they were taken out of the response."),
    click.option("--summarise", is_flag=True, help="Have passages summed up, and irrelevant ones left out."),
    click.option(
        "--stages",
        metavar="A,B,...",
        callback=_stages,
        help=f"The stages that may run. [default: all of {','.join(STAGES)}]",
    ),
    click.option(
        "--template",
        "templates",
        multiple=True,
        callback=_templates,
        metavar="STAGE=FILE",
        help="Another wording of a stage's prompts; may be given for each stage.",
    ),
    relation_options,
    shell.number_options,
    shell.k_option,
    shell.engine_options,
)
"""How a response is taken apart, evidence found, related and scored; `taken_critic` takes them out of the others."""


@dataclass(slots=True)
class Unread:
    """What of a corpus could not be read: the first hundred faults, and how many there are."""

    faults: tuple[Fault, ...] = ()
    count: int = 0

    def tell(self, corpus: str) -> None:
        """Warn of it: what is worse comes first, a document before a row, and what was left out by its name last."""
        if not self.count:
            return
        shell.say(f"warning: {corpus}: {shell.counted(self.count, 'thing')} could not be read")
        place = os.path.realpath(corpus)
        worst = sorted(self.faults, key=lambda fault: (fault.file == place, fault.line is not None))
        for fault in worst[:_UNREAD]:
            shell.say(f"warning: {fault}")
        if self.count > _UNREAD:
            shell.say(f"warning: and {self.count - _UNREAD:,} more; --json names the first hundred")

    def to_dict(self) -> dict[str, Any]:
        """It as JSON."""
        return {"n_corpus_faults": self.count, "corpus_faults": [shell.fault_dict(fault) for fault in self.faults]}


_UNREAD: Final = 5  # things that could not be read, named in a warning


def open_critic(
    options: dict[str, Any], asking: OpenClient, *, dry_run: bool = False, unread: Unread | None = None
) -> Critic:
    """The critic that the options of `critic_options` describe; they are taken out of `options`.

    A dry run opens no source of evidence. `unread` gets what of a corpus could not be read; people are told of it in
    any case. Raises `SettingsError`, `InputError` and `OutputError`.
    """
    from fcjax.critic.critic import Critic
    from fcjax.scoring.settings import Settings

    corpus, templates = options.pop("corpus"), options.pop("templates")
    name = options.pop("retriever") or ("local" if corpus else "given")
    if (name == "local") != (corpus is not None):
        seen = "no corpus is named; give --corpus PATH" if corpus is None else "a corpus is named; leave --corpus out"
        raise SettingsError(f"--retriever {name}: {seen}, or choose another retriever")
    how = relation_config(options, templates.get("relate"))
    domains = _domains(options)
    pipeline = _pipeline(options, name, domains, templates)
    numbers = {given: options.pop(given) for given in ("preset", "encoding", "context_prior", "atom_prior", "k")}
    engine = {given: options.pop(given) for given in ("effort", "method", "i_bound", "backend")}
    settings = Settings(version=how.version, limits=shell.inference_limits(options), **numbers, **engine)
    critic = Critic(
        asking.client,
        retrieve=None if dry_run else _retriever(name, corpus, domains, asking, unread or Unread()),
        relate=how.model,
        settings=settings,
        pipeline=pipeline,
        screen=how.screen,
        open_cases=min(max(64, asking.window // 4), 4096),
        window=asking.window,
    )
    return critic.using(pipeline=replace(critic.pipeline, searches=name != "given"))


def refuse_corpus(corpus: str | None, *outs: str | None) -> None:
    """Raise `OutputError` where an output would replace a document of the corpus, or become one."""
    from fcjax.core.errors import OutputError
    from fcjax.io.files.streams import refuse_input

    for out in outs:
        if corpus is None or out is None or out == "-":
            continue
        refuse_input(out, corpus)
        inside = os.path.relpath(os.path.realpath(out), os.path.realpath(corpus)).split(os.sep)
        if os.path.isdir(corpus) and not any(part.startswith(".") for part in inside):
            raise OutputError(f"{out}: is inside of the corpus {corpus}; name a file elsewhere")


def _domains(options: dict[str, Any]) -> Domains:
    from fcjax.io.retrievers.domains import Domains, read_priors

    allow, deny, priors = (options.pop(name) for name in ("allow_domain", "deny_domain", "priors"))
    return Domains(allow=allow or None, deny=deny, priors=read_priors(priors) if priors else None)


def _pipeline(options: dict[str, Any], retriever: str, domains: Domains, templates: dict[str, str]) -> Pipeline:
    from fcjax.stages.atomize import Atomizer
    from fcjax.stages.pipeline import Pipeline
    from fcjax.stages.query import QueryBuilder
    from fcjax.stages.retrieve import EvidenceSearch
    from fcjax.stages.revise import Reviser
    from fcjax.stages.summarise import Summariser

    queries = options.pop("queries") or ("model" if retriever in WEB else "atom")
    stages = options.pop("stages")
    work: dict[str, Any] = {
        "atomize": Atomizer(),
        "revise": None if options.pop("no_revise") else Reviser(),
        "query": QueryBuilder() if queries == "model" else None,
        "summarise": Summariser() if options.pop("summarise") else None,
    }
    for stage, file in templates.items():
        if stage == "relate":
            continue
        if work[stage] is None:
            remedy = {"query": "--queries model", "summarise": "--summarise"}.get(stage, "no --no-revise")
            raise SettingsError(f"--template {stage}={file}: the stage {stage} is not asked for; give {remedy}")
        work[stage] = replace(work[stage], template=worded(work[stage].template, file))
    chooses = domains.restricted and retriever != "serper"  # which passes over denied pages before it reads them
    retrieve = EvidenceSearch(
        k=options.pop("k_contexts"),
        allowed=domains.admits if chooses else None,
        prior=domains.prior if domains.priors else None,
    )
    return Pipeline(retrieve=retrieve, **work, **({} if stages is None else {"stages": stages}))


def _retriever(name: str, corpus: str | None, domains: Domains, asking: OpenClient, unread: Unread) -> Retriever | None:
    """The source of evidence, behind the store; a corpus is on disk itself."""
    source: Retriever
    match name:
        case "local":
            from fcjax.io.retrievers.local import LocalCorpus

            assert corpus is not None
            source = LocalCorpus.open(corpus)
            unread.faults, unread.count = source.faults, source.fault_count
            unread.tell(corpus)
        case "serper":
            from fcjax.io.retrievers.pages import PageReader
            from fcjax.io.retrievers.serper import Serper

            source = Serper(pages=PageReader(), domains=domains, replay=asking.replay)
        case "wikipedia":
            from fcjax.io.retrievers.wikipedia import Wikipedia

            source = Wikipedia()
        case _:
            return None
    from fcjax.io.retrievers.cached import Cached

    kept = None if name == "local" else asking.kept
    return Cached(source, kept, replay=asking.replay and kept is not None)


def searched(critic: Critic) -> Cached | None:
    """The critic's source of evidence, where it counts what it does."""
    from fcjax.io.retrievers.cached import Cached

    return critic.retriever if isinstance(critic.retriever, Cached) else None


def check_outputs(out: str | None, cases_out: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Raise where there is no place for what will be written, or two things want the same one."""
    if out is None and not dry_run:
        raise SettingsError("no output is named; give -o OUT, or --dry-run to see what would be done")
    if as_json and "-" in (out, cases_out):
        raise SettingsError("--json and - both want standard output; give -o and --cases files, or leave --json out")


class Watching(Protocol):
    """Who looks on while a file is worked on, and knows how far that came."""

    begun: bool

    def kept(self, out: str, asking: OpenClient) -> str:
        """What there is to go on from."""

    def close(self) -> None: ...


@contextmanager
def resume_hint(ctx: click.Context, watch: Watching, out: str, asking: OpenClient) -> Iterator[None]:
    """Whatever ends the run within the block says what there is to go on from; the watch is closed in any case."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {watch.kept(out, asking)}") from None
    except BudgetError as error:
        shell.say(f"stopped: {error}; {watch.kept(out, asking)}")
        ctx.exit(shell.SOME_FAILED)
    except SettingsError as error:
        if not watch.begun:
            raise
        raise SettingsError(f"{error}; {watch.kept(out, asking)}") from error
    finally:
        watch.close()
