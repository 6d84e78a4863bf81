"""Compiled kernels on disk never outlive any of the sources that they were made of."""

from pathlib import Path

from fcjax.kernels import _renew_compiled_code


def compiled(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "__pycache__").glob("*.nb?"))


def test_a_change_of_one_file_drops_what_all_files_were_compiled_to(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("A = 1\n")
    (tmp_path / "b.py").write_text("B = 1\n")
    _renew_compiled_code(tmp_path)
    for name in ("a.f.nbi", "a.f.1.nbc", "b.g.nbi"):
        (tmp_path / "__pycache__" / name).write_bytes(b"")
    _renew_compiled_code(tmp_path)
    assert compiled(tmp_path) == ["a.f.1.nbc", "a.f.nbi", "b.g.nbi"]
    (tmp_path / "a.py").write_text("A = 22\n")
    _renew_compiled_code(tmp_path)
    assert compiled(tmp_path) == []
