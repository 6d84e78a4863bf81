"""Labelled pairs whose people answer by a known distribution, and a model whose distributions are distorted from it.

The distribution that the model gives stands in the hypothesis, so that a scripted server can read it there.
"""

from __future__ import annotations

import math
import re

import numpy as np

NAMES = ("entailment", "contradiction", "neutral")
TEMPERATURE, BIASES = 2.0, (-0.8, 1.2, -0.4)
"""What undoes the distortion."""
_SHOWN = re.compile(r"q = ([\d.e-]+), ([\d.e-]+), ([\d.e-]+)")


def distorted(n, seed=0, alpha=0.6):
    """The distributions of the model, float64 of shape (n, 3), and people's labels, drawn from the true ones."""
    generator = np.random.default_rng(seed)
    true = np.maximum(generator.dirichlet([alpha] * 3, n), 1e-5)
    true /= true.sum(axis=1, keepdims=True)
    labels = np.array([generator.choice(3, p=p) for p in true])
    raw = np.exp(TEMPERATURE * (np.log(true) - BIASES))
    return raw / raw.sum(axis=1, keepdims=True), labels


def pairs(n, seed=0, per_premise=2):
    """Rows with premise, hypothesis and label."""
    q, labels = distorted(n, seed)
    return [
        {
            "id": f"p{i}",
            "premise": f"premise {i // per_premise}",
            "hypothesis": "claim {} with q = {:.8f}, {:.8f}, {:.8f}".format(i, *q[i]),
            "label": NAMES[labels[i]],
        }
        for i in range(n)
    ]


def answer(messages):
    """The model's answer to a question in the pairwise wording, with logprobs."""
    text = re.search(r"<hypothesis>\n(.*?)\n</hypothesis>", messages[0]["content"], re.DOTALL)[1]
    q = [max(float(p), 1e-8) for p in _SHOWN.search(text).groups()]
    best = max(range(3), key=lambda i: q[i])
    top = [(name, math.log(p)) for name, p in zip(NAMES, q, strict=True)]
    tokens = [("[", -1e-6, []), (NAMES[best], math.log(q[best]), top), ("]", -1e-6, [])]
    return {"text": f"[{NAMES[best]}]", "tokens": tokens}
