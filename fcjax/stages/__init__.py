"""The stages that ask a language model: what to ask, and how to read the answer. No input or output of their own.

A stage gets an `ask` that turns a `Prompt` into a `Reply` or a `Failure`; who answers, and how fast, is
not its concern.
"""
