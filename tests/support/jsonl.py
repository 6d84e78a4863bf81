"""JSON Lines in tests: rows of dictionaries, or of lines as they are, written and read back."""

from __future__ import annotations

import json


def write(path, *cases):
    path.write_text("".join((c if isinstance(c, str) else json.dumps(c)) + "\n" for c in cases))
    return path


def rows_in(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]
