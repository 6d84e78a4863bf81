"""Answers about numbered items: what is said about each, in JSON of any shape or in numbered lines.

Every stage that asks about several items at once reads its answers with this: texts, labels and verdicts alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from fcjax.stages.parsing.json_like import Node, nodes_in

NUMBER_KEYS: Final = frozenset(
    ("id", "number", "index", "no", "n", "fact", "claim", "atom", "statement", "item", "hypothesis")
)
"""The keys of an object's own number, as `plain` writes them."""

_NAME: Final = r"(?:claim|atom|fact|hypothesis|statement|item|verdict)"
_LINE: Final = re.compile(
    rf"^[ \t>*_`#|-]*+(?:{_NAME}\b[\s#]*+)?[\[(]?(\d{{1,9}}+)(?!\d)[\])]?[ \t*_`|]*+[.):|=–—-]*+(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER: Final = re.compile(r"[\W_]*+(?:[^\W\d_]{1,12}+[\W_]*+)?(\d{1,4})[\W_]*+")
_NUMBERED_TEXT: Final = re.compile(
    r"[ \t]*+[(\[（【]?(\d{1,3})(?:[ ]?[.)\]）】:：、．।]{1,2}|[ \t]*+[-–—](?=[ \t]))(?!\d)(.*)", re.DOTALL
)
_DIGITS: Final = 9  # of an item's number, at most
_KEYED: Final = re.compile(r"[\"'“”‘’]\s*+:")


class NumberedText(NamedTuple):
    """What an answer says about one item."""

    number: int
    text: str
    start: int  # where the text stands in the answer, without its quotes and before escapes are resolved
    end: int
    placed: bool = False  # whether the number is its place in a list
    tainted: bool = False  # whether it stands among words that are not JSON


def numbered_values(text: str, count: int, keys: Sequence[str], *, booleans: bool = False) -> Iterator[NumberedText]:
    """The texts of the JSON in an answer by the number of their item, in the order of the answer.

    Read are an object from numbers to texts, a list of objects that have a number and a text, objects within objects,
    a list of `count` texts, and texts that begin with their number; with the faults that `nodes_in` forgives. `keys`
    are those that an object may have its text under, the surest first, as `plain` writes them; without any of them,
    its only text counts. Objects and lists of texts count where they are closed. With `booleans`, a bare true or false
    is a text, too.
    """
    nodes = nodes_in(text)
    for node in nodes if booleans else ():
        _as_texts(node, text)
    found = [item for node in nodes for item in _values(node, count, keys, text)]
    if not found and _KEYED.search(text):  # entries without the braces round them
        entries = nodes_in("{" + text)
        for node in entries if booleans else ():
            _as_texts(node, "{" + text)
        found = [
            item._replace(start=item.start - 1, end=item.end - 1)
            for node in entries[:1]
            for item in _values(node, count, keys, "{" + text)
        ]
    yield from found


def _as_texts(node: Node, text: str) -> None:
    """Make texts of the booleans in a node and those within it."""
    for part in node.within():
        for place, ((key, value), (start, end)) in enumerate(zip(part.entries, part.spans, strict=True)):
            if isinstance(value, bool):
                part.entries[place] = key, text[start:end]
                part.spans[place] = start - 1, end  # as of a text whose closing quote is missing


def numbered_lines(text: str, cut: bool = False) -> Iterator[NumberedText]:
    """The numbered lines of an answer, or rows of a table, whatever they say; without the last line of a `cut` one."""
    whole = text.rpartition("\n")[0] if cut else text
    return (NumberedText(int(line[1]), line[2], line.start(2), line.end(2)) for line in _LINE.finditer(whole))


def plain(key: str) -> str:
    """The letters and digits of a key, in lower case."""
    return re.sub(r"[\W_]+", "", key).lower()


def as_number(key: str | None) -> int | None:
    """The number that a key gives, with or without a word before it: `2`, `claim 2`, `Fact_2`."""
    match = _NUMBER.fullmatch(key) if key else None
    return int(match[1]) if match else None


def _values(node: Node, count: int, keys: Sequence[str], text: str) -> Iterator[NumberedText]:
    bare: list[NumberedText] = []
    for (key, value), (start, end) in zip(node.entries, node.spans, strict=True):
        number = as_number(key)
        if isinstance(value, Node):
            own = number if number is not None else _number_of(value)
            said = _said(value, keys, text) if value.end and (value.opened == "{" or own is not None) else None
            if said and own is not None:
                yield said._replace(number=own)
            elif said:
                bare.append(said)
            elif number is not None and value.opened == "[":
                continue  # several texts for one item: none is surely its, and they are not those of all items
            else:
                yield from _values(value, count, keys, text)
        elif isinstance(value, str):
            item = NumberedText(number or 0, value.strip(), *_inside(text, start, end), tainted=node.tainted)
            if number is not None:
                yield item
            elif node.opened == "[" and not node.tainted:
                bare.append(item)
    if node.opened == "{" and not bare:
        if _number_of(node) is not None and (said := _said(node, keys, text) if node.end else None):
            yield said._replace(number=_number_of(node) or 0)
        return
    lines = [_NUMBERED_TEXT.fullmatch(item.text) for item in bare]
    if bare and all(lines):
        for item, line in zip(bare, lines, strict=True):
            if line:
                yield item._replace(number=int(line[1]), text=line[2].strip())
    elif len(bare) == count and node.end:
        yield from (item._replace(number=place, placed=True) for place, item in enumerate(bare, 1))


def _said(node: Node, keys: Sequence[str], text: str) -> NumberedText | None:
    """The text of an object: under the surest of the keys, or its only one; the only one of a list."""
    texts = [
        (plain(key or ""), NumberedText(0, value.strip(), *_inside(text, start, end)))
        for (key, value), (start, end) in zip(node.entries, node.spans, strict=True)
        if (key or node.opened == "[") and isinstance(value, str) and value.strip() and as_number(value) is None
    ]
    if node.tainted:
        return None
    for wanted in keys:
        if found := [item for key, item in texts if key == wanted]:
            return found[0]
    return texts[0][1] if len(texts) == 1 and as_number(texts[0][0]) is None else None


def _number_of(node: Node) -> int | None:
    """The number that an object gives itself, or a list of a number and a text."""
    if node.opened == "[":
        first = node.entries[0][1] if len(node.entries) == 2 else None
        if isinstance(first, float):
            return int(first) if first.is_integer() else None
        text = first.strip() if isinstance(first, str) else ""
        if not text.isdecimal():
            return None
        return int(text) if len(text) <= _DIGITS else 10**_DIGITS  # the number of no item
    for key, value in node.entries:
        if key and plain(key) in NUMBER_KEYS and isinstance(value, float | str):
            number = as_number(f"{value:.0f}" if isinstance(value, float) else value)
            if number is not None:
                return number
    return None


def _inside(text: str, start: int, end: int) -> tuple[int, int]:
    """A value's place without the quotes round it."""
    closed = end - start > 1 and text[end - 1] in "\"'“”‘’"
    return start + 1, end - 1 if closed else end
