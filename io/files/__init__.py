"""The file formats of SPEC 7, read and written as streams."""
