"""Readers of model replies: labels, lists, refusals. Whatever the bytes, they return what they could read."""
