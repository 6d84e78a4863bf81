"""Readers of model replies: labels, lists, refusals. For any input, they return what they can read."""
