"""A file of responses through the critic: in order, in bounded memory, stopped and resumed at any moment.

What each stage finds is in a journal beside the output before the case continues, and every reply is in the client's
store before it is used: the same command resumes each case where it was, and repeats only what was on the wire.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from fcjax.core.records import Case, RelationType, Status
from fcjax.critic.critic import Critic, Critique
from fcjax.critic.open_case import keeps_earlier
from fcjax.io.files import case_to_dict, encode_result
from fcjax.io.files.digests import count_atoms, digest_of
from fcjax.io.files.streams import Source
from fcjax.runs.checkpoint import Checkpoint
from fcjax.runs.file_run import Finished, begin_run, cases_file
from fcjax.runs.observer import RunObserver
from fcjax.runs.preview import Choice, preview
from fcjax.scoring.rows import Row
from fcjax.scoring.score_cases import Fingerprints, completed
from fcjax.scoring.summary import Summary
from fcjax.stages.pipeline import Stage
from fcjax.stages.traces import asked_in_rounds, traces


@dataclass(slots=True)
class CritiqueReport:
    """The totals of a file. They are the same however often the run was stopped and resumed."""

    summary: Summary
    stages: dict[str, Counter[str]] = field(default_factory=dict)  # sums over the traces of each stage
    relations: Counter[str] = field(default_factory=Counter)  # answered, by type
    failed: dict[str, Counter[str]] = field(default_factory=dict)  # searches and relations that failed, by kind
    not_asked: Counter[str] = field(default_factory=Counter)  # pairs left out by adaptive asking, by first opinion
    prompts: int = 0  # of adaptive asking
    prompts_of_all: int = 0  # that asking all would have taken in its place
    repeated: int = 0  # contexts that repeat another one of their case
    earlier: int = 0  # cases that keep relations of another model, wording or calibration than the critic's
    resumed: int = 0  # stages of cases that an earlier run had finished

    def add(self, critique: Critique) -> None:
        """Count one case; its row is counted when K is known."""
        case = critique.case
        for stage, trace in traces(case).items():
            sums = self.stages.setdefault(stage, Counter())
            sums.update({name: number for name, number in trace.items() if type(number) is int})
        for relation in case.relations or ():
            if relation.status.failed:
                self._fail("relate", relation.extra.get("reason"))
            else:
                self.relations[str(relation.type or RelationType.NEUTRAL)] += 1
        for atom in case.atoms or ():
            if atom.status is Status.RETRIEVAL_FAILED:
                self._fail("retrieve", atom.extra.get("reason"))
        if (record := asked_in_rounds(case)) is not None:
            self.not_asked[record.opinion] += record.left
            self.prompts += record.prompts
            self.prompts_of_all += record.prompts_of_all
        self.repeated += sum(len(repeat.contexts) - 1 for repeat in critique.feedback.repeated)

    def _fail(self, stage: str, reason: Any) -> None:
        kind = reason.partition(":")[0] if isinstance(reason, str) else "unknown"
        self.failed.setdefault(stage, Counter())[kind] += 1

    @property
    def n_failed(self) -> int:
        """Cases that failed, and searches and relations that failed in the other cases."""
        return self.summary.n_failed + sum(kinds.total() for kinds in self.failed.values())

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return self.summary.to_dict() | {
            "stages": {stage: dict(sums) for stage, sums in self.stages.items()},
            "relations": dict(self.relations),
            "failed": {stage: dict(kinds) for stage, kinds in self.failed.items()},
            "n_earlier": self.earlier,
            "n_repeated_sources": self.repeated,
            **(
                {"not_asked": dict(self.not_asked), "prompts": self.prompts, "prompts_of_all": self.prompts_of_all}
                if self.prompts_of_all
                else {}
            ),
        }


def critique_file(
    source: Source,
    out: Source,
    critic: Critic,
    choice: Choice | None = None,
    *,
    cases_out: Source | None = None,
    overwrite: bool = False,
    observer: RunObserver | None = None,
    private: bool = False,
) -> CritiqueReport:
    """Write the row of every chosen case of a file to `out` (SPEC 7), with feedback, in the input's order.

    The cases, with all that was found out about them, go to `cases_out`: by default a file beside `out` (see
    `cases_file`), none where that is standard output. `fcjax.score` makes the same rows of them. Both files take their
    places when they are complete. A row that holds no case has the status `invalid_input`. Once work has begun, the
    critic's client and its retriever are closed in the end. It works in a running event loop, too. Only this user may
    read the files if they are `private`.

    What an earlier run with the same input and settings has left in the journal beside `out` is resumed; a stage in
    which something failed is repeated. Raises `OutputError` where that journal is another run's and `overwrite` is not
    set, where another run is writing, or where a file cannot be written; `InputError` where nothing can be read,
    nothing can be done for any case, or a replay that has no answer at all would take a file's place; and what
    `Critic.critique_many` raises. In all these cases the journal stays.
    """
    choice = choice or Choice()
    report = CritiqueReport(Summary())
    with begin_run(
        source,
        out,
        lambda path: preview(path, critic, choice),
        observer,
        cases_out=cases_file(out) if cases_out is None else cases_out,
        journal=".stages",
        overwrite=overwrite,
        private=private,
    ) as run:

        def on_stage(stage: Stage, case: Case, kept: bool) -> None:
            report.resumed += kept
            run.observer.stage(stage, case, kept)

        def finish(place: int, critique: Critique) -> Finished:
            checkpoint.forget(place)
            report.add(critique)
            report.earlier += _keeps_earlier(critique.case, critic)
            run.observer.case(critique, kept=False)
            record = case_to_dict(critique.case)
            line = orjson.dumps(record)
            return Finished(line, encode_result(critique.row), digest_of(line), count_atoms(record))

        checkpoint = Checkpoint(run.journal, on_stage)
        cases = (checkpoint.resumed(place, case) for place, (case, _, _) in enumerate(choice.cases(run.path)))
        critiques = critic.critique_many(cases, after=checkpoint.after)
        run.write_cases(critiques, finish, [critic.client] if critic.client else [], critic.retriever)

        k = run.k(critic.settings.k)
        prints = Fingerprints(replace(critic.settings, k=k), feedback=True)
        collapse = report.summary.answers.collapse  # in all cases together
        report.summary = Summary(k)

        def complete(row: Row, digest: bytes) -> Row:
            row = completed(row, k, prints.of(digest), collapse)
            report.summary.add(row)
            return row

        run.write_rows(complete)
    return report


def _keeps_earlier(case: Case, critic: Critic) -> bool:
    """`keeps_earlier` of a case that the critic has related."""
    asks = critic.how.model.asks
    if (asks and critic.client is None) or not critic.pipeline.may("relate") or case.status.failed:
        return False
    name = critic.how.model.named(None if critic.client is None else critic.client.model)
    return keeps_earlier(case, name, critic.how.model)
