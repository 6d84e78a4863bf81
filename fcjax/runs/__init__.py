"""Runs over files: previewed, resumable, in order and in bounded memory."""
