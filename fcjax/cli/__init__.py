"""The command line: one module per command, groups of options, tables and progress."""
