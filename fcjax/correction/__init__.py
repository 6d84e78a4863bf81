"""Correctors: Algorithm 1 (SPEC 6), what every method of correction shares, and the baselines."""
