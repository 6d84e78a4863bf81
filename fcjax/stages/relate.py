"""The relation model: what a context says about an atom or another context, by a language model (SPEC 1, 2).

`Agenda` knows which pairs of a case are to be asked about, `RelationModel` makes questions of them, and `relate` takes
a question to its relations: it asks, repairs what cannot be read, and finds how probable each answer is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, islice
from typing import Any, Literal, NamedTuple, Protocol, get_args

from fcjax.core.checks import check_choice, check_number, is_number
from fcjax.core.errors import SettingsError
from fcjax.core.prompts import AnswerForm, Prompt, Reply
from fcjax.core.records import DISTRIBUTED, Atom, Case, Context, Distribution, Relation, RelationType, Status
from fcjax.core.words import without_invisible
from fcjax.graph.selection import Kind, Version, merge, own_contexts
from fcjax.stages.answers import AT_ONCE, DIVISIBLE, Ask, Reject, answers_to, draw, each, is_cut, is_readable
from fcjax.stages.calibration import Calibration, likeliest, spread
from fcjax.stages.parsing.labels import SPELLINGS, FoundLabel, Judged, judged, read_label, read_labels
from fcjax.stages.templates import Template, quoted
from fcjax.stages.wordings import PACKED, PAIRWISE, PAIRWISE_1

Style = Literal["pairwise", "packed"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing to ask: what the premise, a context's evidence, says of the hypothesis (SPEC 2)."""

    source: str
    target: str
    premise: str
    hypothesis: str
    kind: Kind = "atom"  # the target's


@dataclass(frozen=True, slots=True)
class Agenda:
    """The pairs to ask about in one case. Make it with `of`."""

    case: Case
    version: Version
    contexts: Mapping[str, Context]  # what may be asked of: by the variable that each stands for, duplicates merged
    atoms: Mapping[str, Atom]
    skipped: Mapping[str, str]  # id of an atom or context that nothing is asked about -> why
    aliases: Mapping[str, str]  # merged duplicate -> the variable that was kept
    own: Mapping[str, set[str]]  # the contexts of each atom, for FR1
    related: frozenset[tuple[str, str]]  # pairs of variables that have an answer

    @classmethod
    def of(cls, case: Case, version: Version) -> Agenda:
        """The agenda of a case for a graph of `version`: FR1 asks each atom's own contexts about it, FR2 every context
        about every atom, FR3 also every context about every other one, in both orders (SPEC 2).

        Duplicates are asked about once. A pair whose relation is there, with the status ok, is not asked about again;
        a relation between a context and an atom answers in either direction, an equivalence answers both orders.
        Raises `InputError` where FR1 lacks the contexts of an atom.
        """
        aliases: dict[str, str] = {}
        merge(((atom.id, atom.text.strip()) for atom in case.atoms or ()), aliases)
        merge(((context.id, context.evidence) for context in case.contexts or ()), aliases)
        skipped: dict[str, str] = {}
        atoms: dict[str, Atom] = {}
        contexts: dict[str, Context] = {}
        for atom in case.atoms or ():
            if not (why := _unusable(atom.status, atom.text)):
                atoms.setdefault(aliases.get(atom.id, atom.id), atom)
            else:
                skipped[atom.id] = why
        for context in case.contexts or ():
            if not (why := _unusable(context.status, context.evidence)):
                contexts.setdefault(aliases.get(context.id, context.id), context)
            else:
                skipped[context.id] = why
        related = set()
        for relation in case.relations or ():
            if not relation.status.failed:
                source, target = (aliases.get(end, end) for end in (relation.source, relation.target))
                related.add((source, target))
                if relation.type is RelationType.EQUIVALENCE or (source in atoms) != (target in atoms):
                    related.add((target, source))
        own = own_contexts(case, aliases) if version == "FR1" else {}
        return cls(case, version, contexts, atoms, skipped, aliases, own, frozenset(related))

    def pairs(self) -> Iterator[Pair]:
        """The pairs that lack an answer, one at a time; those of one context are adjacent, atoms first."""
        for source, context in self.contexts.items():
            premise = context.evidence
            for target, atom in self.atoms.items():
                ours = self.version != "FR1" or source in self.own.get(target, ())
                if ours and (source, target) not in self.related:
                    yield Pair(context.id, atom.id, premise, atom.text)
            if self.version == "FR3":
                for target, other in self.contexts.items():
                    if target != source and (source, target) not in self.related:
                        yield Pair(context.id, other.id, premise, other.evidence, "context")

    def answered(self, relations: Iterable[Relation]) -> Case:
        """The case with its own relations followed by these; a new answer replaces a failed one."""
        relations = tuple(relations)
        asked = {self._variables(relation) for relation in relations}
        given = self.case.relations or ()
        kept = (one for one in given if not (one.status.failed and self._variables(one) in asked))
        return replace(self.case, relations=(*kept, *relations))

    def _variables(self, relation: Relation) -> tuple[str, str]:
        source, target = relation.source, relation.target
        return self.aliases.get(source, source), self.aliases.get(target, target)


