"""The encoders beside transformers: logits and features of random small models of every family, and of real folders.

    python -P benchmarks/encoder_parity.py --torch OTHER/bin/python [--folder MODEL ...] [--golden FOLDER]

transformers and torch live in an environment of their own, whose interpreter `--torch` names; this script runs itself
there for the reference. It prints the worst differences and exits with 1 where one is over 1e-4. `--folder` compares a
real model layer by layer; `--golden` writes the fixtures of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-4
SEED = 14
VOCABULARY = 90
GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "encoders"
THREADS = 2


def cases(size: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """The models by name: the class of transformers and the keywords of its configuration.

    Inputs are longer than the local windows and than what the buckets of relative positions tell apart.
    """
    tiny = size == "golden"
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16 if tiny else 48,
        "num_hidden_layers": 3 if tiny else 4,
        "num_attention_heads": 2 if tiny else 4,
        "intermediate_size": 24 if tiny else 80,
        "num_labels": 3,
        "max_position_embeddings": 64,
    }
    v3 = {
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
    }
    roberta = {"max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
    modern = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    found = {
        "bert": ("BertForSequenceClassification", {}),
        "bert-alone": ("BertModel", {"hidden_act": "gelu_new"}),
        "roberta": ("RobertaForSequenceClassification", roberta),
        "xlm-roberta": ("XLMRobertaForSequenceClassification", {**roberta, "pad_token_id": 3, "num_labels": 2}),
        "deberta-v3": ("DebertaV2ForSequenceClassification", v3),
        "deberta-v2-conv": (
            "DebertaV2ForSequenceClassification",
            {**v3, "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2, "embedding_size": 8},
        ),
        "deberta-v2-apart": (
            "DebertaV2ForSequenceClassification",
            {
                "relative_attention": True,
                "max_relative_positions": 12,
                "pos_att_type": ["c2p", "p2c"],
                "position_biased_input": True,
                "type_vocab_size": 2,
            },
        ),
        "deberta-v2-c2p": (
            "DebertaV2ForSequenceClassification",
            {"relative_attention": True, "position_buckets": 6, "pos_att_type": ["c2p"], "type_vocab_size": 2},
        ),
        "modernbert": ("ModernBertForSequenceClassification", {**modern, "local_attention": 8}),
        "modernbert-mean": (
            "ModernBertForSequenceClassification",
            {
                **modern,
                "local_attention": 6,
                "global_attn_every_n_layers": 2,
                "classifier_pooling": "mean",
                "attention_bias": True,
                "mlp_bias": True,
                "norm_bias": True,
                "classifier_bias": True,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                },
            },
        ),
    }
    return {name: (kind, {**common, **own}) for name, (kind, own) in found.items()}


def inputs(pad: int, types: int, vocabulary: int, length: int = 56) -> dict[str, np.ndarray]:
    """Rows of several lengths, the last of one token, with segment types where the model has them."""
    chance = np.random.default_rng(SEED)
    lengths = np.array([length, length - 1, length // 2, 7, 2, 1])
    ids = chance.integers(5, vocabulary, (len(lengths), length)).astype(np.int32)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    second = (np.arange(length) >= lengths[:, None] // 2) & (mask > 0)
    return {
        "ids": np.where(mask > 0, ids, pad).astype(np.int32),
        "mask": mask,
        "types": (second if types > 1 else np.zeros_like(mask)).astype(np.int32),
    }


# ---- the other environment


def answer(model: Any, data: dict[str, np.ndarray], types: bool) -> dict[str, np.ndarray]:
    """What transformers answers: logits where the model has a head, and the features after each layer."""
    import torch

    given = {"input_ids": torch.tensor(data["ids"]).long(), "attention_mask": torch.tensor(data["mask"]).long()}
    if types:
        given["token_type_ids"] = torch.tensor(data["types"]).long()
    with torch.no_grad():
        out = model.eval()(**given, output_hidden_states=True)
    found = {"every_hidden": torch.stack(out.hidden_states).numpy()}
    if "logits" in out:
        found["logits"] = out.logits.numpy()
    else:
        found["hidden"] = out.last_hidden_state.numpy()
    return found


def refer(job: dict[str, Any], folder: Path) -> None:
    """Make the models with transformers, and write each with its inputs and its answers."""
    import torch
    import transformers

    torch.set_num_threads(THREADS)
    (folder / "version.json").write_text(
        json.dumps(f"transformers {transformers.__version__}, torch {torch.__version__}")
    )
    for name, (kind, keywords) in cases(job["size"]).items():
        torch.manual_seed(SEED)
        cls = getattr(transformers, kind)
        model = cls(cls.config_class(**keywords, attn_implementation="eager"))
        with torch.no_grad():
            for weight in model.parameters():  # in half precision, so that the fixtures are small
                weight.copy_((weight * (weight.dim() == 1) + 0.2 * torch.randn_like(weight)).half().float())
        model.save_pretrained(folder / name)
        config = model.config
        types = getattr(config, "type_vocab_size", 0)
        data = inputs(config.pad_token_id, types, VOCABULARY)
        np.savez(folder / name / "answers.npz", **data, **answer(model, data, types > 1))
    for name in job["written"]:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder / name, attn_implementation="eager"
        )
        types = getattr(model.config, "type_vocab_size", 0)
        data = inputs(model.config.pad_token_id, types, VOCABULARY)
        np.savez(folder / name / "answers.npz", **data, **answer(model, data, types > 1))
    for place in job["folders"]:
        model = transformers.AutoModel.from_pretrained(place, attn_implementation="eager")
        data = inputs(model.config.pad_token_id, 2, model.config.vocab_size, length=200)
        here = folder / Path(place).resolve().name
        here.mkdir()
        np.savez(here / "answers.npz", **data, **answer(model, data, "Bert" in type(model).__name__))


# ---- our own


def compare(folder: Path, model: Path) -> list[tuple[str, float]]:
    """The worst differences of one model, by what was compared. Features of padding mean nothing and are left out."""
    from safetensors.numpy import load_file

    from fcjax.encoders.network import Network

    network = Network.of(json.loads((model / "config.json").read_text()), load_file(model / "model.safetensors"))
    data = dict(np.load(folder / "answers.npz"))
    given = (data["ids"], data["mask"], data["types"])
    tokens = data["mask"] > 0
    worst = []
    if "logits" in data:
        worst.append(("logits", float(np.abs(np.asarray(network.logits(*given)) - data["logits"]).max())))
        again = Network.of(json.loads((model / "config.json").read_text()), network.tensors())
        worst.append(("logits, read again", float(np.abs(np.asarray(again.logits(*given)) - data["logits"]).max())))
    else:
        worst.append(("hidden", float(np.abs(np.asarray(network.hidden(*given)) - data["hidden"])[tokens].max())))
    ours = np.asarray(network.every_hidden(*given))
    for layer, (mine, theirs) in enumerate(zip(ours, data["every_hidden"], strict=True)):
        if "modernbert" not in model.name or layer < len(ours) - 1:  # transformers has the last after the final norm
            worst.append((f"layer {layer}", float(np.abs(mine - theirs)[tokens].max())))
    return worst


def write_ours(folder: Path) -> list[str]:
    """Folders that we write, for transformers to read: the models of the tests with new heads. Returns their names."""
    from safetensors.numpy import save_file

    from fcjax.encoders.network import Network

    names = []
    for path in sorted(GOLDEN.glob("*.npz")):
        kept = np.load(path)
        config = json.loads(str(kept["config"]))
        tensors = {name[len("tensor.") :]: kept[name] for name in kept.files if name.startswith("tensor.")}
        network = Network.of(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})
        network = network.with_head(3, seed=SEED)
        kind = str(config["architectures"][0]).replace("Model", "ForSequenceClassification")
        labels = {str(place): name for place, name in enumerate(("entailment", "contradiction", "neutral"))}
        config |= {"architectures": [kind], "id2label": labels, "label2id": {v: int(k) for k, v in labels.items()}}
        name = f"{path.stem}, written"
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        save_file(network.tensors(), folder / name / "model.safetensors", metadata={"format": "pt"})
        names.append(name)
    return names


def write_golden(folder: Path, target: Path) -> None:
    """One npz per model: config, tensors (half precision, exact), inputs and answers."""
    from safetensors.numpy import load_file

    target.mkdir(parents=True, exist_ok=True)
    version = json.loads((folder / "version.json").read_text())
    for name in cases("golden"):
        tensors = load_file(folder / name / "model.safetensors")
        answers = dict(np.load(folder / name / "answers.npz"))
        answers["last_layer"] = answers.pop("every_hidden")[-2].astype(np.float32)
        np.savez_compressed(
            target / f"{name}.npz",
            made_by=np.array(f"{version}, seed {SEED}"),
            config=np.array((folder / name / "config.json").read_text()),
            **{f"tensor.{key}": tensor.astype(np.float16) for key, tensor in tensors.items()},
            **{f"answer.{key}": value for key, value in answers.items()},
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, help="the interpreter that has transformers and torch")
    parser.add_argument("--folder", action="append", default=[], help="a real model's folder, compared layer by layer")
    parser.add_argument("--golden", type=Path, help="write the fixtures of the tests to this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        job = {
            "size": "golden" if options.golden else "parity",
            "written": write_ours(folder),
            "folders": [str(Path(path).resolve()) for path in options.folder],
        }
        command = [options.torch, "-P", __file__, "--reference", json.dumps(job), place]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(THREADS)}
        done = subprocess.run(command, env=environment)
        if done.returncode:
            return done.returncode
        print(json.loads((folder / "version.json").read_text()))
        worst = 0.0
        real = {Path(path).resolve().name: Path(path) for path in options.folder}
        made = {name: folder / name for name in (*cases("parity"), *job["written"])}
        for name, model in {**made, **real}.items():
            found = compare(folder / name, model)
            worst = max(worst, *(difference for _, difference in found))
            print(f"{name:18} " + "  ".join(f"{what}: {difference:.1e}" for what, difference in found))
        print(f"worst difference: {worst:.1e}; allowed: {TOLERANCE:.0e}")
        if options.golden:
            write_golden(folder, options.golden)
        return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reference"]:
        refer(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        raise SystemExit(main())
