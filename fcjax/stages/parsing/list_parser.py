"""Lists in a model's answer: JSON in any shape, else numbered or bulleted lines, else a table; never prose.

An answer without a list gives None, or nothing. Reading takes time in proportion to the length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from fcjax.stages.parsing.json_like import Node, Scalar, nodes_in
from fcjax.stages.parsing.numbered import as_number, numbered_values, plain

# The keys of texts, the surest first; letters and digits in lower case.
_TEXTS: Final = (
    *("revised", "revision", "rewritten", "rewrite", "standalone", "query", "searchquery", "search"),
    *("fact", "facts", "atomicfact", "atomicfacts", "claim", "claims", "atom", "atoms", "statement", "statements"),
    *("proposition", "propositions", "revisions", "queries", "text", "content", "sentence", "value"),
)
_ASIDE: Final = frozenset(("reasoning", "thought", "thoughts", "thinking", "analysis", "explanation", "note", "notes"))


def read_list(text: str, cut: bool = False) -> list[str] | None:
    """The texts of a list in an answer, in order and stripped; None where there is no list.

    Read are JSON lists of strings or objects, objects that hold lists or numbered strings, and one object after the
    other, with or without fence and chatter, and with the faults that models make (see `nodes`); then lines that are
    numbered or bulleted; then the rows of a table. The last list wins: reasoning comes first. Of an answer that was
    `cut` off, or only looks so, its complete items are kept.
    """
    text = _answer(text)
    if (found := _last_list(text)) is not None:
        return _unnumbered(found)
    return [item for _, item in _lines(text, cut)] or _table(text, cut) or None


def read_numbered(text: str, count: int, cut: bool = False) -> dict[int, str]:
    """The texts of an answer by their number, from 1 to `count`; the last one of each number wins.

    Read are a JSON object from numbers to texts, a list of objects that have a number and a text, a list of `count`
    strings, and numbered lines. Where an answer is `cut` off, its complete items count. None do where one has the
    number 0: who counts from there means another text by each number.
    """
    text = _answer(text)
    found = {item.number: item.text for item in numbered_values(text, count, _TEXTS) if not item.tainted}
    if not found:
        found = {number: item for number, item in _lines(text, cut) if number is not None}
    return {} if 0 in found else {number: item for number, item in found.items() if 1 <= number <= count}


def read_fields(text: str, wanted: Sequence[str]) -> dict[str, Scalar]:
    """What the last JSON object with one of the `wanted` keys holds besides lists and objects, by key.

    Keys are letters and digits in lower case. Empty where there is no such object.
    """
    for node in reversed([one for top in nodes_in(_answer(text)) for one in top.within()]):
        values = {plain(key): value for key, value in node.entries if key and not isinstance(value, Node)}
        if not node.tainted and any(key in values for key in wanted):
            return values
    return {}


def own_words(text: str, prompt: str) -> str:
    """An answer without the lines of its prompt, in case it repeats them."""
    asked = [line.strip() for line in prompt.splitlines()]
    telling = [line for line in asked if len(line) >= _TELLING]
    if not any(line in text for line in (*telling[:1], *telling[-1:])):
        return text
    repeated = {line for line in asked if line}
    return "\n".join(line for line in text.splitlines() if line.strip() not in repeated)


_TELLING: Final = 30  # characters of a line that is not repeated by chance


def _answer(text: str) -> str:
    """The text without reasoning that was left in it, and without the boxes of a list of tasks."""
    if not text.lstrip().startswith(("[", "{")):
        text = _BOX.sub(r"\1", text.rpartition("</think>")[2])
    return text


_BOX: Final = re.compile(r"^([ \t]*+(?:[-*+•]|\d{1,3}[.)])[ \t]++)\[[ xX✓]?\]", re.MULTILINE)


# JSON


def _last_list(text: str) -> list[str] | None:
    """The texts of the last list that has any; none, where there are only lists without."""
    groups: list[list[str]] = []
    end = 0
    for node in nodes_in(text):
        found = _texts(node)
        if found is not None:
            if groups and end and _BETWEEN.fullmatch(text, end, node.start):
                groups[-1] += found  # one object after the other
            else:
                groups.append(found)
            end = node.end
    return next((group for group in reversed(groups) if group), [] if groups else None)


def _unnumbered(items: list[str]) -> list[str]:
    """The items without their numbers, where there are several and they are numbered from 1 on."""
    lines = [_NUMBERED.fullmatch(item) for item in items]
    texts = [line["text"].strip() for number, line in enumerate(lines, 1) if line and int(line["number"]) == number]
    return texts if len(texts) == len(items) > 1 and all(texts) else items


_BETWEEN: Final = re.compile(r"[\s,;]*+")


_Known = dict[int, list[str] | None]  # the texts of nodes that were looked at, by the node's identity


def _texts(node: Node, known: _Known | None = None) -> list[str] | None:
    """The texts that an object or list holds; None where it holds none and is not an empty list.

    An object is looked at in several ways, so what is in it is `known` after the first one: else every level would
    double the time.
    """
    known = {} if known is None else known
    if id(node) not in known:
        known[id(node)] = _texts_of(node, known)
    return known[id(node)]


def _texts_of(node: Node, known: _Known) -> list[str] | None:
    if node.opened == "[":
        found = [text for _, value in node.entries for text in _texts_in(value, node.tainted, known)]
        blank = all(isinstance(value, str) for _, value in node.entries)
        return found if found or (blank and node.end and not node.tainted) else None
    inner = [(plain(key), value) for key, value in node.entries if key and isinstance(value, Node)]
    numbered = [value for key, value in node.entries if as_number(key) is not None]
    return (
        _joined((value for key, value in inner if key in _TEXTS), known)
        or [text for value in numbered for text in _texts_in(value, node.tainted, known)]
        or _named(node)
        or _joined((value for key, value in inner if key not in _ASIDE), known)
    )


def _joined(lists: Iterable[Node], known: _Known) -> list[str] | None:
    found = [texts for node in lists if (texts := _texts(node, known)) is not None]
    return [text for texts in found for text in texts] if found else None


def _texts_in(value: Scalar | Node, tainted: bool, known: _Known) -> list[str]:
    """The texts of an item of a list; of an object without telling keys, its only string."""
    if isinstance(value, Node):
        return _texts(value, known) or _only(value)
    return [value.strip()] if isinstance(value, str) and value.strip() and not tainted else []


def _strings(node: Node) -> list[tuple[str, str]]:
    """The strings of an object by their keys, numbers left out."""
    pairs = ((plain(key), value.strip()) for key, value in node.entries if key and isinstance(value, str))
    return [] if node.tainted else [(key, text) for key, text in pairs if text and as_number(text) is None]


def _named(node: Node) -> list[str]:
    """The strings of an object under the surest key of a text."""
    strings = _strings(node)
    return next((found for key in _TEXTS if (found := [text for one, text in strings if one == key])), [])


def _only(node: Node) -> list[str]:
    strings = _strings(node)
    return [strings[0][1]] if len(strings) == 1 else []


# Lines

_NAME: Final = r"(?:(?:atomic[ ])?(?:fact|claim|statement|atom|item|query|revision)[ ]?#?)?"
_NUMBERED: Final = re.compile(
    rf"(?P<indent>[ \t>]*+)(?:[*_]{{1,3}}|\#{{1,6}}[ ])?{_NAME}"
    r"[(\[（【]?(?P<number>\d{1,3})(?:\.\d{1,3})*[*_]{0,3}"
    r"(?:[ ]?[.)\]）】:：、．।]{1,2}|[ \t]*+[-–—](?=[ \t]))[*_]{0,3}(?!\d)(?P<text>.*)",
    re.IGNORECASE | re.DOTALL,
)
_BULLETED: Final = re.compile(r"(?P<indent>[ \t>]*+)(?:[-*+–—→►](?=[ \t])|[•‣◦▪▫●○■□·∙・✓✔➢])(?P<text>.*)", re.DOTALL)
_HEADING: Final = re.compile(r"\b(?:facts|claims|statements|list|answer|output|result)\b[\s:*_#]*+\Z", re.IGNORECASE)
_MORE: Final = re.compile(r"\b(?:additional|other|more|further|remaining)\b", re.IGNORECASE)
_WRAPPED: Final = re.compile(r"[\"“„«]([^\"“”„«»]*)[\"”»],?")


def _lines(text: str, cut: bool) -> list[tuple[int | None, str]]:
    """The numbered and bulleted lines with their numbers, below the last heading that announces them.

    An indented line below an item continues it; an item that ends with a colon is a heading. Neither they nor
    items without letters count.
    """
    items: list[tuple[int | None, str]] = []
    first, announced, goes_on = 0, 0, False
    for line in _complete(text, cut):
        numbered = _NUMBERED.fullmatch(line)
        if item := numbered or _BULLETED.fullmatch(line):
            first = announced
            items.append((int(item["number"]) if numbered else None, item["text"]))
        elif goes_on and line[:1] in (" ", "\t") and line.strip():
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
            continue
        elif _HEADING.search(line[-80:]) and not _MORE.search(line[-80:]):
            announced = len(items)
        goes_on = item is not None
    bare = [(number, _bare(item)) for number, item in items[first:]]
    return [(number, item) for number, item in bare if _says_something(item) and not item.endswith((":", "："))]


def _complete(text: str, cut: bool) -> list[str]:
    """The lines of a text; of one that was cut off, those that came to their end."""
    lines = text.splitlines()
    return lines[:-1] if cut and not text.endswith("\n") else lines


def _bare(item: str) -> str:
    """An item without bold face, and without quotation marks round it."""
    item = item.replace("**", "").strip()
    wrapped = _WRAPPED.fullmatch(item)
    return wrapped[1].strip() if wrapped else item


def _says_something(item: str) -> bool:
    return any(sign.isalpha() for sign in item)


def _table(text: str, cut: bool) -> list[str]:
    """The facts in the rows of a table: the column that is called so, else the one with the most text."""
    rows = [line.strip().strip("|").split("|") for line in _complete(text, cut) if line.strip().startswith("|")]
    rule = next((i for i, row in enumerate(rows) if all(_RULE.fullmatch(cell) for cell in row)), None)
    if not rule:  # none, or no heads of columns above it
        return []
    heads, body = [plain(cell) for cell in rows[rule - 1]], rows[rule + 1 :]
    lengths = [sum(len(row[i]) for row in body if i < len(row)) for i in range(len(heads))]
    named = [i for i, head in enumerate(heads) if head in _TEXTS]
    column = named[0] if named else lengths.index(max(lengths))
    items = [_bare(row[column]) for row in body if column < len(row)]
    return [item for item in items if _says_something(item)]


_RULE: Final = re.compile(r"\s*+:?-+:?\s*+")
