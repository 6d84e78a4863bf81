"""A model's folder: what it may lack or have wrong, what its digest is of, and that it is written as it is read."""

from __future__ import annotations

import json
import os
import shutil
import stat

import model_folders as tiny
import numpy as np
import pytest
from command import UNUSABLE, fcjax
from safetensors.numpy import save_file

from fcjax.core.errors import InputError, OutputError, SettingsError
from fcjax.encoders.network import Network
from fcjax.io.model_folder import ModelFolder, open_model, write_model


@pytest.fixture
def folder(tmp_path):
    return tiny.write_folder(tmp_path / "model")


def loaded(folder):
    """All that a use of the folder reads."""
    made = open_model(folder)
    made.tokenizer()
    return Network.of(made.config, made.tensors())


def faults_of(folder):
    with pytest.raises(InputError) as caught:
        loaded(folder)
    return str(caught.value)


def test_all_that_lacks_is_said_at_once_and_how_to_get_it(tmp_path):
    said = faults_of(tmp_path)
    for words in ("config.json is missing", "tokenizer.json is missing", "model.safetensors is missing"):
        assert words in said
    assert said.count("save_pretrained") == 2
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    assert "pytorch_model.bin is there, and is not read, as it may hold code" in faults_of(tmp_path)
    (tmp_path / "calibration.json").write_text("[]")
    with pytest.raises(InputError) as caught:
        open_model(tmp_path)
    said = " ".join(map(str, caught.value.faults))
    for words in ("config.json is missing", "tokenizer.json is missing", "calibration.json: is a JSON list"):
        assert words in said


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"", "config.json: is not JSON"),
        ("config.json", b'{"a": ', "config.json: is not JSON"),
        ("config.json", b"[" * 100_000, "config.json: is not JSON"),
        ("config.json", b"[1]", "config.json: is a JSON list; allowed: an object"),
        ("config.json", b"\xff\xfe{}", "config.json: is not UTF-8"),
        ("config.json", b"{}", "model_type"),
        ("config.json", b" " * (17 << 20), "config.json cannot be read: more than"),
        ("tokenizer.json", b"", "tokenizer.json: cannot be read"),
        ("tokenizer.json", b"{}", "tokenizer.json: cannot be read"),
        ("tokenizer.json", b"[" * 100_000, "tokenizer.json: cannot be read"),
        ("model.safetensors", b"", "model.safetensors: cannot be read"),
        ("model.safetensors", b"\xff" * 64, "model.safetensors: cannot be read"),
        ("model.safetensors", (1 << 62).to_bytes(8, "little") + b"{}", "model.safetensors: cannot be read"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"{}", "the tensor is missing"),
        ("model.safetensors", (4).to_bytes(8, "little") + b"null", "model.safetensors: cannot be read"),
        ("calibration.json", b"{", "calibration.json: is not JSON"),
    ],
)
def test_a_broken_file_is_named(folder, name, content, message):
    (folder / name).write_bytes(content)
    assert message in faults_of(folder)


def test_weights_that_are_cut_off_are_refused(folder):
    content = (folder / tiny.WEIGHTS).read_bytes()
    for length in (4, 100, len(content) // 2, len(content) - 1):
        (folder / tiny.WEIGHTS).write_bytes(content[:length])
        assert "model.safetensors: cannot be read" in faults_of(folder)
    (folder / tiny.WEIGHTS).write_bytes(content + b"more")
    assert "model.safetensors: cannot be read" in faults_of(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "calibration.json"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_not_a_file_is_neither_read_nor_waited_for(folder, name, make):
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    said = faults_of(folder)
    assert name in said
    assert "is missing" not in said  # it is there


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "../outside.safetensors"}}, "names the file '../outside.safetensors'"),
        ({"weight_map": {"a": "/etc/passwd"}}, "names the file '/etc/passwd'"),
        ({"weight_map": {"a": "model.bin"}}, "names the file 'model.bin'"),
        ({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}, "y.safetensors is missing"),
        ({"weight_map": {"a": 1}}, "weight_map is missing or no object of names"),
        ({"weight_map": {}}, "names 0 files; allowed: 1 to 1000"),
        ({"weight_map": {str(n): f"{n}.safetensors" for n in range(1001)}}, "names 1001 files"),
        ({}, "weight_map is missing"),
        ([], "is a JSON list"),
    ],
)
def test_an_index_names_files_in_the_folder(folder, index, message):
    (folder / tiny.WEIGHTS).unlink()
    (folder / tiny.INDEX).write_text(json.dumps(index))
    assert message in faults_of(folder)


def test_several_files_of_weights_are_one_model(tmp_path):
    whole = open_model(tiny.write_folder(tmp_path / "whole")).tensors()
    parts = open_model(tiny.write_folder(tmp_path / "parts", shards=3)).tensors()
    assert parts.keys() == whole.keys()
    assert all(np.array_equal(parts[name], whole[name]) for name in whole)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2e-3), ("bfloat16", 1e-2)])
def test_half_precision_is_read_as_float32(tmp_path, dtype, error):
    whole = open_model(tiny.write_folder(tmp_path / "whole")).tensors()
    halves = open_model(tiny.write_folder(tmp_path / "half", dtype=dtype)).tensors()
    assert halves.keys() == whole.keys()
    assert {tensor.dtype for tensor in halves.values()} == {np.dtype(np.float32)}
    for name, tensor in whole.items():
        assert halves[name] == pytest.approx(tensor, rel=error, abs=error), name


