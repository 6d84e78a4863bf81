"""A model's folder, laid out as on Hugging Face's hub: its configuration, weights and tokenizer (SPEC 9, Local).

Weights are read from safetensors only, which hold arrays and no code. What lacks is said by name, and how to get it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from fcjax.core.errors import Fault, InputError, OutputError, SettingsError
from fcjax.io.files.small import read_small
from fcjax.io.files.streams import replacing

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"  # of weights in several files
TOKENIZER: Final = "tokenizer.json"
CALIBRATION: Final = "calibration.json"
TOKENIZER_LIMIT: Final = 256 << 20
"""Bytes that a tokenizer.json may have; the largest in use has 20 MB."""
SHARDS: Final = 1000
"""Files that one model's weights may be spread over."""
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_COPIED: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_WANTED: Final = (CONFIG, "*.safetensors", INDEX, CALIBRATION, *_COPIED)
_MADE_BY: Final = "in Python, transformers' `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` writes it"
_CONVERTED_BY: Final = (
    "in Python, transformers' `AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)` "
    "writes it"
)


@dataclass(frozen=True, eq=False)
class ModelFolder:
    """An opened folder. Make one with `open_model`."""

    path: Path
    config: Mapping[str, Any]
    digest: str  # 16 hexadecimal digits over configuration, weights and tokenizer: all that changes an answer
    extra: Mapping[str, Any]  # JSON objects beside them that fcjax knows: calibration.json
    title: str  # the folder's name, or the one on the hub

    @property
    def name(self) -> str:
        """The folder's name with its digest: what rows and calibrations call the model."""
        return f"{self.title}@{self.digest[:12]}"

    def tensors(self) -> dict[str, np.ndarray]:
        """The weights by name, as float32 where they are stored in half precision. Raises `InputError`."""
        found: dict[str, np.ndarray] = {}
        for file in _weight_files(self.path):
            found.update(_tensors(self.path / file))
        return found

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which neither cuts nor pads, whatever its file says. Raises `InputError`."""
        from tokenizers import Tokenizer

        text = _text(self.path, TOKENIZER, TOKENIZER_LIMIT)
        try:
            made = Tokenizer.from_str(text)
        except Exception as error:  # the package raises bare exceptions
            raise _fault(self.path / TOKENIZER, f"cannot be read: {error!s:.200}; allowed: what {_MADE_BY}") from None
        made.no_padding()
        made.no_truncation()
        made.encode_special_tokens = True  # a passage that has "[SEP]" in its text does not end there
        return made


def open_model(where: str | os.PathLike[str]) -> ModelFolder:
    """The model in a folder, or of a name on the hub such as `organisation/name`, which is fetched.

    Raises `InputError` with everything that the folder lacks, and `SettingsError` where there is no such folder or the
    hub cannot be reached.
    """
    path = _place(where)
    faults: list[Fault] = []
    config: Any = {}
    try:
        config = _object(path, CONFIG)
    except InputError as error:
        faults += error.faults
    files: list[str] = []
    extra: dict[str, Any] = {}
    try:
        if not _is_file(path, TOKENIZER):
            faults.append(Fault(f"{TOKENIZER} is missing; {_MADE_BY}", file=str(path)))
    except InputError as error:
        faults += error.faults
    try:
        files = _weight_files(path)
    except InputError as error:
        faults += error.faults
    for file in files:
        try:
            if not _is_file(path, file):
                faults.append(Fault(f"{file} is missing; {INDEX} names it", file=str(path)))
        except InputError as error:
            faults += error.faults
    try:
        if _is_file(path, CALIBRATION):
            extra = {"calibration": _object(path, CALIBRATION)}
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(*faults)
    title = path.name if os.path.isdir(where) else os.fspath(where)
    return ModelFolder(path, config, _digest(path, [CONFIG, TOKENIZER, *files]), extra, title)


def is_hub_name(name: str) -> bool:
    """Whether a text may be a model's name on Hugging Face's hub, as organisation/name is."""
    return _HUB_NAME.fullmatch(name) is not None


def _place(where: str | os.PathLike[str]) -> Path:
    path = Path(where)
    if os.path.isdir(path):
        return path.resolve()
    if os.path.exists(path):  # which, other than the path's own, is False for a name that is too long
        raise SettingsError(
            f"{os.fspath(where)!r:.200} is a file; allowed: a folder with {CONFIG}, {WEIGHTS}, {TOKENIZER}"
        )
    if not isinstance(where, str) or not is_hub_name(where):
        raise SettingsError(
            f"there is no folder {os.fspath(where)!r:.200}; allowed: a folder with {CONFIG}, {WEIGHTS} and {TOKENIZER},"
            " or a model's name on Hugging Face's hub, such as organisation/name"
        )
    return _fetched(where)


def _fetched(name: str) -> Path:
    """The folder of a model on the hub, fetched where it is not on this machine yet."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED)))
    except Exception as error:  # of many kinds: the network's, the hub's, the disk's
        raise SettingsError(
            f"there is no folder {name!r}, and it could not be fetched from the hub ({type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"[:400]
            + "); give a folder, or a name that exists, with access to the network"
        ) from error


