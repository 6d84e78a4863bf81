"""The digest that identifies a case, and the number of distinct atoms that K needs, from its JSON alone."""

from __future__ import annotations

import hashlib
from typing import Any, Final

DIGEST_SIZE: Final = 16  # bytes


def digest_of(content: bytes) -> bytes:
    """The digest of a case's line, as `fcjax` writes it."""
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest()


def count_atoms(value: dict[str, Any]) -> int | None:
    """The number of distinct atoms of a case: duplicates are merged and count once."""
    if isinstance(nodes := value.get("nodes"), list):
        return len([node for node in nodes if isinstance(node, dict) and node.get("type") == "atom"])
    atoms = value.get("atoms")
    if not isinstance(atoms, list):
        return None
    texts = [str(atom.get("text", "")).strip() if isinstance(atom, dict) else "" for atom in atoms]
    return len(set(filter(None, texts))) + texts.count("")
