"""Batches of few shapes, windows of long passages, and pairs put together from ids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.encoders.batches import batches, bucket
from fcjax.encoders.windows import nearest, spans


@given(st.lists(st.integers(1, 512), max_size=300), st.sampled_from([1, 512, 4096]), st.sampled_from([512, 500, 600]))
def test_every_row_is_in_one_batch_that_holds_it(lengths, tokens, longest):
    lengths = [min(length, longest) for length in lengths]
    made = batches(lengths, tokens, longest)
    assert sorted(place for batch in made for place in batch.places) == list(range(len(lengths)))
    for batch in made:
        assert 0 < len(batch.places) <= batch.rows
        assert all(lengths[place] <= batch.length <= longest for place in batch.places)
    assert {batch.rows for batch in made if batch.length == 512} <= {max(1, tokens // 512)}  # one shape per length
    assert len({(batch.rows, batch.length) for batch in made}) == len({batch.length for batch in made})


@given(st.lists(st.integers(17, 512), min_size=200, max_size=900))
def test_little_is_padding(lengths):
    swept = sum(batch.rows * batch.length for batch in batches(lengths, 1024, 512))
    spare = sum(1024 for _ in {bucket(length, 512) for length in lengths})  # the last batch of each length
    assert swept <= 2 * sum(lengths) + spare


@given(st.lists(st.integers(1, 300), min_size=1, max_size=200), st.integers(1, 9))
def test_rows_can_be_shared_by_all_devices(lengths, devices):
    made = batches(lengths, 4096, 300, devices)
    assert all(batch.rows % devices == 0 for batch in made)
    assert sorted(place for batch in made for place in batch.places) == list(range(len(lengths)))


def test_a_row_that_fits_no_length_has_the_longest():
    assert bucket(510, 510) == 510
    assert bucket(400, 510) == 510
    assert bucket(30, 510) == 32


@given(st.integers(1, 3000), st.integers(1, 512))
def test_windows_cover_the_passage_and_overlap(length, size):
    places = spans(length, size)
    assert places[0][0] == 0
    assert places[-1][1] == length
    assert all(end - start == min(size, length) for start, end in places)
    for (_, end), (start, _) in itertools.pairwise(places):
        assert end - start >= size // 2


def test_the_window_with_the_rare_words_of_the_claim_is_nearest():
    filler = np.tile(np.arange(10, 20, dtype=np.int32), 60)
    passage = filler.copy()
    passage[400:403] = (7, 8, 9)
    start, end = nearest(passage, np.array([10, 11, 7, 8, 9], np.int32), 128)
    assert start <= 400
    assert end >= 403
    assert nearest(passage, np.array([99], np.int32), 128) == (0, 128)
    assert nearest(passage[:50], np.array([7], np.int32), 128) == (0, 50)


@pytest.mark.parametrize("size", [16, 128])
def test_the_first_of_equal_windows_is_taken(size):
    assert nearest(np.zeros(600, np.int32), np.zeros(4, np.int32), size) == (0, size)