def test_weights_of_another_shape_or_kind_or_not_finite_are_named(tmp_path):
    def change(tensors):
        names = list(tensors)
        tensors[names[0]] = np.ascontiguousarray(tensors[names[0]][:-1])
        tensors[names[1]][...] = np.nan
        del tensors[names[2]]
        changed.extend(names[:3])

    changed = []
    said = faults_of(tiny.write_folder(tmp_path / "wrong", change=change))
    for name in changed:
        assert name.removeprefix("bert.") in said
    for words in ("found the shape", "NaN or infinite", "the tensor is missing"):
        assert words in said
    import ml_dtypes

    odd = tiny.write_folder(tmp_path / "odd")
    save_file({"a": np.zeros(4, ml_dtypes.float8_e4m3fn)}, odd / tiny.WEIGHTS)
    assert "model.safetensors" in faults_of(odd)


def test_the_tokenizer_neither_cuts_nor_pads_whatever_its_file_says(tmp_path):
    made = open_model(tiny.write_folder(tmp_path / "cuts", cuts=True)).tokenizer()
    assert len(made.encode("tower").ids) == 3
    assert len(made.encode("tower " * 600).ids) == 602


def test_what_is_no_folder_is_refused_and_nothing_leaves_the_machine(tmp_path):
    for where, words in (
        (tmp_path / "none", "there is no folder"),
        (str(tmp_path / "no\nne"), "there is no folder"),
        ("x" * 5000, "there is no folder"),
        ("nul\0l", "there is no folder"),
        (tiny.write_folder(tmp_path / "model") / "config.json", "is a file; allowed: a folder"),
    ):
        with pytest.raises(SettingsError, match=words):
            open_model(where)
    done = fcjax("doctor", "--relation-model", "no-such/name", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hub"))
    assert done.returncode == UNUSABLE
    (line,) = done.stderr.decode().splitlines()
    assert "there is no folder 'no-such/name', and it could not be fetched from the hub" in line


def test_the_digest_is_of_all_that_changes_an_answer_and_of_nothing_else(tmp_path, folder):
    made = open_model(folder)
    assert made.name == f"model@{made.digest[:12]}"
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    for name in ("README.md", "vocab.txt", "pytorch_model.bin", "tokenizer_config.json", "training_args.bin"):
        (moved / name).write_text("x")
    (moved / "calibration.json").write_text("{}")
    os.utime(moved / tiny.WEIGHTS, (1, 1))
    assert open_model(moved).digest == made.digest
    for name in ("config.json", "tokenizer.json", tiny.WEIGHTS):
        content = (moved / name).read_bytes()
        (moved / name).write_bytes(content[:-1] + b"\n" + content[-1:])
        assert open_model(moved).digest != made.digest, name
        (moved / name).write_bytes(content)
    parts = tiny.write_folder(tmp_path / "parts", shards=2)
    before = open_model(parts).digest
    first = min(parts.glob("model-*.safetensors"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    assert open_model(parts).digest != before


def test_what_is_written_is_read_again(tmp_path, folder):
    base = open_model(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    tensors = base.tensors() | {"classifier.weight": np.asfortranarray(np.arange(48, dtype=np.float32).reshape(3, 16))}
    out = tmp_path / "deep" / "er"
    write_model(out, {**base.config, "more": True}, tensors, base, {"README.md": "ä"})
    again = open_model(out)
    assert again.config == {**base.config, "more": True}
    assert all(np.array_equal(tensors[name], tensor) for name, tensor in again.tensors().items())
    assert again.tensors().keys() == tensors.keys()
    assert (out / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert (out / "README.md").read_text(encoding="utf-8") == "ä"
    assert {path.name for path in out.iterdir()} == {
        *("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "README.md")
    }
    first = again.digest
    write_model(out, {**base.config, "more": True}, tensors, base, {})
    assert open_model(out).digest == first


def test_a_calibration_of_the_weights_before_is_removed(tmp_path, folder):
    base = open_model(folder)
    out = tiny.write_folder(tmp_path / "out", calibration={"model": "other"})
    write_model(out, base.config, base.tensors(), base, {})
    assert open_model(out).extra == {}


def test_files_keep_their_permissions_and_links_as_other_outputs_do(tmp_path, folder):
    base = open_model(folder)
    out = tmp_path / "out"
    out.mkdir()
    before = os.umask(0o027)
    try:
        (out / "config.json").write_text("{}")
        (out / "config.json").chmod(0o600)
        kept = tmp_path / "elsewhere.safetensors"
        (out / tiny.WEIGHTS).symlink_to(kept)
        target = tmp_path / "victim"
        target.write_text("mine")
        (out / f".{tiny.WEIGHTS}.part").symlink_to(target)
        (out / ".config.json.part").symlink_to(target)
        write_model(out, base.config, base.tensors(), base, {"README.md": "x"})
    finally:
        os.umask(before)
    assert target.read_text() == "mine"
    assert (out / tiny.WEIGHTS).is_symlink()
    assert kept.is_file()

    def mode(name):
        return stat.S_IMODE((out / name).stat().st_mode)

    assert (mode("config.json"), mode("README.md"), mode(tiny.WEIGHTS)) == (0o600, 0o640, 0o640)
    assert open_model(out).tensors().keys() == base.tensors().keys()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, folder):
    base = open_model(folder)
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "inner", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match="choose a folder that can be written"):
            write_model(out, base.config, base.tensors(), base, {})
    assert isinstance(base, ModelFolder)
