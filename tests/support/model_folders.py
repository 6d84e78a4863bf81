"""Tiny folders of encoders, laid out as on Hugging Face's hub: random weights, and a tokenizer of a few words.

The tokenizer has a token per word and per number of the scripted model's world, and for other words its letters.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file
from scripted_model import THINGS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fcjax.encoders.network import Network

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("town", "has", "it", "guide", "says", "so", "the", "tower", "is", "high", "not", "no", "yes", *THINGS)
LABELS = ("entailment", "neutral", "contradiction")


def vocabulary() -> dict[str, int]:
    """The tokens by text: words, numbers to 99, letters, and parts of words."""
    letters = [*string.ascii_lowercase, *string.digits, *".,:;!?'()-"]
    tokens = (*SPECIAL, *WORDS, *map(str, range(10, 100)), *letters, *(f"##{one}" for one in letters[:36]))
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def tokenizer(*, cuts: bool = False, pairs: bool = True) -> Tokenizer:
    """A WordPiece tokenizer; with `cuts` it pads and cuts at 128, without `pairs` it puts nothing around texts."""
    known = vocabulary()
    made = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    if pairs:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, known[name]) for name in ("[CLS]", "[SEP]")],
        )
    if cuts:
        made.enable_truncation(128)
        made.enable_padding(length=128)
    return made


def config_of(labels=LABELS, *, hidden=16, layers=2, positions=512, **more: Any) -> dict[str, Any]:
    """A BERT's config.json."""
    return {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": len(vocabulary()),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden,
        "max_position_embeddings": positions,
        "pad_token_id": 0,
        "initializer_range": 0.5,  # so that what a random model says depends on the texts
        "id2label": {str(number): label for number, label in enumerate(labels)},
        **more,
    }


def weights_of(config: dict[str, Any], seed: int = 0, *, head: bool = True) -> dict[str, np.ndarray]:
    """Random weights, float32; without `head` those of an encoder alone."""
    from fcjax.encoders.config import read_config

    chance = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for name, shape in _shapes(read_config(config), config).items():
        if name.endswith("LayerNorm.weight"):
            tensors[name] = np.ones(shape, np.float32)
        else:
            deviation = 0.02 if name.endswith("bias") else config["initializer_range"]
            tensors[name] = (deviation * chance.standard_normal(shape)).astype(np.float32)
    made = Network.of({**config, "architectures": ["BertModel"]}, tensors)
    return (made.with_head(len(config["id2label"]), seed=seed) if head else made).tensors()


def _shapes(architecture: Any, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    norms = ["embeddings"]
    for layer in range(architecture.layers):
        place = f"encoder.layer.{layer}"
        dense = {f"{place}.attention.self.{one}": (hidden, hidden) for one in ("query", "key", "value")}
        dense[f"{place}.attention.output.dense"] = (hidden, hidden)
        dense |= {f"{place}.intermediate.dense": (inner, hidden), f"{place}.output.dense": (hidden, inner)}
        for name, shape in dense.items():
            found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        norms += [f"{place}.attention.output", f"{place}.output"]
    for place in norms:
        found |= {f"{place}.LayerNorm.{one}": (hidden,) for one in ("weight", "bias")}
    return found


def write_folder(
    folder: Path,
    *,
    labels=LABELS,
    seed: int = 0,
    head: bool = True,
    cuts: bool = False,
    pairs: bool = True,
    dtype: str = "float32",
    shards: int = 1,
    change: Any = None,
    calibration: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Write a folder with a model of three labels, or as the options say; `change` changes its tensors in place."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = config_of(labels, **config)
    tensors = weights_of(settings, seed, head=head)
    if not head:
        settings["architectures"] = ["BertModel"]
        del settings["id2label"]
    kind = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    tensors = {name: np.ascontiguousarray(tensor.astype(kind)) for name, tensor in tensors.items()}
    if change is not None:
        change(tensors)
    (folder / "config.json").write_text(json.dumps(settings))
    tokenizer(cuts=cuts, pairs=pairs).save(str(folder / "tokenizer.json"))
    if shards == 1:
        save_file(tensors, folder / WEIGHTS)
    else:
        place = {name: f"model-{number % shards + 1:05d}.safetensors" for number, name in enumerate(sorted(tensors))}
        for file in set(place.values()):
            save_file({name: tensors[name] for name in tensors if place[name] == file}, folder / file)
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": place}))
    if calibration is not None:
        (folder / "calibration.json").write_text(json.dumps(calibration))
    return folder


def tensors_in(folder: Path) -> dict[str, np.ndarray]:
    """The weights in a folder's one file."""
    return load_file(folder / WEIGHTS)
