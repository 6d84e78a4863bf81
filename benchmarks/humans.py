"""The critic's labels against human labels, as the tables of docs/evaluate.md: `python benchmarks/humans.py`.

The relations are given (human stances), so that only the inference is measured, without a model. The tables hold
numbers only, none of the texts.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from fcjax.evaluation.label_study import agreements, table, three_way_table
from fcjax.io.files import read_cases

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT.parent / "shared" / "cases" / "factcheck_gpt.jsonl"
PAGE = ROOT / "docs" / "evaluate.md"
PLACE = re.compile(r"(?<=<!-- humans: begin -->\n).*?(?=<!-- humans: end -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="?", default=CASES, help="cases with relations and human labels")
    parser.add_argument("--page", type=Path, default=PAGE, help="page of the tables, between two marks; - prints them")
    chosen = parser.parse_args()
    if not chosen.cases.is_file():
        print(f"{chosen.cases}: no such file; {chosen.page} is unchanged", file=sys.stderr)
        return 0
    cases = [row.value for row in read_cases(chosen.cases) if row.value is not None]
    found = agreements(cases)
    text = "\n" + table(found).markdown() + "\n" + three_way_table(found).markdown() + "\n"
    if str(chosen.page) == "-":
        print(text.strip())
        return 0
    page = chosen.page.read_text(encoding="utf-8")
    if not PLACE.search(page):
        print(f"{chosen.page}: lacks the marks <!-- humans: begin --> and <!-- humans: end -->", file=sys.stderr)
        return 1
    chosen.page.write_text(PLACE.sub(lambda _: text, page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
