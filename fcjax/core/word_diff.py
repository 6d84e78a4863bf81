"""The changes from one text to another, word by word."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

from fcjax.core.words import bare, tokens

Change = Literal["same", "gone", "new"]

_COLOURS: Final = {"gone": "#fbe0dd", "new": "#dff3df"}

Word = tuple[str, str]
"""A word or sign, and the white space after it."""


class DiffPart(NamedTuple):
    """A part of the text that is in both, only in the first, or only in the second."""

    change: Change
    text: str


@dataclass(frozen=True, repr=False)
class Diff:
    """The parts that lead from one text to another, in order. Make it with `of`."""

    parts: tuple[DiffPart, ...]

    @classmethod
    def of(cls, before: str, after: str) -> Diff:
        """The difference of two texts, by words and other characters (see `words.tokens`).

        White space and characters without a shape make no difference: they are the second text's.
        """
        old, new = tokens(before), tokens(after)
        same = SequenceMatcher(None, _keys(before, old), _keys(after, new), autojunk=False)
        parts: list[DiffPart] = []
        for tag, i, j, k, m in same.get_opcodes():
            parts += (
                [DiffPart("same", _text(new[k:m]))] if tag == "equal" else _changed(_text(old[i:j]), _text(new[k:m]))
            )
        return cls(tuple(part for part in parts if part.text))

    @property
    def changed(self) -> bool:
        return any(part.change != "same" for part in self.parts)

    def text(self) -> str:
        """Both texts as one, with `[-removed-]` and `{+added+}` words."""
        marks = {"same": "{}", "gone": "[-{}-]", "new": "{{+{}+}}"}
        return "".join(marks[part.change].format(part.text) for part in self.parts)

    def html(self) -> str:
        """Both texts as one in HTML, with removed words struck out and added ones underlined."""
        return "".join(map(_html, self.parts)).replace("\n", "<br>")

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<p>{self.html()}</p>"


def _keys(text: str, words: Sequence[Word]) -> list[str]:
    """What the words of a text are compared by."""
    plain = bare(text) == text
    return [word if plain else bare(word) for word, _ in words]


def _text(words: Sequence[Word]) -> str:
    return "".join(word + space for word, space in words)


def _changed(gone: str, new: str) -> Iterator[DiffPart]:
    """The parts of a change; the white space that ends both of its sides is not changed."""
    bare_gone, bare_new = gone.rstrip(), new.rstrip()
    space = new[len(bare_new) :] if gone and new else ""
    yield DiffPart("gone", bare_gone if space else gone)
    yield DiffPart("new", bare_new if space else new)
    yield DiffPart("same", space)


def _html(part: DiffPart) -> str:
    text = html.escape(part.text)
    if part.change == "same":
        return text
    tag = "del" if part.change == "gone" else "ins"
    return f"<{tag} style='background:{_COLOURS[part.change]}'>{text}</{tag}>"
