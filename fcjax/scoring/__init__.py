"""From posteriors to results: measures, rows, summaries, feedback (SPEC 3, 5, 6)."""
