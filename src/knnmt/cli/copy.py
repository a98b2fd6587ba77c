"""`knnmt copy`: copy a datastore to storage behind a URL, or from there."""

from __future__ import annotations

from typing import Annotated

import typer

from knnmt.cli.interrupt import ends_with
from knnmt.cli.progress import progress_bars
from knnmt.datastore.manifest import in_bytes, sizes


def copy(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A datastore: a directory, or a URL.")],
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="Where the copy goes: a URL, or a directory that does not exist yet.")
    ],
) -> None:
    """Copy a datastore to a URL, or from a URL to a directory.

    Every file that comes from storage is checked against its SHA-256. Settings and the index are copied as well. The
    manifest is copied last, so a store in storage is always complete. If interrupted, rerun the command; it resumes.
    s3:// needs `pip install 'knnmt[s3]'`, and gs:// needs the package gcsfs.

    Examples:

        knnmt copy projekt.store s3://firma/stores/projekt

        knnmt copy s3://firma/stores/projekt projekt.store
    """
    from knnmt.datastore.copying import copy_store

    with ends_with("rerun the command; it resumes"), progress_bars("copying", "bytes") as progress:
        manifest = copy_store(store, place, progress)
    size = in_bytes(sum(stored.bytes for stored in manifest.files()))
    typer.echo(f"copied     {place}: {sizes(manifest.sentences, manifest.entries)}, {size}")
