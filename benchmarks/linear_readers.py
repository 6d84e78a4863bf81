"""The time of each reader on its worst texts known, at 1, 2 and 4 MB: it should double with the text.

    python -P benchmarks/linear_readers.py --out linear

All worst texts are tried at a small size first. The slowest one of each reader is then timed at the full sizes, and the
one whose time grows the most at a quarter of them. Readers with a smaller limit are timed up to that; with `--budget`,
slow readers at smaller sizes. Exit code 1 if a reader takes over three times as long for twice the text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]

import file_readers  # noqa: E402
import wire_readers  # noqa: E402
from fuzz_readers import TooSlowError, readers, tried  # noqa: E402
from reply_readers import Reader, wire  # noqa: E402

MB: Final = 1_000_000
SCREENED: Final = 4_000  # bytes of a text in the first round
LONGEST: Final = 20.0  # seconds of CPU time for one text
MOST_RATIO: Final = 3.0
NOISE: Final = 0.2  # seconds; ratios of shorter times say nothing

TEXTS: Final = (
    *(" ", "\n", "\t", "a", "1", "-", "_", "*", "`", "\\", '"', "'"),
    *("“", "”", "«", "[", "{", "(", "<", "|", ">", "#", ","),
    *("1. ", "1. a\n", "- a\n", "| a ", "|---|\n", "[]", "{}", '{"a":'),
    *('["a",', '"\\', '", "', "“”", "1,", "1e", "a:", "**"),
    *("[neutral] ", "neutral or ", "neutral\n", '"[neutral] x"', "“neutral ”", '"neutral', "not ", "label: ", "final "),
    *("<premise>", "<claims></claims>", "<think>", "</think>", "<wrong>", "</wrong>", "summary: ", "confidence: 1\n"),
    *("[same] ", "the same or ", "verdict ", "\\boxed{", "\\n"),
    *("é", "\u3000", "irrelevant ", '{"1":"neutral"},', "(a "),
    *("<revised>", "</revised>", "\n\nNote: ", "Here is the "),
    *("I cannot ", "```\n", "~~~", "a. ", "٣", "\u200b", "a b ", "1."),
)  # fmt: skip
PAGES: Final = (
    *("<!---->", "<!--", "-->", "<p>", "</p>", "<p>a ", "<div><p>a b c.</p>"),
    *("<a href='x'>y</a> ", "&amp;", "&#x41;", "&", "<"),
    *("<p a{i}=b>", "<table><tr><td>a", "<title>", "<meta charset="),
    *("<script>", "<style>", "<ul><li>a", "<?xml ", "<![CDATA["),
    *("a ", "\n", " \n", "\x00", "é", "日", ". ", "a. A", "<br>"),
    *("<b><i>", '"isAccessibleForFree":', "<html>", " a{i}=b"),
)  # fmt: skip
JSON: Final = (
    *("[", "{", '{"a":', "[]", "[],", "{},", "[NaN,", "NaN,", "1,"),
    *("1e999,", "9", '"', "\\", '"\\ud800",', '"a":1,', " ", "\n"),
    *('{"a":1}\n', "[NaN]\n", '{"id":1,"atoms":[', '{"text":1},'),
    *('{"id":"a","text":""},', "null,", "null\n", '{"a":"\\"', "é"),
    *('{"id":"x{i}"}\n', '{"id":"1"}\n', '"a","b":', '{"source":"a","target":"b"},', '{"id":', '"id":'),
)  # fmt: skip
TOML: Final = (
    *("a.", "[", "[[", "a=", "a{i}=1\n", "[a{i}]\n", "[[a]]\n"),
    *("[a.b.c]\n", "'", '"', '"""', "'''", "1", "1_", "#", "\\", " "),
    *("a.a=1\n", '"a".', "{a=", "x=[", "[1,", "a = 2020-99-99\n", "\n", "a . ", "é", "-", "a{i}.b.c=1\n", "[a.b{i}]\n"),
)  # fmt: skip
YAML: Final = (
    *("[", "{", "- ", "-\n", "a: ", "a{i}: 1\n", "? ", "&a ", "*a "),
    *("!", "!!str ", "|\n", ">\n", "'", '"', "#", " ", "\n", "\\"),
    *("- a\n", "[a, ", "a: {i}\n", "1", "1:", "%", "--- \n", "...\n"),
    *('"\\x41', "- - ", "&a{i} [*a{i}]\n", "é", ": ", ", "),
)  # fmt: skip
TABLES: Final = (
    "a,",
    '"',
    '"a",',
    "a\n",
    "a,1\n",
    "a{i}.org,0.5\n",
    "\n",
    ",",
    "#",
    "\r",
    '""',
    "xn--",
    ".",
    "a.",
    " ",
)
NUMBERS: Final = ("1 ", "2 ", "0 ", "9", "c\n", "c ", "MARKOV ", "\n", "1.", "1e", "0.5 ", "-", "\t", "1 0\n", "é")
WORST: Final = {
    "HTML": (PAGES, (("", ""), ("<html><body><p>", ""), ("<p ", ">x</p>"))),
    "plain text": (PAGES + TEXTS, (("", "x"),)),
    "PDF and HTML in a worker": (PAGES, (("", ""), ("<p ", ">x</p>"))),
    "corpus of text": (PAGES + TEXTS, (("", "x"),)),
    "cases": (JSON, (("", ""), ("[", "]"), ('{"id":"1","atoms":[', "]}"), ('{"a":"', '"}'))),
    "cases as one JSON text": (JSON, (("", ""), ("[", "]"), ('{"id":"1","atoms":[', "]}"))),
    "UAI models": (NUMBERS, (("", ""), ("MARKOV ", ""), ("MARKOV 999999999 ", ""), ("MARKOV\n0\n1\n1 0\n", ""))),
    "UAI evidence": (NUMBERS, (("", ""), ("1 ", ""))),
    "plans (YAML)": (YAML, (("", ""), ("a: ", ""), ("a: [", "]"))),
    "configuration (TOML)": (TOML, (("", ""), ("a = ", ""), ("a = [", "]"))),
    "priors (toml)": (TOML, (("", ""), ("a = ", ""))),
    "priors (json)": (JSON, (("", ""), ("{", "}"))),
    "priors (csv)": (TABLES, (("", ""), ("domain,prior\n", ""))),
    "data sets (tables)": (TABLES, (("", ""), ("question,context1\n", ""))),
    "templates": (("$", "$$", "${", "$a ", "a", " ", "$text", "\n", "{"), (("", ""),)),
}
"""The parts that are repeated, and what stands before and behind, by reader; others have JSON and texts."""
HEADER: Final = b"HTTP/1.1 429 X\r\n"
SKIPPED: Final = (
    "model server on loopback",
    "search services on loopback",
    "pages on loopback",
    "store files",
    "index files",
)
REPLIES: Final = ("lists", "JSON-like", "summaries", "revisions", "refusals", "stages")
LIMITS: Final = {"plans (YAML)": 1 << 20, "configuration (TOML)": 1 << 20, "templates": 1 << 20, "headers": 1 << 16}


