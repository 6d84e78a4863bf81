"""The shapes and options of encoders: what is read from a config.json, and what the modules are built from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What all families have. Sizes are numbers of features or rows, rates are probabilities of dropout."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int  # features between the two dense layers of a block
    positions: int  # rows of the position table, or the longest input that the model was made for
    classes: int = 2
    activation: str = "gelu"
    epsilon: float = 1e-12  # of the layer norms
    pad: int = 0  # the id of the padding token
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float = 0.1
    initial_deviation: float = 0.02  # of the weights of a new head

    @property
    def head_size(self) -> int:
        """Features of one attention head."""
        return self.hidden // self.heads

    @property
    def longest(self) -> int:
        """The most tokens that one input may have."""
        return self.positions


@dataclass(frozen=True, kw_only=True)
class Bert(Architecture):
    """BERT (Devlin et al. 2019) and MiniLM (Wang et al. 2020)."""

    types: int = 2


@dataclass(frozen=True, kw_only=True)
class Roberta(Bert):
    """RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2020): positions are counted from `pad + 1` on."""

    @property
    def longest(self) -> int:
        return self.positions - self.pad - 1


@dataclass(frozen=True, kw_only=True)
class DebertaV2(Architecture):
    """DeBERTa-v2 and v3 (He et al. 2021, 2023), whose attention reads contents and relative positions apart."""

    types: int = 0
    embedding: int  # features of the word table; projected to `hidden` where they differ
    absolute_positions: bool = True
    relative: bool = False
    span: int = 0  # relative positions, or buckets of them, on each side: the table has 2 * span rows
    buckets: int = -1  # at most 0: relative positions are not bucketed
    furthest: int = 512  # the distance that falls into the last bucket
    content_to_position: bool = False
    position_to_content: bool = False
    share_projections: bool = False  # of contents and positions
    norm_positions: bool = False
    kernel: int = 0  # the width of the convolution after the first layer; 0: there is none
    groups: int = 1
    kernel_activation: str = "tanh"
    pooler_activation: str = "gelu"
    pooler_dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ModernBert(Architecture):
    """ModernBERT (Warner et al. 2024): rotary positions, local and global attention in turn, gated inner layers."""

    local: tuple[bool, ...]  # per layer: attention to `reach` tokens on each side alone
    reach: int
    theta: float  # the base of the rotary wavelengths of global layers
    local_theta: float
    norm_bias: bool = False
    attention_bias: bool = False
    inner_bias: bool = False
    head_bias: bool = False
    head_activation: str = "gelu"
    mean_pooling: bool = False  # the classifier reads the mean of all tokens; else the first token
    embedding_dropout: float = 0.0
    inner_dropout: float = 0.0
