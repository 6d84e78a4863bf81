"""Every reader of answers, on the worst texts known: nothing raises, and time grows as the text does."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcjax.core.prompts import Reply
from fcjax.correction.verdicts import Vocabulary
from fcjax.stages.falsify import _between_tags
from fcjax.stages.parsing.json_like import ends_in_bracket, is_cut
from fcjax.stages.parsing.labels import read_label, read_labels
from fcjax.stages.parsing.list_parser import own_words, read_fields, read_list, read_numbered
from fcjax.stages.parsing.refusals import declines
from fcjax.stages.summarise import _confidence, read_summary

VERDICTS = Vocabulary({"same": ("same", "the same"), "different": ("different", "not same")})

READERS = {
    "read_label": read_label,
    "read_labels": lambda text: read_labels(text, 5),
    "read_list": read_list,
    "read_numbered": lambda text: read_numbered(text, 5),
    "read_fields": lambda text: read_fields(text, ("summary",)),
    "own_words": lambda text: own_words(text, "x" * 40),
    "read_summary": lambda text: read_summary(Reply(text=text)),
    "confidence": _confidence,
    "between_tags": _between_tags,
    "is_cut": is_cut,
    "ends_in_bracket": ends_in_bracket,
    "declines": declines,
    "verdict": VERDICTS.read,
    "verdicts": lambda text: VERDICTS.read_numbered(text, 5),
}

UNITS = (
    *(" ", "\n", "\t", "a", "1", "-", "_", "*", "`", "\\", '"', "'", "“", "”", "«", "[", "{", "(", "<", "|", ">", "#"),
    *("1. ", "1. a\n", "- a\n", "| a ", "---|", "[]", "{}", '{"a":', '["a",', '"\\', '", "', "“”", "1,", "1e", "a:"),
    *("[neutral] ", "neutral or ", "neutral\n", '"[neutral] x"', "“neutral ”", '"neutral', "not ", "label: ", "final "),
    *("<premise>", "<claims></claims>", "<think>", "</think>", "<wrong>", "</wrong>", "summary: ", "confidence: 1\n"),
    *("[same] ", "the same or ", "verdict ", "\\boxed{", "\\n", "é", "\u3000", "irrelevant ", '{"1":"neutral"},'),
)  # fmt: skip
FRAMES = (("", "x"), ("[", ""), ('{"1":"', '"}'))
BASE = 2_000  # characters


def seconds(read, text):
    began = time.process_time()
    read(text)
    return time.process_time() - began


@pytest.mark.parametrize("name", READERS)
def test_readers_are_linear_in_the_worst_texts(name):
    read = READERS[name]
    for unit in UNITS:
        for before, after in FRAMES:
            small, large = (before + unit * (size // len(unit)) + after for size in (BASE, 8 * BASE))
            spent = seconds(read, small)
            # Eight times the text in eight times the time, with room for noise; a quadratic reader takes 64 times.
            # A busy machine may take its time once, not four times.
            assert any(seconds(read, large) < 0.15 + 24 * spent for _ in range(4)), (unit, before)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(text=st.text(max_size=300) | st.lists(st.sampled_from(UNITS), max_size=40).map("".join))
def test_any_text_is_read(name, text):
    READERS[name](text)