@dataclass(frozen=True)
class Worst:
    """A part that is repeated, and what stands before and behind."""

    before: str
    part: str
    after: str

    def of(self, reader: str, size: int) -> bytes:
        """The text of about `size` bytes, as the reader takes it."""
        count = max(1, (size - len(self.before) - len(self.after)) // len(self.part.encode()))
        if "{i}" in self.part:
            text, i = "", 0
            pieces = []
            length = 0
            while length < size:
                pieces.append(self.part.replace("{i}", str(i)))
                length, i = length + len(pieces[-1]), i + 1
            text = "".join(pieces)
        else:
            text = self.part * count
        body = f"{self.before}{text}{self.after}".encode()
        if reader.startswith("responses"):
            return wire(400, body)
        if reader == "headers":
            line = body.replace(b"\r", b" ").replace(b"\n", b" ")
            return HEADER + b"Retry-After: " + line + b"\r\ncontent-type: text/html; charset=" + line + b"\r\n\r\n"
        return body

    def shown(self) -> str:
        return f"{self.before!r} + {self.part!r} x n + {self.after!r}"


def worst_texts(reader: Reader) -> Iterable[Worst]:
    """The worst texts known for a reader."""
    replies = (("", "x"), ("[", ""), ('{"1":"', '"}'))
    if reader.name in WORST:
        parts, frames = WORST[reader.name]
    elif reader.name.startswith("responses"):
        parts, frames = JSON + TEXTS, (("", ""), ('{"error":{"message":"', '"}}'), ('{"choices":[', "]}"))
    elif reader.name == "headers":
        parts, frames = NUMBERS + TEXTS, (("", "x"), ("Mon, 01 ", ""))
    elif reader.seeds and reader.seeds[0][:1] in (b"{", b"[") and reader.name not in REPLIES:
        parts, frames = JSON, (("", ""), ("[", "]"), ('{"id":1,"text":"', '"}'))
    else:
        parts, frames = TEXTS, replies
    for part in parts:
        for before, after in frames:
            yield Worst(before, part.replace('"', '\\"') if before.endswith('":"') and '"' in part else part, after)


@dataclass
class Row:
    """The times of a reader on one of its worst texts; `ended` where a deadline of its own ended it."""

    reader: str
    text: str
    sizes: list[int]
    seconds: list[float]
    ended: str | None = None

    @property
    def ratio(self) -> float:
        """The largest growth for twice the text, of times long enough to be compared."""
        pairs = list(zip(self.seconds, self.seconds[1:], strict=False))
        return max((after / before for before, after in pairs if before >= NOISE), default=0.0)


def timed(reader: Reader, data: bytes) -> tuple[float, str | None]:
    """The seconds of a reader, the better of two tries, and what ended it."""
    best, ended = float("inf"), None
    for _ in range(2):
        _, error, seconds = tried(reader, data, LONGEST)
        if isinstance(error, TooSlowError) or "Timeout" in type(error).__name__:
            return seconds, type(error).__name__
        best = min(best, seconds)
        if seconds > 0.3:
            break
    return best, ended


def measured(
    reader: Reader, largest: int = 4 * MB, screened: int = SCREENED, budget: float = float("inf")
) -> list[Row]:
    """The rows of a reader's slowest text, and of the one whose time grows the most; in about `budget` seconds."""
    largest = min(largest, LIMITS.get(reader.name, largest))
    small: list[tuple[float, float, Worst]] = []
    size = min(screened, largest // 8)
    for worst in worst_texts(reader):
        part, whole = (
            min(tried(reader, worst.of(reader.name, n), LONGEST)[2] for _ in "12") for n in (size // 4, size)
        )
        small.append((whole, whole / max(part, 1e-4), worst))
    most_seconds, _, slowest = max(small, key=lambda one: one[0])
    while largest > 4 * screened and 2 * most_seconds * largest / size > budget:
        largest //= 2
    steepest = max(small, key=lambda one: one[1])[2]
    rows: list[Row] = []
    for worst, most in dict.fromkeys(((slowest, largest), (steepest, largest // 4))):
        row = Row(reader.name, worst.shown(), [], [])
        for size in (most // 4, most // 2, most):
            seconds, ended = timed(reader, worst.of(reader.name, size))
            row.sizes.append(size)
            row.seconds.append(seconds)
            row.ended = row.ended or ended
            if ended:
                break
        rows.append(row)
    return rows


def again(reader: Reader, row: Row) -> Row:
    """A row whose ratio is too high, timed once more: a busy machine may take its time once."""
    worst = next(one for one in worst_texts(reader) if one.shown() == row.text)
    seconds = [
        min(old, timed(reader, worst.of(reader.name, size))[0])
        for old, size in zip(row.seconds, row.sizes, strict=True)
    ]
    return Row(row.reader, row.text, row.sizes, seconds, row.ended)


def table(rows: Sequence[Row]) -> str:
    """The slowest text of each reader as Markdown."""
    lines = [
        "| reader | worst text | size | seconds at a quarter, half, all | largest ratio |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        times = ", ".join(f"{one:.2f}" for one in row.seconds) + (f" ({row.ended})" if row.ended else "")
        text = re.sub(r"[|`]", lambda found: f"&#{ord(found[0])};", row.text)
        lines.append(f"| {row.reader} | {text} | {row.sizes[-1] / MB:g} MB | {times} | {row.ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=4.0, help="megabytes of the largest text")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for the slowest text of a reader")
    parser.add_argument("--screened", type=int, default=SCREENED, help="bytes of a text in the first round")
    parser.add_argument("--reader", action="append", default=[], help="only readers with this in their name")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "fuzz")
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    kept: list[Row] = []
    everything: list[Row] = []
    try:
        for reader in readers(options.reader):
            if reader.name in SKIPPED:
                continue
            began = time.monotonic()
            rows = measured(reader, int(options.largest * MB), options.screened, options.budget)
            rows = [again(reader, row) if row.ratio > MOST_RATIO else row for row in rows]
            rows.sort(key=lambda row: (-(row.ratio > MOST_RATIO), -row.seconds[-1]))
            everything += rows
            kept += rows[:1]
            print(table(rows[:1]).splitlines()[2], f"({time.monotonic() - began:.0f} s)", flush=True)
            (options.out / "linear.md").write_text(table(kept))
            (options.out / "linear.json").write_text(json.dumps([asdict(row) for row in everything], indent=1) + "\n")
    finally:
        file_readers.clean_up()
        wire_readers.WORKERS.close()
    print(table(kept))
    return 1 if any(row.ratio > MOST_RATIO for row in everything) else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads and loops of clients are left behind