def _unusable(status: Status, text: str) -> str | None:
    if status.failed:
        return f"its status is {status}"
    return None if text.strip() else "it has no text"


class Relater(Protocol):
    """What a relation model is to a run: questions about pairs, and the relations that answer them.

    `RelationModel` asks a language model, and `encoders.LocalRelationModel` reads the pairs itself.
    """

    @property
    def style(self) -> str: ...
    @property
    def template_name(self) -> str: ...
    @property
    def calibration(self) -> Calibration | None: ...

    @property
    def asks(self) -> bool:
        """Whether a language model is asked, so that an endpoint is needed."""

    def settings(self) -> dict[str, Any]:
        """All that changes its answers but for the model's name and the calibration, as JSON."""

    def named(self, endpoint_model: str | None) -> str:
        """The name of the model that answers, where the endpoint's is this."""

    @property
    def doubt(self) -> str | None:
        """Why its answers are in doubt where it has no calibration, in a sentence; None where nothing is expected."""

    def check(self, calibration: Calibration, endpoint_model: str | None) -> None:
        """Raise `SettingsError` unless the calibration is of this model, style and wording."""

    def uncalibrated(self) -> Relater:
        """The same, without a calibration."""

    def calibrated(self, calibration: Calibration) -> Relater:
        """The same, with this calibration."""

    def questions(self, pairs: Iterable[Pair]) -> Iterator[Any]:
        """The questions about all of `pairs`, each with the `pairs` that it asks about."""

    async def answer(self, question: Any, ask: Ask, reject: Reject | None = None) -> list[Relation]:
        """The relation of each pair of a question, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationModel:
    """How relations are asked for. The model that answers is chosen elsewhere.

    `pairwise` asks one pair per prompt; `packed` up to `pack` atoms of one context, and still one pair per prompt if
    the target is a context, whose text is long. `votes` more draws are asked for where a reply has no logprobs;
    without them, an answer that has none gets the probability `default`. A `calibration` is applied to the answers to
    its wording (SPEC 9), which must be the style's, and whose gate must be passed or forced. Raises `SettingsError`.
    """

    style: Style = "pairwise"
    pairwise: Template = PAIRWISE
    packed: Template = PACKED
    pack: int = 16
    top_logprobs: int | None = 5  # None where logprobs are not to be asked for
    votes: int = 0
    default: float = 0.9
    max_tokens: int = 256  # of an answer; a packed one may have 24 more for each atom
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_choice("style", self.style, get_args(Style))
        for name, least in (("pack", 1), ("votes", 0), ("max_tokens", 1)):
            check_number(name, getattr(self, name), least, 2**31 - 1, whole=True)
        check_number("top_logprobs", self.top_logprobs, 0, 2**31 - 1, whole=True, none=True)
        if not is_number(self.default, 0, 1) or self.default in (0, 1):
            raise SettingsError(f"default is {self.default!r:.60}; allowed: a probability between 0 and 1")
        if self.calibration is not None:
            if not isinstance(self.calibration, Calibration):
                raise SettingsError(
                    f"calibration is {self.calibration!r:.60}; allowed: a Calibration (load_calibration reads its "
                    "file), or None"
                )
            self.check(self.calibration, self.calibration.model)
            self.calibration.check_gate()

    @property
    def template(self) -> Template:
        """The wording of the style in use."""
        return self.packed if self.style == "packed" else self.pairwise

    @property
    def template_name(self) -> str:
        """The name of the wording, with its version."""
        return self.template.name

    @property
    def asks(self) -> bool:
        """That a language model is asked."""
        return True

    def settings(self) -> dict[str, Any]:
        """The fields as JSON, templates by their names, without the calibration."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "calibration"}
        return given | {"pairwise": self.pairwise.name, "packed": self.packed.name}

    def named(self, endpoint_model: str | None) -> str:
        """The name of the model that answers: the endpoint's."""
        return endpoint_model or ""

    @property
    def doubt(self) -> None:
        """None: a language model may be used without a calibration."""
        return None

    def check(self, calibration: Calibration, endpoint_model: str | None) -> None:
        """Raise `SettingsError` unless the calibration is of this model, style and wording."""
        calibration.check(self.named(endpoint_model), self.style, self.template_name)

    def uncalibrated(self) -> RelationModel:
        """The same, without its calibration."""
        return replace(self, calibration=None)

    def calibrated(self, calibration: Calibration) -> RelationModel:
        """The same, with this calibration."""
        return replace(self, calibration=calibration)

    async def answer(self, question: Question, ask: Ask, reject: Reject | None = None) -> list[Relation]:
        """The relation of each pair of a question, in order; see `relate`."""
        return await relate(question, ask, reject)

    @property
    def can_hold_labels(self) -> bool:
        """Whether a server can be asked to hold answers to the labels: a custom wording names none, and a wording that
        explains has a sentence before them."""
        return self.template.labels is not None and not self.template.explains

    def questions(self, pairs: Iterable[Pair]) -> Iterator[Question]:
        """The questions that ask about all of `pairs`, one at a time."""
        for (_, kind), group in groupby(pairs, lambda pair: (pair.source, pair.kind)):
            size = self.pack if self.style == "packed" and kind == "atom" else 1
            while pack := tuple(islice(group, size)):
                yield Question(pack, self)


