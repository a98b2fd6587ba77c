"""`knnmt serve` and `knnmt serve-key`: domains behind HTTP, and the keys that open them."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from knnmt.cli.start import heavy_imports
from knnmt.errors import KnnmtWarning, MissingDependencyError, SettingError


def serve(
    stores: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            "-d",
            metavar="NAME=STORE",
            help="A domain and its datastore; can be repeated.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Settings in TOML; what is given here counts before them.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A shipped model, a checkpoint directory, or a Hugging Face name.  [default: the one that the first "
            "store was built with]",
            show_default=False,
        ),
    ] = None,
    default: Annotated[
        str | None,
        typer.Option(
            help="The domain of requests that name none; base is the model alone.  [default: the only store, or base]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Where to listen.  [default: 127.0.0.1]", show_default=False)] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 for any that is free.  [default: 8500]", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A directory for domains that requests make.  [default: none can be made]", show_default=False
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="The file of API keys (see knnmt serve-key).  [default: everybody may do everything]",
            show_default=False,
        ),
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Listen to other machines though there are no keys.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.  [default: cuda where there is one]", show_default=False)
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="As of knnmt translate.  [default: float32 on a CPU, float16 on cuda]", show_default=False),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads.  [default: all cores]", show_default=False)
    ] = None,
) -> None:
    """Serve datastores over HTTP.

    Requests of all domains are translated together. Corrections that are sent to a domain last when they are answered,
    and the next request uses them. Only this machine can ask, unless --host says otherwise; then there must be keys.
    SIGTERM and Ctrl-C end it when what was asked for is done.

    Examples:

        knnmt serve --store software=projekt.store

        knnmt serve --store medical=medizin.store --store law=recht.store --host 0.0.0.0 --keys keys.json
    """
    given: dict[str, Any] = {
        "model": model,
        "default": default,
        "host": host,
        "port": port,
        "data": data,
        "keys": keys,
        "open_to_all": open_to_all or None,
        "device": device,
        "dtype": dtype,
        "threads": threads,
    }
    given = {name: value for name, value in given.items() if value is not None}
    given["stores"] = dict(_named(each) for each in stores or [])
    try:
        import fastapi  # noqa: F401 - only whether it is there
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(error.name or "fastapi", "knnmt serve", "serve") from error
    from knnmt.service.config import ServiceConfig, read_config

    settings = ServiceConfig(**given) if config is None else read_config(config, given)
    warnings.simplefilter("ignore", KnnmtWarning)  # answers have them
    with heavy_imports():
        from knnmt.service.running import run
        from knnmt.service.service import Service
    service = Service(settings)

    def begun(address: str) -> None:
        names = ", ".join(each.name for each in service.domains)
        print(f"knnmt: serving on {address}; domains: {names}", file=sys.stderr, flush=True)

    run(service, begun)


def serve_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of keys; made where it is not there yet.")],
    name: Annotated[str, typer.Argument(help="Whose key it is: a-z, 0-9, _ and -.")],
    role: Annotated[
        str, typer.Option(help="translate; write: corrections, too; admin: making and deleting domains, too.")
    ] = "translate",
    domains: Annotated[
        list[str] | None,
        typer.Option("--domain", help="Only for this domain; can be repeated.  [default: all]", show_default=False),
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option(min=1, help="Most requests a minute.  [default: any number]", show_default=False)
    ] = None,
) -> None:
    """Make an API key for `knnmt serve` and print it.

    The file keeps a hash of it alone: nobody can find it out later. To take a key back, delete its entry in the file; a
    service that runs notices.

    Example:

        knnmt serve-key keys.json omegat --role write --domain software
    """
    from knnmt.service.access import ROLES, new_key

    if role not in ROLES:
        raise SettingError(f"--role must be one of {', '.join(ROLES)}, got {role!r}")
    typer.echo(new_key(file, name, role, domains, per_minute))


def _named(given: str) -> tuple[str, Path]:
    name, parted, path = given.partition("=")
    if not (name and parted and path):
        raise SettingError(f"--store {given}: expected NAME=STORE, as software=projekt.store")
    return name, Path(path)
