"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)]

Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.", show_default=False)]

ModelOfStore = Annotated[
    str | None, typer.Option("--model", "-m", help="The model the store was built with, if it has moved.")
]

KeepKnown = Annotated[bool, typer.Option("--keep-known", help="Use pairs whose source the store holds as well.")]

Exact = Annotated[bool, typer.Option("--exact", help="Search every key, whatever index there is.")]

StoresAsSystems = Annotated[
    list[Path] | None,
    typer.Option(
        "--datastore",
        "-d",
        metavar="STORE",
        help="A system: the model with this store. Can be repeated.",
        show_default=False,
    ),
]
