"""From fact graphs to posteriors and their influences (SPEC 4). The only callers of the kernels."""
