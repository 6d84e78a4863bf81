"""Sources of evidence: where the passages for a query come from."""
