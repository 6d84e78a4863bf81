"""Transformer encoders in Flax: arrays in, arrays out (SPEC 9, Local)."""
