"""A model's config.json: the encoder that it describes, and which logit means what (SPEC 9, Local)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Float64

from fcjax.core.errors import Fault, InputError
from fcjax.core.records import DISTRIBUTED, RelationType
from fcjax.kernels.encoders.architecture import Architecture, Bert, DebertaV2, ModernBert, Roberta
from fcjax.kernels.encoders.parts import ACTIVATIONS

FILE: Final = "config.json"
MODEL_TYPES: Final = ("bert", "roberta", "xlm-roberta", "deberta-v2", "modernbert")
"""The families that can be read, as `model_type` names them. DeBERTa-v3 has the type `deberta-v2`."""
LARGEST: Final = 2**31 - 1
_MISSING: Final = object()


def read_config(config: Mapping[str, Any]) -> Architecture:
    """The encoder that a config.json describes, with as many classes as it names labels (transformers' default: 2).

    Raises `InputError` with every fault: a family or an option that is not supported, a number that is missing or out
    of range.
    """
    fields = _Fields(config)
    family = config.get("model_type")
    readers: dict[str, Callable[[_Fields], Architecture]] = {
        "bert": lambda fields: _bert(fields, Bert, 0),
        "roberta": lambda fields: _bert(fields, Roberta, 1),
        "xlm-roberta": lambda fields: _bert(fields, Roberta, 1),
        "deberta-v2": _deberta,
        "modernbert": _modernbert,
    }
    if not isinstance(family, str) or family not in readers:
        raise InputError(
            Fault(f"found {family!r}; expected one of {', '.join(MODEL_TYPES)}", file=FILE, field="model_type")
        )
    for option in ("is_decoder", "add_cross_attention"):
        fields.only(option, False, False)
    fields.only("pruned_heads", {}, {}, None)
    architecture = readers[family](fields)
    if fields.faults:
        raise InputError(*fields.faults)
    return architecture


class _Fields:
    """Values of a config.json, and the faults that were found in them."""

    def __init__(self, config: Mapping[str, Any]):
        self.config = config
        self.faults: list[Fault] = []

    def fault(self, name: str, found: Any, expected: str) -> None:
        text = "nothing" if found is _MISSING else repr(found)
        self.faults.append(Fault(f"found {text}; expected {expected}", file=FILE, field=name))

    def whole(self, name: str, default: Any = _MISSING, *, least: int = 1) -> int:
        """A whole number of at least `least`."""
        found = self.config.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= LARGEST:
            self.fault(name, found, f"a whole number from {least} to {LARGEST}")
            return max(least, 1)
        return found

    def number(self, name: str, default: float, allowed: Callable[[float], bool], expected: str) -> float:
        """A finite number that is `allowed`."""
        found = self.config.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            self.fault(name, found, expected)
            return default
        if not allowed(found):
            self.fault(name, found, expected)
            return default
        return float(found)

    def rate(self, name: str, default: float) -> float:
        return self.number(name, default, lambda rate: 0 <= rate < 1, "a rate from 0 to below 1")

    def positive(self, name: str, default: float) -> float:
        return self.number(name, default, lambda value: value > 0, "a number above 0")

    def flag(self, name: str, default: bool) -> bool:
        found = self.config.get(name, default)
        if not isinstance(found, bool):
            self.fault(name, found, "true or false")
        return bool(found)

    def activation(self, name: str, default: str) -> str:
        found = self.config.get(name, default)
        if not isinstance(found, str) or found not in ACTIVATIONS:
            self.fault(name, found, f"one of {', '.join(sorted(ACTIVATIONS))}")
            return default
        return found

    def only(self, name: str, default: Any, *allowed: Any) -> None:
        """Refuse every value of an option that is not `allowed`."""
        found = self.config.get(name, default)
        if not any(found == value for value in allowed):
            self.fault(name, found, f"{' or '.join(repr(value) for value in allowed)}: fcjax supports no other")

    def common(self, pad: int) -> dict[str, Any]:
        """The fields that all families have."""
        hidden, heads = self.whole("hidden_size"), self.whole("num_attention_heads")
        if hidden % heads:
            self.fault("num_attention_heads", heads, f"a divisor of hidden_size, {hidden}")
        labels = self.config.get("id2label") or self.config.get("label2id")
        return {
            "vocabulary": self.whole("vocab_size"),
            "hidden": hidden,
            "layers": self.whole("num_hidden_layers"),
            "heads": heads if hidden % heads == 0 else 1,
            "inner": self.whole("intermediate_size"),
            "positions": self.whole("max_position_embeddings"),
            "pad": self.whole("pad_token_id", pad, least=0),
            "classes": len(labels) if isinstance(labels, Mapping) else self.whole("num_labels", 2),
            "initial_deviation": self.positive("initializer_range", 0.02),
        }

    def bert_like(self, pad: int, epsilon: float) -> dict[str, Any]:
        """Those of BERT and of what came from it."""
        return {
            **self.common(pad),
            "activation": self.activation("hidden_act", "gelu"),
            "epsilon": self.positive("layer_norm_eps", epsilon),
            "dropout": self.rate("hidden_dropout_prob", 0.1),
            "attention_dropout": self.rate("attention_probs_dropout_prob", 0.1),
        }


def _bert(fields: _Fields, family: type[Bert], pad: int) -> Bert:
    fields.only("position_embedding_type", "absolute", "absolute", None)
    read = fields.bert_like(pad, 1e-12)
    given = fields.config.get("classifier_dropout")
    if family is Roberta and read["positions"] <= read["pad"] + 1:
        fields.fault("max_position_embeddings", read["positions"], "more than pad_token_id + 1")
    return family(
        **read,
        types=fields.whole("type_vocab_size", 2),
        classifier_dropout=read["dropout"] if given is None else fields.rate("classifier_dropout", 0.1),
    )


def _deberta(fields: _Fields) -> DebertaV2:
    read = fields.bert_like(0, 1e-7)
    hidden, config = read["hidden"], fields.config
    fields.only("attention_head_size", hidden // read["heads"], hidden // read["heads"])
    fields.only("pooler_hidden_size", hidden, hidden)
    kinds = config.get("pos_att_type") or []
    if isinstance(kinds, str):
        kinds = [kind.strip() for kind in kinds.lower().split("|")]
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= {"c2p", "p2c"}:
        fields.fault("pos_att_type", kinds, "a list of c2p and p2c")
        kinds = []
    relative = fields.flag("relative_attention", False)
    buckets = fields.whole("position_buckets", -1, least=-1)
    furthest = fields.whole("max_relative_positions", -1, least=-1)
    furthest = furthest if furthest >= 1 else read["positions"]
    if relative and buckets > 0 and (buckets < 4 or furthest <= buckets // 2 + 1):
        fields.fault("position_buckets", buckets, f"4 to 2 * max_relative_positions ({furthest}) - 4")
    kernel = fields.whole("conv_kernel_size", 0, least=0)
    groups = fields.whole("conv_groups", 1)
    if kernel and not kernel % 2:
        fields.fault("conv_kernel_size", kernel, "an odd number")
    if hidden % groups:
        fields.fault("conv_groups", groups, f"a divisor of hidden_size, {hidden}")
    given = config.get("cls_dropout")
    norm = [part.strip() for part in str(config.get("norm_rel_ebd", "none")).lower().split("|")]
    return DebertaV2(
        **read,
        types=fields.whole("type_vocab_size", 0, least=0),
        embedding=fields.whole("embedding_size", hidden),
        absolute_positions=fields.flag("position_biased_input", True),
        relative=relative,
        span=buckets if buckets > 0 else furthest,
        buckets=buckets,
        furthest=furthest,
        content_to_position="c2p" in kinds,
        position_to_content="p2c" in kinds,
        share_projections=fields.flag("share_att_key", False),
        norm_positions=relative and "layer_norm" in norm,
        kernel=kernel,
        groups=groups,
        kernel_activation=fields.activation("conv_act", "tanh"),
        pooler_activation=fields.activation("pooler_hidden_act", "gelu"),
        pooler_dropout=fields.rate("pooler_dropout", 0.0),
        classifier_dropout=read["dropout"] if given is None else fields.rate("cls_dropout", 0.1),
    )


def _modernbert(fields: _Fields) -> ModernBert:
    config, read = fields.config, fields.common(50283)
    if read["hidden"] // read["heads"] % 2:
        fields.fault("num_attention_heads", read["heads"], "heads of an even size, hidden_size / num_attention_heads")
    kinds = config.get("layer_types")
    if kinds is None:
        every = fields.whole("global_attn_every_n_layers", 3)
        local = tuple(bool(layer % every) for layer in range(read["layers"]))
    else:
        local = tuple(kind == "sliding_attention" for kind in kinds) if isinstance(kinds, list) else ()
        if len(local) != read["layers"] or not set(map(str, kinds)) <= {"sliding_attention", "full_attention"}:
            fields.fault("layer_types", kinds, "per layer full_attention or sliding_attention")
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        fields.fault("classifier_pooling", pooling, "cls or mean")
    attention = fields.rate("attention_dropout", 0.0)
    return ModernBert(
        **read,
        activation=fields.activation("hidden_activation", "gelu"),
        epsilon=fields.positive("norm_eps", 1e-5),
        dropout=0.0,
        attention_dropout=attention,
        classifier_dropout=fields.rate("classifier_dropout", 0.0),
        local=local,
        reach=fields.whole("local_attention", 128) // 2,
        theta=_theta(fields, "full_attention", "global_rope_theta", 160_000.0),
        local_theta=_theta(fields, "sliding_attention", "local_rope_theta", 10_000.0),
        norm_bias=fields.flag("norm_bias", False),
        attention_bias=fields.flag("attention_bias", False),
        inner_bias=fields.flag("mlp_bias", False),
        head_bias=fields.flag("classifier_bias", False),
        head_activation=fields.activation("classifier_activation", "gelu"),
        mean_pooling=pooling == "mean",
        embedding_dropout=fields.rate("embedding_dropout", 0.0),
        inner_dropout=fields.rate("mlp_dropout", 0.0),
    )


def _theta(fields: _Fields, kind: str, older: str, default: float) -> float:
    """The base of the rotary wavelengths: in `rope_parameters` as newer folders have it, or under its `older` name.

    Older folders have null for the local base where it is the global one.
    """
    fields.only("rope_scaling", None, None)
    given = fields.config.get("rope_parameters")
    own = given.get(kind) if isinstance(given, Mapping) else None
    if own is None:
        if fields.config.get(older, default) is None:
            return _theta(fields, "full_attention", "global_rope_theta", 160_000.0)
        return fields.positive(older, default)
    place = f"rope_parameters.{kind}"
    inside = _Fields({f"{place}.{name}": value for name, value in own.items()} if isinstance(own, Mapping) else {})
    inside.only(f"{place}.rope_type", "default", "default")
    theta = inside.positive(f"{place}.rope_theta", default)
    fields.faults += inside.faults
    return theta


_MEANINGS: Final = {
    "entailment": ("entailment", "entails", "entailed", "entail", "supports", "supported", "support", "true"),
    "contradiction": ("contradiction", "contradicts", "contradicted", "contradictory", "refutes", "refuted", "false"),
    "neutral": ("neutral", "notenoughinfo", "notenoughinformation", "nei", "neither"),
    "not_entailment": ("notentailment", "notentailed", "nonentailment", "unsupported", "notsupported"),
}
_MEANING: Final = {name: meaning for meaning, names in _MEANINGS.items() for name in names}
_EXPECTED: Final = (
    'names such as {"0": "entailment", "1": "neutral", "2": "contradiction"}, in the order of the logits, '
    'or {"0": "entailment", "1": "not_entailment"}'
)


@dataclass(frozen=True, slots=True)
class LogitLabels:
    """Which logit of a model means what. `contradiction` is None for a model that knows entailment or not alone."""

    entailment: int
    neutral: int  # or not-entailment, which is not a contradiction
    contradiction: int | None = None

    @property
    def classes(self) -> int:
        """The number of logits."""
        return 2 if self.contradiction is None else 3

    def index(self, relation: RelationType) -> int:
        """The logit of a relation type; a contradiction is a not-entailment for a model of two classes.

        Raises `KeyError` for an equivalence.
        """
        found = dict(zip(DISTRIBUTED, (self.entailment, self.contradiction, self.neutral), strict=True))[relation]
        return self.neutral if found is None else found

    def distribution(self, logits: Float[np.ndarray, "n k"]) -> Float64[np.ndarray, "n 3"]:
        """Probabilities in the order of `DISTRIBUTED`: [N, K] to [N, 3] float64.

        With two classes, contradiction has probability 0. Rows with NaN or infinity give NaN.
        """
        wide = np.asarray(logits, dtype=np.float64)
        if wide.ndim != 2 or wide.shape[1] != self.classes:
            raise ValueError(f"found logits of shape {wide.shape}; expected (n, {self.classes})")
        with np.errstate(invalid="ignore"):
            odds = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
            shares = odds / odds.sum(axis=1, keepdims=True)
        none = np.zeros(len(wide)) if self.contradiction is None else shares[:, self.contradiction]
        if self.contradiction is None:
            none = np.where(np.isnan(shares[:, 0]), np.nan, none)
        return np.stack([shares[:, self.entailment], none, shares[:, self.neutral]], axis=1)


def read_labels(config: Mapping[str, Any]) -> LogitLabels:
    """Which logit means what, from the names in `id2label` (or `label2id`), whatever their case and punctuation.

    Three names (entailment, contradiction and neutral, or FEVER's) or two (entailment, and neutral or not). Raises
    `InputError` for names that are not known, such as LABEL_0, and says what to write.
    """
    names = _label_names(config)
    meanings = [_MEANING.get(re.sub(r"[\W_]+", "", name).casefold()) for name in names]
    if len(names) == 2 and "entailment" in meanings:
        rest = {"neutral": "not_entailment"}
        if re.sub(r"[\W_]+", "", names[1 - meanings.index("entailment")]).casefold() == "false":
            rest["contradiction"] = "not_entailment"  # of two answers, "false" is what is not "true"
        meanings = [rest.get(str(meaning), meaning) for meaning in meanings]
    if sorted(map(str, meanings)) == ["contradiction", "entailment", "neutral"]:
        return LogitLabels(*(meanings.index(name) for name in ("entailment", "neutral", "contradiction")))
    if sorted(map(str, meanings)) == ["entailment", "not_entailment"]:
        return LogitLabels(meanings.index("entailment"), meanings.index("not_entailment"))
    raise InputError(Fault(f"found the labels {names}; expected {_EXPECTED}", file=FILE, field="id2label"))


def _label_names(config: Mapping[str, Any]) -> list[str]:
    """The names of the labels in the order of the logits."""
    given = config.get("id2label")
    if given is None and isinstance(config.get("label2id"), Mapping):
        given = {number: name for name, number in config["label2id"].items()}
    if not isinstance(given, Mapping):
        raise InputError(
            Fault(f"found {'nothing' if given is None else repr(given)}; expected {_EXPECTED}", FILE, field="id2label")
        )
    by_number = {str(number).strip(): str(name) for number, name in given.items()}
    try:
        return [by_number[str(number)] for number in range(len(given))]
    except KeyError:
        raise InputError(
            Fault(
                f"found the numbers {list(given)}; expected 0 to {len(given) - 1}: {_EXPECTED}", FILE, field="id2label"
            )
        ) from None
