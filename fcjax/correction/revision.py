"""Revised responses from a model: how a response is quoted for rewriting, and how a rewritten one is read.

A reply that cannot be a response (empty, a refusal, an echo of the prompt or the feedback) gives a reason instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from fcjax.core.prompts import Prompt, Reply
from fcjax.core.words import mended
from fcjax.stages.answers import Ask, Reject, answers_to
from fcjax.stages.parsing.refusals import declines

ANSWER: Final = """\
Answer with the response alone, complete, in this form, and with nothing before or after it:
<revised>
...
</revised>"""
"""The end of every template that asks for a rewritten response."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A rewritten response, or why there is none."""

    text: str | None
    why: str = ""


def editable(text: str) -> str:
    """A text for rewriting: its lines without invisible characters, and with `&lt;` for `<`."""
    lines = ("".join(sign for sign in line if _is_seen(sign)) for line in text.splitlines())
    return "\n".join(lines).replace("<", "&lt;").strip("\n")


def _is_seen(sign: str) -> bool:
    return sign in "\t\u200c\u200d" or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Cn")


async def revision(
    prompt: Prompt, response: str, ask: Ask, reject: Reject | None = None, *, statements: Collection[str] = ()
) -> Revision:
    """The revision of `response` that a model writes for `prompt`; `statements` are those of the feedback in it.

    After a reply that cannot be a response, the model is asked once more with the reason, then sampled afresh once.
    """
    faults = ["the answer is too long"]  # of each reply that was read; longer ones are not
    known = {_bare(statement) for statement in statements}

    def read(reply: Reply) -> dict[int, str]:
        text = read_revision(mended(reply.text), response, cut=reply.finish == "length")
        fault = _fault(text, response, prompt, known, cut=reply.finish == "length")
        if not text and _TAG.search(reply.text):
            fault = "the answer repeats the prompt"
        faults.append(fault)
        return {} if fault else {0: text}

    def request(missing: Sequence[int]) -> str:
        return f"That cannot be used: {faults[-1]}. Do again what was asked.\n\n{ANSWER}"

    asked = await answers_to(prompt, 1, read, request, ask, reject, what="response")
    if asked.answers:
        return Revision(asked.answers[0])
    return Revision(None, f"unreadable: {faults[-1]}" if asked.why.startswith("unreadable: ") else asked.why)


def read_revision(text: str, response: str, cut: bool = False) -> str:
    """The rewritten `response` in an answer, without tags, fences and remarks; empty if there is none.

    An answer that is `cut` off has none unless it has a closing tag.
    """
    text = text.rpartition("</think>")[2]
    pieces = _OPENING.split(text)
    if len(pieces) > 1:
        closed = [piece for piece in pieces[1:] if _CLOSING.search(piece)]
        if closed or not cut:
            text = _CLOSING.split((closed or pieces)[-1])[0]
        else:
            return ""
    elif cut:
        return ""
    elif (start := _postscript(text)) is not None and _postscript(f"\n\n{response}") is None:
        text = text[:start]
    text = _unfenced(text.strip())
    if match := _PREAMBLE.match(text[:_HEAD]):
        text = _unfenced(text[match.end() :].strip())
    if "&lt;" not in response:
        text = text.replace("&lt;", "<")
    quotes = text[:1] + text[-1:]
    if quotes in ('""', "“”", "«»") and len(text) > 2 and quotes != response[:1] + response[-1:]:
        inner = text[1:-1].strip()
        text = text if quotes[0] in inner or quotes[1] in inner else inner
    return "" if text in ("...", "…") else text


_OPENING: Final = re.compile(r"<\s*revised\s*>", re.IGNORECASE)
_CLOSING: Final = re.compile(r"<\s*/\s*revised\s*>", re.IGNORECASE)
_FENCE: Final = re.compile(r"(`{3,}+|~{3,}+)[^\n`]*+\n")
_HEAD: Final = 1000  # characters of a text that a preamble may have; its pattern takes the square of their time
_ABOUT: Final = r"(?:revised|corrected|rewritten|updated|improved|final|new)"
_THING: Final = r"(?:response|answer|version|text|output)"
_PREAMBLE: Final = re.compile(
    rf"\A(?:(?:sure|certainly|of course|okay|ok)[!,.:]\s*+)?(?:[#*_\s]*+(?:here(?:['’]s| is| are)\b[^\n:]{{0,120}}"
    rf"\b(?:{_ABOUT}|{_THING})\b[^\n:]{{0,80}}|(?:the )?{_ABOUT}\s+{_THING})\s*+[*_]*+\s*+:[*_]*|"
    rf"#+\s*(?:the )?{_ABOUT}\s+{_THING}\s*\n)\s*",
    re.IGNORECASE,
)
_POSTSCRIPT: Final = re.compile(
    r"(?<![-–—*_#\s])([-–—*_#\s]++)"
    r"(?:\(?(?:i|we)(?:['’]ve| have)? (?:also )?(?:changed|corrected|removed|revised|rewrote|updated|"
    r"replaced|fixed|adjusted)\b|(?:note|explanation|rationale|(?:summary of )?(?:the )?changes(?: made)?) ?[*_]*:)",
    re.IGNORECASE,
)
"""A remark of the model on its work, below a response without tags, and what stands between the two."""
_EMPTY_LINE: Final = re.compile(r"\n\s*\n")


