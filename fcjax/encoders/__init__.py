"""Encoders at work: a model's folder as a relation model, and as embeddings of texts (SPEC 9, Local)."""
