"""Responses that only decline to answer, recognised by their English wording; other languages are left to a model."""

from __future__ import annotations

import re
from typing import Final


def declines(response: str) -> bool:
    """Whether a response only declines: it says that it cannot answer, and every sentence is about who answers and who
    asks. One that is long, has a number, or seems to say something all the same does not count."""
    if len(response) > _LONGEST or _TELLS.search(response) or not _CANNOT.search(response):
        return False
    return all(_ABOUT_US.match(sentence) for sentence in _SENTENCE.split(response) if sentence.strip())


_LONGEST: Final = 600  # characters
_SENTENCE: Final = re.compile(r"[.!?\n]+")
_TELLS: Final = re.compile(
    r"\d|\b(?:think|believe|recall|guess|suppose|know that|can (?:say|tell|confirm|share)|he|she|was|were|had)\b",
    re.IGNORECASE,
)
_CANNOT: Final = re.compile(
    r"\b(?:i|we)(?:['’](?:m|re)| am| are)?(?: \w+)? (?:"
    r"(?:can(?:not| not|['’]t)|could(?: not|n['’]t)|won['’]t|will not|(?:un|not )able to)(?: \w+)? (?:help|assist"
    r"|provide|answer|find|locate|comply|do (?:that|this|so)|fulfil|discuss|share|give|generate|create|write|support"
    r"|engage|verify|access|browse|tell|offer|respond|continue|identify|determine|complete|process|confirm)"
    r"|(?:do not|don['’]t) (?:know|(?:have|possess) (?:\w+[ -]){0,4}(?:information|info|access|data|details?|knowledge"
    r"|records?|sources?|answer|ability|abilities|capability|capabilities|opinions?|feelings?|beliefs?|experiences?))\b"
    r"|not (?:comfortable|allowed|permitted|familiar|aware)"
    r"|(?:must |have to )?(?:decline|refuse)\b)",
    re.IGNORECASE,
)
_ABOUT_US: Final = re.compile(
    r"\W*(?:(?:but|and|however|so|also|therefore)\W+)?(?:unfortunately|sorry|apologies|regrettably|please|thank you"
    r"|thanks|feel free|as an? (?:ai|(?:large )?language model)|is there|are there|if (?:you|there)|let (?:me|us)"
    r"|instead|(?:how|what) (?:else )?(?:can|may|could|would)|would you|i|we|you|your"
    r"|(?:my|our) (?:apologies|knowledge|training|data|information|sources|database|programming|purpose|goal|role"
    r"|guidelines|polic(?:y|ies)|abilities|capabilities))\b",
    re.IGNORECASE,
)
