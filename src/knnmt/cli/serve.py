"""`knnmt serve` and `knnmt serve-key`: serve domains over HTTP, and make API keys."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from knnmt.cli.options import Device, Dtype, Threads
from knnmt.cli.setting_options import takes_settings
from knnmt.cli.start import heavy_imports
from knnmt.errors import KnnmtWarning, MissingDependencyError, SettingError
from knnmt.translator.settings import TranslationSettings


@takes_settings("service")
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
        typer.Option(
            "--config", help="A TOML file with settings. Options take precedence over it.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help=(
                "A shipped model, a checkpoint directory, or a Hugging Face name.  [default: the model that built "
                "the first store]"
            ),
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
    host: Annotated[
        str | None, typer.Option(help="The address to listen on.  [default: 127.0.0.1]", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0 for any free one.  [default: 8500]", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A directory for domains that requests make.  [default: requests cannot make domains]",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="A file of API keys (see knnmt serve-key).  [default: no key is needed]",
            show_default=False,
        ),
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Accept requests from other machines without keys.")
    ] = False,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    store_memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MiB",
            help=(
                "The files of open stores have at most this size in sum; the service closes those that were not used "
                "for longest.  [default: half of the machine's memory]"
            ),
            show_default=False,
        ),
    ] = None,
    *,
    settings: TranslationSettings,
) -> None:
    """Serve datastores over HTTP.

    The service decodes the texts of all requests together, whatever their domain. When it confirms a correction, the
    correction is stored, and the next request uses it. By default only this machine can send requests. With another
    --host, the service needs --keys. Settings of translation, such as --beam, are the defaults of requests. After
    SIGTERM or Ctrl-C, the service finishes the running requests and ends.

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
        "store_memory": store_memory,
    }
    given = {name: value for name, value in given.items() if value is not None}
    given["stores"] = dict(_named(each) for each in stores or [])
    given["settings"] = settings
    try:
        import fastapi  # noqa: F401 - only whether it is there
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(error.name or "fastapi", "knnmt serve", "serve") from error
    from knnmt.service.config import ServiceConfig, read_config

    complete = ServiceConfig(**given) if config is None else read_config(config, given)
    warnings.simplefilter("ignore", KnnmtWarning)  # answers contain the warnings
    with heavy_imports():
        from knnmt.service.http.running import run
        from knnmt.service.service import Service
    service = Service(complete)

    def begun(address: str) -> None:
        names = ", ".join(each.name for each in service.domains)
        print(f"knnmt: serving on {address}; domains: {names}", file=sys.stderr, flush=True)

    run(service, begun)


def serve_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of keys. It is created if necessary.")],
    name: Annotated[str, typer.Argument(help="The name of the key: a-z, 0-9, _ and -.")],
    role: Annotated[
        str, typer.Option(help="translate; write (also corrections); or admin (also make and delete domains).")
    ] = "translate",
    domains: Annotated[
        list[str] | None,
        typer.Option("--domain", help="Only for this domain; can be repeated.  [default: all]", show_default=False),
    ] = None,
    per_minute: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many requests per minute.  [default: any number]", show_default=False),
    ] = None,
) -> None:
    """Make an API key for `knnmt serve` and print it.

    The file keeps only a hash, so the key cannot be shown again. To revoke a key, delete its entry from the file; a
    running service notices.

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
        raise SettingError(f"--store {given}: expected NAME=STORE, such as software=projekt.store")
    return name, Path(path)