class Answer(NamedTuple):
    """What was read about one pair: its label, and how probable the model made it, where the reply has logprobs."""

    label: RelationType
    judged: Judged | None


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt's worth of pairs, all of one premise."""

    pairs: tuple[Pair, ...]
    model: RelationModel

    @property
    def packed(self) -> bool:
        """Whether the answer is a list with one label per pair."""
        return self.model.style == "packed" and self.pairs[0].kind == "atom"

    def prompt(self) -> Prompt:
        """The question as a prompt, with the texts quoted so that they cannot act as instructions."""
        model, premise, template = self.model, quoted(self.pairs[0].premise), self.template
        texts = [quoted(pair.hypothesis) for pair in self.pairs]
        if self.packed:
            claims = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
            messages = template.messages(premise=premise, claims=claims, count=str(len(texts)))
        else:
            messages = template.messages(premise=premise, hypothesis=texts[0])
        return Prompt(
            messages=messages,
            template=template.name,
            max_tokens=model.max_tokens + (24 * len(texts) if self.packed else 0),
            top_logprobs=model.top_logprobs,
            answer=self._form(),
        )

    @property
    def template(self) -> Template:
        """The wording that it is asked in."""
        return self.model.packed if self.packed else self.model.pairwise

    def _form(self) -> AnswerForm | None:
        """What the wording asks to be answered; None where that is not known, as of a custom one."""
        labels = self.template.labels
        if labels is None or self.template.explains:
            return None
        return AnswerForm.numbered(range(1, len(self.pairs) + 1), labels) if self.packed else AnswerForm.one_of(labels)

    def read(self, reply: Reply) -> dict[int, Answer]:
        """The answers in a reply, by the place of their pair, from 0; those that cannot be read are left out."""
        if (text := without_invisible(reply.text)) != reply.text:
            reply = replace(reply, text=text)
        cut = is_cut(reply)
        found: Mapping[int, FoundLabel | None]
        if self.packed:
            found = {n - 1: label for n, label in read_labels(reply.text, len(self.pairs), cut).items()}
        else:
            found = {0: read_label(reply.text, cut)}
        return {i: Answer(label.label, judged(reply, label)) for i, label in found.items() if label}

    def request(self, missing: Sequence[int]) -> str:
        """What is said after an answer that could not be read, or not for the pairs at `missing`."""
        words = self.template.labels if self.template.labels != PAIRWISE_1.labels else None  # else names in brackets
        labels = ", ".join(words or SPELLINGS)
        if self.packed:
            numbers = ", ".join(str(i + 1) for i in missing)
            return (
                f"No label could be read for these numbers: {numbers}. Answer again for them, with one JSON object "
                f"from each number to its label and nothing else. The labels: {labels}."
            )
        if words:
            return f"No answer could be read. Answer again, with one of these words and nothing else: {labels}."
        return f"No label could be read. Answer again, with one label in brackets and nothing else: {labels}."


