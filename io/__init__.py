"""The outside world: files, and later clients, stores and retrievers. Never imports jax."""
