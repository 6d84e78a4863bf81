"""Fact graphs: which relations make one, and what a relation means as a factor (SPEC 2)."""
