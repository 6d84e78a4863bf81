"""`fcjax cache import --batch`: outputs of batches into the store, and what is printed of it."""

from __future__ import annotations

from pathlib import Path

import click

from fcjax.cli import shell
from fcjax.cli.batch_out import batch_price
from fcjax.cli.summary import counts
from fcjax.core.errors import InputError
from fcjax.io.batches.outputs import book_folder, import_outputs, output_files


def import_batch(
    ctx: click.Context,
    sources: tuple[str, ...],
    folder: Path | None,
    price: tuple[float, float] | None,
    store: Path,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Take outputs into the store, print what became of them, and leave."""
    place, files = _outputs(sources, folder)
    done = import_outputs(store, files, place, price=lambda endpoint, model: batch_price(endpoint, model, price))
    if as_json:
        report = {name: getattr(done, name) for name in ("added", "known", "first_failure", "n_faults")}
        report |= {"n_failed": done.failed.total(), "failed": dict(done.failed)}
        report["missing"] = [{"file": name, "missing": left, "requests": of} for name, left, of in done.missing]
        report["faults"] = [shell.fault_dict(fault) for fault in done.faults]
        shell.print_json({"store": str(store), "files": [str(file) for file in files]} | report)
    elif not quiet:
        known = f"; {done.known:,} known before" if done.known else ""
        shell.echo(f"{store}: {shell.counted(done.added, 'reply').replace('replys', 'replies')} added{known}")
        if done.failed:
            failed = shell.counted(done.failed.total(), "prompt")
            shell.echo(f"{failed} failed ({counts(done.failed)}); the first: {done.first_failure}")
        for name, left, of in done.missing:
            shell.echo(f"{name}: {left:,} of {shell.counted(of, 'request')} have no outcome; the next round asks again")
        shell.echo("next: run the command with --batch-out again")
    shell.say_faults(done.faults, done.n_faults)
    ctx.exit(shell.SOME_FAILED if done.n_faults else shell.OK)


def _outputs(sources: tuple[str, ...], folder: Path | None) -> tuple[Path, list[Path]]:
    """The folder of the requests, and the outputs; a folder among the sources stands for those in it."""
    files: dict[Path, Path] = {}  # each with the folder that it lies in
    for source in map(Path, sources):
        if source.is_dir():
            if not (found := output_files(folder or source)):
                seen = f"{source}: holds no outputs (NAME.output.jsonl)"
                raise InputError(f"{seen}; run fcjax batch fetch, or name the files")
            files |= dict.fromkeys(found, source)
        else:
            files[source] = folder or book_folder(source)
    folders = {folder} if folder else set(files.values())
    if len(folders) > 1:
        raise InputError(f"the outputs lie in {len(folders)} folders; import those of one folder at a time")
    return folders.pop(), list(files)
