"""Seeded mutations of valid inputs: bytes, JSON values and hostile fragments."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

LARGEST: Final = 1 << 20
"""Bytes of an input at most."""
USUAL: Final = 1 << 14
"""Bytes of most inputs at most; one in fifty may be larger."""

_TEXTS: Final = (
    *("\x00", "\x1b]0;x\x07", "\x1b[31m", "\r", "\n", "\r\n", "\u2028", "\ufeff", "\ufffd", "\ud800", "\udfff"),
    *("9" * 20, "9" * 400, "9" * 5000, "1" + "0" * 309, "1e999", "-1e999", "1e-999", "NaN", "-Infinity", "-0"),
    *("0x10", "1_000", "2020-99-99", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "0.1"),
    *("[" * 40, "{" * 40, '{"a":' * 40, "[" * 1500, '{"a":' * 1500, "]" * 40, "(" * 300, "<p>" * 300, "a." * 200),
    *(" " * 500, "\t" * 500, "\n" * 500, "- " * 200, "1. " * 200, "**" * 200, "`" * 300, "\\" * 301, '"' * 301),
    *("“" * 100, "”", "'", "<!---->" * 50, "<!--", "-->", "<think>"),
    *("</think>", "<revised>", "</wrong>", "```json\n"),
    *("[neutral]", "[entailment]", '"1": "neutral"', "1. [contradiction]", "not ", "label: ", "\\boxed{neutral}"),
    *("&a [*a]", "*a", "&a", "<<: *a", "!!python/object:os.system"),
    *("a: ", "? ", "- - - - ", "|", ">", "%YAML 1.1\n"),
    *("a.b.c.d = 1", "[[a]]", "'''", '"""', "=cmd|' /C calc'!A0", "@SUM(1)", "../../etc/passwd", "http://[::1]/"),
    *("\\ud800", "\\u0000", "\\", '"', ",", ":", "{}", "[]", "null"),
    *("true", '""', "é", "ſ", "İ", "𝔸", "٣", "²", "\u200b"),
    *("%PDF-1.7", "endobj", "stream", "/Kids [1 0 R]"),
    *("<?xml version='1.0' encoding='x'?>", "<meta charset=utf-7>"),
)  # fmt: skip
FRAGMENTS: Final = (
    *(text.encode("utf-8", "surrogatepass") for text in _TEXTS),
    *(b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\x1f\x8b\x08\x00"),
)

RAW_VALUES: Final = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400),
    *("9" * 5000, "1" + "0" * 309, "-0.0", "0", "-1", "1"),
    *("9007199254740993", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "2", "0.5", "1e-320"),
    *("null", "true", "false", '""', '" "', '"a"', '"\\ud800"'),
    *('"\\u0000"', '"\\u001b[31m"', '"1e999"', '"x"', "[]", "{}"),
    *("[" * 300 + "]" * 300, "[" * 2000 + "]" * 2000),
    *('{"a":' * 300 + "1" + "}" * 300, '{"a":' * 1500 + "1" + "}" * 1500),
    *('[["a", 1]]', '[null]', '[1]', '[""]', '[[]]', '[{}]', '{"": 1}'),
    *('{"id": []}', '{"text": 5}', '"%s"' % ("a" * 3000)),
    '"%s"' % ("9" * 5000),
)  # fmt: skip
"""JSON values as text: wrong types, ranges, depths and halves of characters."""

_NUMBER: Final = re.compile(rb"\d+(?:\.\d+)?")
_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")


