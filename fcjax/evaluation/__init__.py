"""Evaluation of corrections: gains by several measures, significance tests, tables and plots (SPEC 5).

It works on result rows (SPEC 7) of any origin; the judges ask a model through an `ask`, as the stages do.
"""