def _weight_files(path: Path) -> list[str]:
    """The names of the files that hold the weights. Raises `InputError`."""
    if _is_file(path, WEIGHTS):
        return [WEIGHTS]
    if _is_file(path, INDEX):
        parts = _object(path, INDEX).get("weight_map")
        if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts.values()):
            raise _fault(path / INDEX, "weight_map is missing or no object of names; allowed: what transformers writes")
        files = sorted(set(parts.values()))
        for name in files:
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise _fault(path / INDEX, f"names the file {name!r:.80}; allowed: .safetensors files in the folder")
        if not 0 < len(files) <= SHARDS:
            raise _fault(path / INDEX, f"names {len(files)} files; allowed: 1 to {SHARDS}")
        return files
    others = [name for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack") if (path / name).is_file()]
    beside = f"; {others[0]} is there, and is not read, as it may hold code" if others else ""
    raise InputError(Fault(f"{WEIGHTS} is missing{beside}; {_CONVERTED_BY}", file=str(path)))


def _tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no mapping
                kind = opened.get_slice(name).get_dtype()
                if kind == "BF16":
                    continue  # numpy has no such type: below
                tensor = opened.get_tensor(name)
                yield name, tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor
        yield from _bfloat16(path)
    except AttributeError as error:  # numpy has no such type, as of 8 bits
        raise _fault(path, f"{error!s:.200}; allowed: weights of float32, float16 or bfloat16") from None
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise _fault(path, f"cannot be read: {error!s:.200}; allowed: a safetensors file, whole") from None


def _bfloat16(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors that are stored as bfloat16, as float32: its bits are the upper half of a float32's."""
    import numpy as np

    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = orjson.loads(stream.read(size))
        for name, what in header.items():
            if name != "__metadata__" and what["dtype"] == "BF16":
                begin, end = what["data_offsets"]
                stream.seek(8 + size + begin)
                halves = np.frombuffer(stream.read(end - begin), "<u2").astype(np.uint32)
                yield name, (halves << 16).view(np.float32).reshape(what["shape"])


def write_model(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    copied_from: ModelFolder,
    texts: Mapping[str, str],
) -> None:
    """Write a folder that `open_model` and transformers read: configuration, weights, and the tokenizer's files of
    another folder, with further `texts` by file name. The weights come last: a folder with weights is whole. A
    calibration that is there belongs to other weights, and is removed.

    Each file is replaced as a whole, and keeps its permissions. Raises `OutputError`.
    """
    from safetensors.numpy import save

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CALIBRATION).unlink(missing_ok=True)
        for name in _COPIED:
            if (copied_from.path / name).is_file():
                write_beside(folder, name, (copied_from.path / name).read_bytes())
            else:
                (folder / name).unlink(missing_ok=True)  # of a model that was there before
        write_beside(folder, CONFIG, orjson.dumps(dict(config), option=orjson.OPT_INDENT_2))
        for name, text in texts.items():
            write_beside(folder, name, text.encode())
        whole = {name: tensor.copy(order="C") for name, tensor in tensors.items()}
        write_beside(folder, WEIGHTS, save(whole, metadata={"format": "pt"}))
    except OSError as error:
        raise OutputError(
            f"cannot write the model to {folder}: {error.strerror or error}; choose a folder that can be written, on a "
            "disk with room"
        ) from error


def write_beside(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a model's folder, as a whole or not at all. Raises `OutputError`."""
    with replacing(folder / name) as out:
        out.write(content)


def _is_file(path: Path, name: str) -> bool:
    """Whether a file of that name is there. Raises `InputError` where it is of another kind."""
    if os.path.isfile(path / name):
        return True
    if os.path.lexists(path / name):
        raise _fault(path / name, "is a folder, a pipe, a device or a link to nothing; allowed: a file")
    return False


def _digest(path: Path, files: list[str]) -> str:
    digest = hashlib.sha256()
    for name in files:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
        try:
            with (path / name).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise _fault(path / name, f"cannot be read: {error.strerror}; allowed: a file that can be read") from None
    return digest.hexdigest()[:16]


def _object(path: Path, name: str) -> dict[str, Any]:
    try:
        value = orjson.loads(_text(path, name, 16 << 20))
    except ValueError as error:
        raise _fault(path / name, f"is not JSON: {error}; allowed: a JSON object") from None
    if not isinstance(value, dict):
        raise _fault(path / name, f"is a JSON {type(value).__name__}; allowed: an object")
    return value


def _text(path: Path, name: str, limit: int) -> str:
    try:
        return read_small(path / name, limit)
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        why = "is missing" if missing else f"cannot be read: {error.strerror}"
        raise InputError(
            Fault(f"{name} {why}; allowed: a folder with it, as on Hugging Face's hub", file=str(path))
        ) from None
    except UnicodeDecodeError:
        raise _fault(path / name, "is not UTF-8; allowed: text") from None


def _fault(path: Path, message: str) -> InputError:
    return InputError(Fault(message, file=str(path)))
