"""The critic: streams of cases through stages, relations, inference and feedback (SPEC 1, 6)."""
