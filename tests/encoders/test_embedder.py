"""Embeddings of texts by a local encoder."""

from __future__ import annotations

import model_folders as tiny
import numpy as np
import pytest

from fcjax.core.errors import SettingsError
from fcjax.encoders.embedder import Embedder
from fcjax.encoders.network import Network

TEXTS = ["Town 1 has 12 parks.", "The tower is high.", "It is not so.", "no", "🗼 東京 \ud83d", "Guide 1 says so: yes."]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return Embedder.open(tiny.write_folder(tmp_path_factory.mktemp("models") / "encoder", head=False), length=64)


def test_embeddings_have_the_length_one_and_those_of_nothing_are_zero(embedder):
    made = embedder.embed([*TEXTS, "", " \n"])
    assert (made.shape, made.dtype) == ((8, 16), np.float32)
    assert np.linalg.norm(made[:6], axis=1) == pytest.approx(1, abs=1e-6)
    assert not made[6:].any()
    assert embedder.embed([]).shape == (0, 16)
    assert embedder.name.startswith("encoder@")


def test_equal_texts_are_embedded_once_and_order_has_no_effect(embedder, monkeypatch):
    first, seen, run = embedder.embed(TEXTS), [], Network.embed

    def counted(self, ids, mask, types):
        seen.append(int(mask.any(axis=1).sum()))
        return run(self, ids, mask, types)

    monkeypatch.setattr(Network, "embed", counted)
    assert np.array_equal(embedder.embed([*TEXTS[::-1], *TEXTS]), np.concatenate([first[::-1], first]))
    assert sum(seen) == len(TEXTS)
    for place, text in enumerate(TEXTS):
        assert np.array_equal(embedder.embed([text])[0], first[place])


def test_a_long_text_has_the_mean_of_its_windows(embedder):
    words = [f"{number % 90 + 10}" for number in range(150)]
    room = embedder.length - 2
    parts = [words[start : start + room] for start in (0, room // 2, room, 150 - room)]
    expected = embedder.embed([" ".join(part) for part in parts]).sum(axis=0)
    made = embedder.embed([" ".join(words)])[0]
    assert made == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)


@pytest.mark.parametrize("length", [15, 0, 1.5, None])
def test_lengths_out_of_range_are_refused(embedder, length):
    with pytest.raises(SettingsError, match="length"):
        Embedder.open(embedder.folder, length=length)
