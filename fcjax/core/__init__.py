"""Records that every room shares, checks of what callers pass, errors, and what is known about words and languages."""
