"""From fact graphs to posteriors, and what moves them (SPEC 4). The only callers of the kernels."""
