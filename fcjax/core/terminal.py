"""The one function through which text from outside reaches a terminal, a log line or a table."""

from __future__ import annotations

import re
from typing import Final

# C0 and C1, DEL, line and paragraph separators, and what turns the direction of the text around it.
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str, keep: str = "") -> str:
    """`text` with control characters as escapes that can be seen, such as `\\x1b`, except for those in `keep`.

    Without them a terminal would obey: move the cursor, write to the clipboard, show a line that is not there.
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
