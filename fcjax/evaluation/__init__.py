"""How much a correction gains, by which measure, and how sure that is: measures, tests, tables and pictures (SPEC 5).

It works on result rows (SPEC 7), whoever wrote them; the judges ask a model through an `ask`, as the stages do.
"""
