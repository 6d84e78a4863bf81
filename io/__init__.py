"""The outside world: files, language models, and the store of their replies. Never imports jax."""