async def relate(question: Question, ask: Ask, reject: Reject | None = None) -> list[Relation]:
    """The relation of each pair of a question, in order.

    What cannot be read in the reply is asked for once more with the reply quoted, then by one fresh draw of the whole
    question. A pair that still has no answer gets a relation with the status `relation_failed`, which makes no
    factor, and the reason in `extra`; the prompts whose replies were of no use are then passed to `reject`, so
    that they are not served as answers again. Neutral answers are relations like the others, with the status ok.

    A relation keeps the distribution of the model's answer, calibrated where the relation model has a calibration;
    its type is the likeliest label of that, and its probability that one's (SPEC 9). `method` says where it comes from:
    `logprobs` (see `labels.judged`); `votes`, from the answer and further draws at temperature 1, where a label has
    (votes for it + 1) / (answers that could be read + 3), Laplace's estimate, and the first answer's wins a tie; or
    `default`, where only the label is known: then there is no distribution without a calibration.
    """
    prompt, count = question.prompt(), len(question.pairs)
    asked = await answers_to(prompt, count, question.read, question.request, ask, reject, what="label")
    if asked.failure and asked.failure.kind in DIVISIBLE and count > 1:
        halves = (question.pairs[: count // 2], question.pairs[count // 2 :])
        found = await each(lambda half: relate(replace(question, pairs=half), ask, reject), halves, len(halves))
        return [*found[0], *found[1]]
    answers, votes = asked.answers, question.model.votes
    ballots: list[dict[int, Answer]] = []
    if votes and any(answer.judged is None for answer in answers.values()):
        draws = await each(lambda sample: ask(draw(prompt, sample)), range(1, votes + 1), AT_ONCE)
        ballots = [question.read(one) for one in draws if isinstance(one, Reply) and is_readable(prompt, one)]
    return [
        _relation(pair, answers[i], [ballot[i].label for ballot in ballots if i in ballot], question.model)
        if i in answers
        else failed(pair, asked.why)
        for i, pair in enumerate(question.pairs)
    ]


def _relation(pair: Pair, answer: Answer, votes: list[RelationType], model: RelationModel) -> Relation:
    label, p, method = answer.label, model.default, "default"
    other = model.style == "packed" and pair.kind == "context"  # which is asked about in the pairwise wording
    calibration = None if other else model.calibration
    q: Distribution | None = None
    if answer.judged is not None:
        method, p, q = "logprobs", answer.judged.p, answer.judged.distribution
    elif model.votes:
        counts = Counter([label, *votes])
        label, method = counts.most_common(1)[0][0], "votes"
        p = _laplace(counts, label)
        entailment, contradiction, neutral = (_laplace(counts, one) for one in DISTRIBUTED)
        q = entailment, contradiction, neutral
    if calibration is not None:
        q = calibration.apply(spread(label, max(p, 1 / len(DISTRIBUTED))) if q is None else q)
    if q is not None:
        label, p = likeliest(q, label)
    return Relation(source=pair.source, target=pair.target, type=label, probability=p, method=method, distribution=q)


def _laplace(counts: Counter[RelationType], label: RelationType) -> float:
    return (counts[label] + 1) / (counts.total() + len(DISTRIBUTED))


def failed(pair: Pair, why: str) -> Relation:
    """The relation of a pair that has no answer, and why; its kind comes before a colon."""
    return Relation(
        source=pair.source,
        target=pair.target,
        type=None,
        probability=None,
        status=Status.RELATION_FAILED,
        extra={"reason": why},
    )