def as_text(data: bytes) -> str:
    """The text of an input; lone surrogates stay where the other bytes are UTF-8."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """An input made from the seeds, or from fragments alone; the same for the same state of `random`."""
    most = LARGEST if random.random() < 0.02 else USUAL
    data = random.choice(seeds) if seeds and random.random() < 0.93 else b""
    if not data:
        data = b"".join(random.choice(FRAGMENTS) for _ in range(random.randint(0, 12)))
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 5, 8))):
        data = random.choice(_STEPS)(random, data, seeds)[:most]
    return data


def _place(random: Random, data: bytes) -> int:
    return random.randint(0, len(data))


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = _place(random, data)
    return start, min(len(data), start + random.choice((1, 1, 2, 4, 16, 64, 300, len(data))))


def _insert(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[:at] + random.choice(FRAGMENTS) + data[at:]


def _replace(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:start] + random.choice(FRAGMENTS) + data[end:]


def _delete(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:start] + data[end:]


def _repeat(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    times = random.choice((2, 3, 10, 100, 1000, 20_000))
    times = max(1, min(times, LARGEST // max(1, end - start)))
    return data[:start] + data[start:end] * times + data[end:]


def _flip(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _cut(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[:at] if random.random() < 0.8 else data[at:]


def _splice(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = random.choice(seeds) if seeds else b""
    return data[: _place(random, data)] + other[_place(random, other) :]


def _number(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    places = [found.span() for found in _NUMBER.finditer(data[:20_000])]
    if not places:
        return data
    start, end = random.choice(places)
    return data[:start] + random.choice(RAW_VALUES[:19]).encode() + data[end:]


def _encode(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    kind = random.randrange(6)
    if kind == 0:
        return random.choice(_BOMS) + data
    if kind == 1:
        return gzip.compress(data, mtime=0)
    if kind == 2:
        return gzip.compress(data, mtime=0)[: random.randint(1, 60)]
    if kind == 3:
        return zlib.compress(data)
    text = data.decode("utf-8", "replace")
    return text.encode(random.choice(("utf-16", "utf-16-le", "utf-32", "cp1252", "utf-7")), "replace")


def _lines(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    random.shuffle(lines)
    return b"\n".join(lines + lines[: random.randint(0, 2)])


def _json(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A value, somewhere within a line of JSON or the whole, is replaced, removed, doubled or wrapped."""
    if len(data) > 1 << 17:
        return _flip(random, data, seeds)
    lines = [data]
    at = 0
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        head, brace, rest = lines[at].partition(b"{")  # after a header, for instance
        try:
            value = json.loads(brace + rest)
        except (ValueError, RecursionError):
            return _replace(random, data, seeds)
    else:
        head = b""
    raw: dict[str, str] = {}
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        value = _changed(random, value, raw)
    try:
        text = json.dumps(value, ensure_ascii=random.random() < 0.5)
    except (ValueError, RecursionError):
        return data
    for mark, meant in raw.items():
        text = text.replace(f'"{mark}"', meant)
    lines[at] = head + text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _changed(random: Random, value: Any, raw: dict[str, str]) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        new = dict(value)
        match random.randrange(8):
            case 0:
                del new[key]
            case 1:
                new[random.choice(("id", "text", "", "\x1b", "x" * 300, key + "2"))] = value[key]
            case _:
                new[key] = _changed(random, value[key], raw)
        return new
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        new_list = list(value)
        match random.randrange(8):
            case 0:
                del new_list[at]
            case 1:
                new_list[at:at] = [value[at]] * random.choice((1, 2, 30))
            case _:
                new_list[at] = _changed(random, value[at], raw)
        return new_list
    match random.randrange(6):
        case 0:
            return [value]
        case 1:
            return {random.choice(("id", "text", "a")): value}
        case 2 if isinstance(value, str):
            at = random.randint(0, len(value))
            return value[:at] + as_text(random.choice(FRAGMENTS)) + value[at:]
        case _:
            mark = f"@@{len(raw)}@@"
            raw[mark] = random.choice(RAW_VALUES)
            return mark


_STEPS: Final[tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...]] = (
    *(_insert, _insert, _replace, _delete, _repeat, _repeat, _flip, _cut, _splice, _number, _encode, _lines),
    *(_json, _json, _json, _json, _json),
)
