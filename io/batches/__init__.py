"""Batch files: prompts that are answered elsewhere, a file at a time, in OpenAI's format.

`Collector` takes the prompts of a run and writes request files, `import_outputs` takes the outputs into the store, and
`Errands` carries files to and from a server. What was asked is in the folder's `Book`.
"""
