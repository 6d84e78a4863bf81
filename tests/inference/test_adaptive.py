"""Which questions are next, and how sure labels are: on small arrays whose answers are plain."""

from __future__ import annotations

import numpy as np
import pytest

from fcjax.inference.adaptive import APART, FIRST, OPEN, Moves, Pairs, beliefs, chosen, outlook

QUIET, LOUD = (0.001, 0.001, 0.998), (0.6, 0.1, 0.3)


def grid(atoms, contexts, loud=()):
    """Every context with every atom; of the pairs (context, atom) in `loud`, an answer is expected."""
    source, target = np.repeat(np.arange(contexts), atoms), np.tile(np.arange(atoms), contexts)
    q = np.array([LOUD if (j, i) in loud else QUIET for j, i in zip(source, target, strict=True)])
    return Pairs(source, target, q[None], np.ones(1))


def at(pairs, now, held=(), loss=()):
    n = len(pairs.source)
    step = np.full(n, 2.1)
    return Moves(np.array(now, float), step, -step, np.array(held, np.int64).reshape(-1, 2), np.array(loss, float))


def unasked(pairs):
    return np.full(len(pairs.source), OPEN)


def test_an_answer_that_is_expected_is_asked_for_first():
    pairs = grid(2, 6, loud={(4, 0), (2, 1)})
    found = outlook(pairs, at(pairs, [0, 0]), unasked(pairs))
    first = chosen(pairs, found, unasked(pairs), 0.99, pack=1)
    assert {(4, 0), (2, 1)} <= {(int(pairs.source[p]), int(pairs.target[p])) for (p,) in first}
    assert first[0] in ([4 * 2], [2 * 2 + 1])


def test_a_settled_atom_is_not_asked_about_and_every_atom_is_read_for_a_few_times():
    pairs, answers = grid(1, 8), np.full(8, OPEN)
    answers[:FIRST] = 2
    found = outlook(pairs, at(pairs, [0.0]), answers)
    assert found.settled[0] > 0.97
    assert chosen(pairs, found, answers, 0.95, pack=1) == []
    answers[FIRST - 1] = OPEN
    assert chosen(pairs, outlook(pairs, at(pairs, [0.0]), answers), answers, 0.5, pack=1) != []
    answers[:] = 2
    assert outlook(pairs, at(pairs, [0.0]), answers).settled[0] == pytest.approx(1)
    assert chosen(pairs, found, answers, 1.0, pack=1) == []


def test_a_prompt_has_pairs_of_one_passage_and_no_more_than_its_place():
    pairs = grid(5, 4, loud={(1, i) for i in range(5)} | {(3, 0)})
    found = outlook(pairs, at(pairs, [0.0] * 5), unasked(pairs))
    prompts = chosen(pairs, found, unasked(pairs), 0.99, pack=3)
    assert prompts
    for group in prompts:
        assert len(group) <= 3
        assert len({int(pairs.source[place]) for place in group}) == 1
    assert pairs.source[prompts[0][0]] == 1  # most may be said there
    assert chosen(pairs, found, unasked(pairs), 0.99, pack=3, most=0) == []
    assert len(chosen(pairs, found, unasked(pairs), 0.99, pack=1, most=1)) == 1


def test_an_opinion_that_foretells_nothing_is_not_believed():
    pairs = grid(2, 12)
    before = outlook(pairs, at(pairs, [0, 0]), unasked(pairs)).settled
    answers = unasked(pairs)
    answers[:6] = 0  # entailments, where nothing was to be said
    weight = beliefs(pairs, 2, answers)
    assert weight.sum(axis=0) == pytest.approx([1, 1])
    assert weight[-1] == pytest.approx([1, 1], abs=1e-3)  # all that counts is that nothing is known
    after = outlook(pairs, at(pairs, [2.1, 2.1]), answers)
    assert (after.settled < before).all()
    assert (after.telling[6:] > 0.6).all()
    answers[:6] = APART  # the opinion's own answers say nothing of it
    assert beliefs(pairs, 2, answers)[-1] == pytest.approx([0.01, 0.01])


def test_a_relation_that_may_lose_its_force_leaves_a_label_less_sure():
    pairs = grid(2, 2, loud={(0, 0), (0, 1)})
    answers = unasked(pairs)
    answers[0] = 0  # context 0 entails atom 0, and may yet contradict atom 1, which is held to be true
    sure = outlook(pairs, at(pairs, [0.3, 4.0]), answers).settled[0]
    shaken = outlook(pairs, at(pairs, [0.3, 4.0], held=[(0, 0)], loss=[-0.9]), answers).settled[0]
    assert sure - shaken == pytest.approx(0.1, abs=0.03)
