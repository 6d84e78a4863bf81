"""Encoders with weights: from the tensors of a Hugging Face folder and back, and compiled (SPEC 9, Local)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float32, Int

from fcjax.core.errors import Fault, InputError, SettingsError
from fcjax.encoders.config import read_config
from fcjax.kernels.encoders.architecture import Architecture, Bert, ModernBert
from fcjax.kernels.encoders.model import Model
from fcjax.kernels.encoders.names import PREFIXES, Weight, prefix_of, weight_at

Dtype = Literal["float32", "bfloat16"]
Path = tuple[str, ...]


class Network:
    """An encoder with its weights, compiled once per shape of its inputs.

    `ids`, `mask` and `types` are [B, L] int32, with L at most `max_length`; `mask` is 1 at tokens and 0 at padding, and
    `types` 1 in a pair's second text. A row whose mask is all 0 gets finite numbers that mean nothing, and the
    embedding 0.

    `module` is the `flax.nnx` module, for training: `module(ids, mask, types, key=key)` gives logits with dropout. What
    is written to its weights counts in the next call here.
    """

    def __init__(self, module: Model, spare: Mapping[str, np.ndarray] | None = None):
        self.module = module
        self._spare = dict(spare or {})  # parts of a head in a folder with an encoder alone, such as BERT's pooler

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray],
        *,
        dtype: Dtype = "float32",
        weights: Dtype | None = None,
    ) -> Network:
        """A network of a config.json and its tensors, by the names of transformers, with a prefix or without.

        It computes in `dtype`; softmax and norms are float32 in any case. `weights` is the dtype in which weights are
        kept (default: `dtype`; for training in bfloat16, keep them in float32). A folder without `classifier` is an
        encoder alone. Raises `InputError` with every tensor that is missing, of another shape, or not finite,
        and where there are more layers than the configuration has; other tensors are ignored.
        """
        architecture = read_config(config)
        named = dict(_renamed(tensors))
        claimed = any("ForSequenceClassification" in str(name) for name in config.get("architectures") or ())
        head = claimed or any(name.startswith("classifier.") for name in named)
        module, faults = _filled(architecture, named, head, dtype, weights or dtype)
        faults += _further_layers(architecture, named)
        if faults:
            raise InputError(*faults)
        return cls(module, {} if head else _spare(architecture, named))

    def with_head(self, num_labels: int, *, seed: int = 0) -> Network:
        """This encoder with a fresh last layer of `num_labels` classes, for training; the same for the same `seed`.

        The rest of a head is kept where the folder has it (BERT's pooler), and else fresh too, with the deviations of
        transformers.
        """
        architecture = replace(self.architecture, classes=num_labels)
        named = _fresh_head(architecture, np.random.default_rng(seed))
        for name, tensor in _renamed(self.tensors()):
            if not re.match(r"classifier\.(out_proj\.)?(weight|bias)$", name):
                named[name] = tensor
        words: Any = self.module.encoder.embeddings
        kept = words.words.rows[...].dtype.name
        module, _ = _filled(architecture, named, True, self.module.dtype, kept)
        return Network(module)

    @property
    def architecture(self) -> Architecture:
        """The shapes and options of the network."""
        return cast(Architecture, self.module.arch)

    @property
    def classes(self) -> int:
        """The number of logits; 0 for an encoder alone."""
        return 0 if self.module.head is None else self.architecture.classes

    @property
    def max_length(self) -> int:
        """The most tokens of an input, with special ones."""
        return self.architecture.longest

    def logits(
        self, ids: Int[np.ndarray, "b l"], mask: Int[np.ndarray, "b l"], types: Int[np.ndarray, "b l"]
    ) -> Float32[jax.Array, "b k"]:
        """Logits [B, K], float32. Raises `SettingsError` for an encoder alone, and for inputs over `max_length`."""
        if self.module.head is None:
            raise SettingsError("the model has no classification head; expected one: train it, or take another model")
        return self._run("__call__", ids, mask, types)

    def hidden(
        self, ids: Int[np.ndarray, "b l"], mask: Int[np.ndarray, "b l"], types: Int[np.ndarray, "b l"]
    ) -> Float32[jax.Array, "b l h"]:
        """Features of every token, [B, L, H], float32; those of padding mean nothing."""
        return self._run("hidden", ids, mask, types)

    def every_hidden(
        self, ids: Int[np.ndarray, "b l"], mask: Int[np.ndarray, "b l"], types: Int[np.ndarray, "b l"]
    ) -> Float32[jax.Array, "n b l h"]:
        """Features after the embeddings and after each layer, [layers + 1, B, L, H], float32."""
        return self._run("every_hidden", ids, mask, types)

    def embed(
        self, ids: Int[np.ndarray, "b l"], mask: Int[np.ndarray, "b l"], types: Int[np.ndarray, "b l"]
    ) -> Float32[jax.Array, "b h"]:
        """The mean of the tokens' features at length 1, [B, H], float32; zeros for a row with no token."""
        return self._run("embed", ids, mask, types)

    def placed(self, device: jax.Device | jax.sharding.Sharding) -> Network:
        """This network with its weights on a device, or on many as a sharding says."""
        graph, weights = nnx.split(self.module)
        return Network(nnx.merge(graph, jax.device_put(weights, device)), self._spare)

    def tensors(self) -> dict[str, np.ndarray]:
        """All weights by the names that transformers loads: float32, or bfloat16 where they are kept so."""
        prefix = prefix_of(self.architecture) if self.module.head is not None else ""
        found: dict[str, np.ndarray] = {}
        for path, leaf in _leaves(nnx.split(self.module, nnx.Param)[1]):
            weight = weight_at(path, self.architecture)
            pooler = path[:2] == ("head", "dense") and type(self.architecture) is Bert
            start = prefix if path[0] == "encoder" or pooler else ""
            found |= {start + name: tensor for name, tensor in weight.tensors(np.asarray(leaf)).items()}
        return found | self._spare

    def _run(self, method: str, ids: Any, mask: Any, types: Any) -> Any:
        if ids.shape[1] > self.max_length:
            raise SettingsError(f"found an input of {ids.shape[1]} tokens; expected at most {self.max_length}")
        graph, weights = nnx.split(self.module)
        return _compiled(graph, method, weights, ids, mask, types)


@partial(jax.jit, static_argnums=(0, 1))
def _compiled(graph: Any, method: str, weights: Any, ids: Any, mask: Any, types: Any) -> Any:
    """One method of a module whose weights are arguments, so that all networks of one shape share the compiled code."""
    return getattr(type(module := nnx.merge(graph, weights)), method)(module, ids, mask, types)


def _leaves(weights: Any) -> Iterator[tuple[Path, Any]]:
    """Paths and arrays of a module's weights."""
    for path, leaf in nnx.to_flat_state(weights):
        yield tuple(map(str, path)), leaf[...]


def _renamed(tensors: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Tensors by names without the encoder's prefix, and with the present names of a norm's weights."""
    for name, tensor in tensors.items():
        short = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)
        short = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", short)
        yield re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", short), tensor


def _filled(
    architecture: Architecture, named: Mapping[str, np.ndarray], head: bool, dtype: str, stored: str
) -> tuple[Model, list[Fault]]:
    """A module with the named tensors as its weights, and the faults of those; with faults the weights mean nothing."""
    abstract = nnx.eval_shape(lambda: Model(architecture, head=head, dtype=dtype))
    graph, weights = nnx.split(abstract)
    faults: list[Fault] = []
    values = {}
    for path, leaf in nnx.to_flat_state(weights):
        weight = weight_at(tuple(map(str, path)), architecture)
        found = _checked(weight, leaf.shape, named)
        faults += found
        if not found:
            value = weight.value([[named[name] for name in names] for names in weight.names])
            values[path] = leaf.replace(jnp.asarray(value.astype(jnp.dtype(stored))))
    if faults:
        return abstract, faults
    return nnx.merge(graph, nnx.from_flat_state(values)), faults


def _checked(weight: Weight, shape: Sequence[int], named: Mapping[str, np.ndarray]) -> list[Fault]:
    """What is wrong with the tensors of one weight."""
    faults = []
    for name, expected in weight.shapes(shape).items():
        if name not in named:
            faults.append(Fault(f"the tensor is missing; expected one of shape {expected}", field=name))
        elif tuple(named[name].shape) != expected:
            hint = ", as config.json says" if not name.startswith("classifier") else ", one row per label of id2label"
            faults.append(Fault(f"found the shape {tuple(named[name].shape)}; expected {expected}{hint}", field=name))
        elif wrong := int(np.count_nonzero(~np.isfinite(named[name]))):
            faults.append(Fault(f"found NaN or infinite numbers ({wrong:,}); expected none", field=name))
    return faults


def _further_layers(architecture: Architecture, named: Mapping[str, np.ndarray]) -> list[Fault]:
    """The fault of weights with more layers than the configuration has: without them, it is another network."""
    places = [re.search(r"\blayers?\.(\d{1,6})\.", name) for name in named]
    there = max((int(place[1]) + 1 for place in places if place), default=0)
    if there <= architecture.layers:
        return []
    return [Fault(f"found {architecture.layers} layers, and the weights have {there}", field="num_hidden_layers")]


def _head_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """The tensors of a head, by name, with their shapes."""
    _, weights = nnx.split(nnx.eval_shape(lambda: Model(architecture)))
    found: dict[str, tuple[int, ...]] = {}
    for path, leaf in nnx.to_flat_state(weights):
        if path[0] == "head":
            found |= weight_at(tuple(map(str, path)), architecture).shapes(leaf.shape)
    return found


def _spare(architecture: Architecture, named: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parts of a head that a folder without a classifier has all the same, such as BERT's pooler."""
    return {
        name: named[name]
        for name, shape in _head_shapes(architecture).items()
        if name in named and tuple(named[name].shape) == shape and np.isfinite(named[name]).all()
    }


def _fresh_head(architecture: Architecture, chance: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of a new head, by name, as transformers initialises them: normal, norms one, biases zero."""
    fresh = {}
    for name, shape in sorted(_head_shapes(architecture).items()):
        deviation = architecture.initial_deviation
        if isinstance(architecture, ModernBert):
            last = name.startswith("classifier.")
            deviation = architecture.hidden**-0.5 if last else deviation / (2 * architecture.layers) ** 0.5
        if name.endswith(".bias"):
            fresh[name] = np.zeros(shape, np.float32)
        elif len(shape) == 1:
            fresh[name] = np.ones(shape, np.float32)
        else:
            fresh[name] = (chance.standard_normal(shape) * deviation).astype(np.float32)
    return fresh
