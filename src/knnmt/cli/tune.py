"""`knnmt tune`: choose settings of a store that fit development text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knnmt.adapting.development_text import MAX_PAIRS, read_development
from knnmt.adapting.tuning_config import BLEU_LOSS, CACHE_LOSS, SAMPLE, TuningConfig, refuse_idle
from knnmt.cli.change import StoreArgument
from knnmt.cli.interrupt import ends_with
from knnmt.cli.options import Device, Exact, KeepKnown, ModelOfStore, Threads
from knnmt.cli.progress import progress_bars
from knnmt.cli.start import heavy_imports
from knnmt.config import DEFAULT_SEGMENTS, FastConfig
from knnmt.datastore.settings import SETTINGS


def tune(
    store: StoreArgument,
    development: Annotated[Path, typer.Option("--dev", help="Pairs like the text to translate, in any memory format.")],
    pairs: Annotated[
        int,
        typer.Option(min=1, help="Tune on at most this many pairs, and report at most this many, from all over DEV."),
    ] = MAX_PAIRS,
    all_dev: Annotated[
        bool,
        typer.Option("--all-dev", help="Tune and report on all of DEV, if you have a separate test set."),
    ] = False,
    keep_known: KeepKnown = False,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Save the profile under this name, with NAME-fixed and NAME-cache (for knn: cache), and make it "
            "the store's default.  [default: segments; knn with --whole; bleu with --method bleu and fast with --fast, "
            "which do not become the default]",
            show_default=False,
        ),
    ] = None,
    save: Annotated[bool, typer.Option(help="Save the profiles.")] = True,
    method: Annotated[
        str, typer.Option(help="likelihood; or bleu, the paper's slow search over k and a fixed λ.")
    ] = "likelihood",
    temperature: Annotated[
        float | None,
        typer.Option(help="T for --method bleu.  [default: the best by likelihood]", show_default=False),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Let BLEU choose among the best settings and confirm τ, and report BLEU.")
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help=f"Pairs translated for each BLEU.  [default: {SAMPLE}]", show_default=False),
    ] = None,
    cache_loss: Annotated[
        float,
        typer.Option(min=0, help="With --whole: the cache may lose at most this many nats per token."),
    ] = CACHE_LOSS,
    bleu_loss: Annotated[
        float | None,
        typer.Option(
            min=0,
            help=f"With --whole --confirm: the cache may lose at most this much BLEU.  [default: {BLEU_LOSS:g}]",
            show_default=False,
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Tune Fast kNN-MT instead, and save it as fast and fast-fixed: knnmt translate --fast uses it.",
        ),
    ] = False,
    fast_candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="C",
            help="With --fast: occurrences of each source token in a sentence's store.  [default: 512]",
            show_default=False,
        ),
    ] = None,
    combiner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --method bleu: your own combiner, package.module:Name.", show_default=False
        ),
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --method bleu: your own gate, package.module:Name.", show_default=False
        ),
    ] = None,
    segments: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Tune search in this many segments for each sentence.  [default: {DEFAULT_SEGMENTS}]",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Tune search of the whole store instead, and its cache: knnmt translate --search whole uses it.",
        ),
    ] = False,
    exact: Exact = False,
    model: ModelOfStore = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Choose k, T, λ and cache of a store on development text. They are saved with the store.

    One pass over the pairs gives the model's probability of every token and the 64 nearest entries. The likelihood of
    thousands of settings follows from these. Losses are in nats per token; perplexity is their exponential. τ of the
    cache is the largest that loses at most --cache-loss on the states that beam search visits.

    A hash of the sources divides DEV: one half tunes, the other is reported. Settings that lose more on either half
    than the present ones do not become the default. Pairs whose source the store holds are left out. `knnmt translate
    -d STORE` uses the default profile. `--profile NAME` uses another one, and `--profile estimated` the settings that
    were estimated from the store alone.

    Examples:

        knnmt tune projekt.store --dev probe.tsv

        knnmt tune projekt.store --dev probe.tsv --confirm

        knnmt tune projekt.store --dev probe.tsv --fast

        knnmt tune projekt.store --dev probe.tsv --segments 64

        knnmt tune projekt.store --dev probe.tsv --method bleu --temperature 10      (the paper's)
    """
    from knnmt.datastore.store import Datastore

    refuse_idle(fast_candidates is not None and not fast, "--fast-candidates needs --fast")
    fast_config = FastConfig(fast_candidates or FastConfig().candidates) if fast else None
    config = TuningConfig(
        method=method,
        profile=profile,
        temperature=temperature,
        confirm=confirm,
        sample=sample,
        cache_loss=cache_loss,
        bleu_loss=bleu_loss,
        fast=fast_config,
        segments=segments,
        whole=whole,
        combiner=combiner,
        gate=gate,
    )
    opened = Datastore.open(store)
    text = read_development(opened, development, pairs, all_dev, keep_known, typer.echo)
    with heavy_imports():
        from knnmt.adapting.tune import tune as tune_store
    with ends_with("the store keeps the profiles it had", store / SETTINGS, "the profiles are saved"):
        tune_store(
            opened,
            text,
            config,
            save=save,
            model=model,
            device=device,
            threads=threads,
            exact=exact,
            on_message=typer.echo,
            progress=progress_bars,
        )
