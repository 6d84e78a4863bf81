"""Arrays in, arrays out: the compiled kernels of the engine (DESIGN 2)."""