def _postscript(text: str) -> int | None:
    """Where a remark begins: at an empty line with nothing but marks between it and the remark's words."""
    for match in _POSTSCRIPT.finditer(text):
        if line := _EMPTY_LINE.search(text, *match.span(1)):
            return line.start()
    return None


def _unfenced(text: str) -> str:
    """The text inside a fence that surrounds all of it."""
    opening = _FENCE.match(text)
    if not opening:
        return text
    body, mark = text[opening.end() :].rstrip(), opening[1]
    size = min(len(mark), len(body) - len(body.rstrip(mark[0])))
    if size < (3 if mark[0] == "~" else len(mark)):  # a longer fence of tildes may be closed by a shorter one
        return text
    inner = body[:-size].removesuffix("\n")
    return inner.strip() if mark[:size] not in inner else text


# Replies that cannot be a response


def _fault(text: str, response: str, prompt: Prompt, statements: Collection[str], cut: bool) -> str:
    """Why a text cannot be a response; empty if it can."""
    if cut and not text:
        return "the answer was cut off before its end"
    if not any(sign.isalnum() for sign in text):
        return "the answer is empty"
    if is_refusal(text) and not is_refusal(response):
        return "the answer is a refusal"
    asked = {_bare(line) for line in _MATERIAL.sub("", prompt.messages[-1][1]).splitlines() if len(line) >= _TELLING}
    lines = [_bare(line) for line in text.splitlines() if any(sign.isalnum() for sign in line)]
    own = _lines(response)
    echoed = sum(line in asked for line in lines if line not in own)
    if echoed > len(lines) / 2 or (_TAG.search(text) and not _TAG.search(response)):
        return "the answer repeats the prompt"
    if any(_SCAFFOLD.search(line) and line not in own for line in lines) or (
        set(lines) <= set(statements) and not set(lines) <= own
    ):
        return "the answer repeats the feedback"
    if _VERDICT.match(text) and not _VERDICT.match(response):
        return "the answer is about the response, and is none"
    return ""


def is_refusal(text: str) -> bool:
    """Whether a text is nothing but a refusal to do what was asked."""
    if declines(text):
        return True
    return len(text) <= _LONGEST_REFUSAL and bool(_REFUSAL.match(text) or _WILL_NOT.match(text))


_LONGEST_REFUSAL: Final = 600
_REFUSAL: Final = re.compile(
    r"\W*(?:(?:i['’]m|i am) (?:really |very |so )?sorry\b|sorry,|i apologi[sz]e|as an ai\b|(?:es )?tut mir leid\b|"
    r"ich kann (?:ihnen |dir )?(?:dabei |das )?(?:leider )?nicht|(?:je suis )?désolée?\b|je ne peux pas\b|lo siento\b|"
    r"no puedo\b|mi dispiace\b|non posso\b|desculpe\b|não posso\b|извините|抱歉|对不起|很抱歉|申し訳|すみません|죄송)",
    re.IGNORECASE,
)
_WILL_NOT: Final = re.compile(
    r"\W*(?:unfortunately,? |sadly,? )?i(?:['’]m| am)? (?:can(?:not| not|['’]t)|could(?: not|n['’]t)|won['’]t|will not|"
    r"(?:un|not )able to|(?:don['’]t|do not) feel comfortable|not comfortable|decline to|refuse to) (?:\w+ ){0,2}"
    r"(?:revis|rewrit|rephras|correct|edit|chang|modif|improv|fix)\w*\b",
    re.IGNORECASE,
)

_TELLING: Final = 30  # characters of a line that does not recur by chance
_TAG: Final = re.compile(r"</?\s*(?:question|response|false_statements|unverified_statements|passages)\s*>", re.I)
_MATERIAL: Final = re.compile(r"^<(\w+)>\n.*?\n</\1>$", re.DOTALL | re.MULTILINE)
_SCAFFOLD: Final = re.compile(
    r"^(?:probability of being true|contradicted by|entailed by|(?:false|unverified|refuted) statements)\b\s*:"
)
_VERDICT: Final = re.compile(
    r"\W*(?:the (?:(?:original |given |above )?(?:response|text)|(?:original|given|above) answer|"
    r"answer (?:contains|has|includes))\b|statement \d+\b|there (?:is|are)\b(?=[^.\n]*\b(?:response|answer|text)\b))"
    r"[^.\n]{0,80}\b(?:false|incorrect|inaccurate|unverified|not supported|errors?|mistakes?)\b",
    re.IGNORECASE,
)
_MARK: Final = re.compile(r"[\s>#*•\-–—]*(?:\(?\d{1,3}[.):]\s*)?")
_ENDS: Final = ".:;*_" + "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace())


def _bare(line: str) -> str:
    """A line without its number, bullet and end marks, in lower case, with single spaces."""
    return " ".join(_MARK.sub("", line, count=1).rstrip(_ENDS).casefold().replace("&lt;", "<").split())


def _lines(text: str) -> set[str]:
    return {_bare(line) for line in text.splitlines()}
