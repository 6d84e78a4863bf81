"""Options of the commands, declared once per section of their help."""
