"""Shared records, argument checks, errors, and what is known about words and languages."""
