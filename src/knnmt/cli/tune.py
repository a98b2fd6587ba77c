"""`knnmt tune`: settings of a store that fit development text."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from knnmt.cli.change import Store
from knnmt.cli.interrupt import ends_with
from knnmt.cli.options import Device, Exact, KeepKnown, ModelOfStore, Threads
from knnmt.cli.start import heavy_imports
from knnmt.cli.tuning_steps import TuningSteps, load_for, read_text
from knnmt.config import FastConfig
from knnmt.datastore.settings import SETTINGS
from knnmt.errors import SettingError, StorageError

METHODS = ("likelihood", "bleu")
_SAMPLE = 200
_BLEU_LOSS = 0.1


def tune(
    store: Store,
    development: Annotated[Path, typer.Option("--dev", help="Pairs like the text to come, in any memory format.")],
    pairs: Annotated[int, typer.Option(min=1, help="Most pairs to tune on, and to report, from all over DEV.")] = 1000,
    all_dev: Annotated[
        bool,
        typer.Option("--all-dev", help="Tune on all of DEV and report on it, too: where a test set is elsewhere."),
    ] = False,
    keep_known: KeepKnown = False,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Save under this name, NAME-fixed and NAME-cache (for knn: cache) beside it, and make it the store's "
            "default.  [default: knn; with --method bleu: bleu, with --fast: fast, which do not become the default]",
            show_default=False,
        ),
    ] = None,
    save: Annotated[bool, typer.Option(help="Save the profiles.")] = True,
    method: Annotated[
        str, typer.Option(help="likelihood, or bleu: the paper's search over k and fixed λ, slowly.")
    ] = "likelihood",
    temperature: Annotated[
        float | None,
        typer.Option(help="T for --method bleu.  [default: the best by likelihood]", show_default=False),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Let BLEU decide among the best, confirm τ, and report BLEU.")
    ] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Pairs translated for each BLEU.  [default: 200]", show_default=False)
    ] = None,
    cache_loss: Annotated[
        float, typer.Option(min=0, help="Most nats a token that the cache, shorter keys or a faster search may lose.")
    ] = 0.01,
    bleu_loss: Annotated[
        float | None,
        typer.Option(
            min=0, help="Most BLEU that the cache may lose, with --confirm.  [default: 0.1]", show_default=False
        ),
    ] = None,
    dims: Annotated[bool, typer.Option("--dims", help="Say how short keys may be (knnmt reduce).")] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Say how faithful the search must be (knnmt index).")
    ] = False,
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
    plot: Annotated[
        Path | None, typer.Option(metavar="STEM", help="Draw STEM.png and STEM.svg.", show_default=False)
    ] = None,
    exact: Exact = False,
    model: ModelOfStore = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Choose k, T, λ and cache of a store on development text. They are saved with the store.

    One pass over the pairs gives the model's probability of every token and the 64 nearest entries; the likelihood of
    thousands of settings follows from these. Losses are nats a token; perplexity is their exponential. τ of the cache
    is chosen over the states that beam search goes through: the largest that loses no more than --cache-loss.

    DEV is divided by a hash of its sources: one half tunes, the other is reported. Settings that lose more of either
    than those that the store has now do not become its default. Pairs whose source the store holds are left out.
    `knnmt translate -d STORE` uses the default profile, `--profile NAME` another, and `--profile estimated` what was
    estimated from the store alone.

    Examples:

        knnmt tune projekt.store --dev probe.tsv

        knnmt tune projekt.store --dev probe.tsv --confirm --plot tuning

        knnmt tune projekt.store --dev probe.tsv --dims --search --no-save

        knnmt tune projekt.store --dev probe.tsv --fast

        knnmt tune projekt.store --dev probe.tsv --method bleu --temperature 10      (the paper's)
    """
    from knnmt.datastore.store import Datastore
    from knnmt.retrieval.profiles import BY_BLEU, FAST, TUNED, names_of_tuning

    if method not in METHODS:
        raise SettingError(f"--method must be {' or '.join(METHODS)}, got {method!r}")
    by_bleu = confirm or method == "bleu"
    _refuse_idle(temperature is not None and method != "bleu", "--temperature is for --method bleu")
    _refuse_idle(sample is not None and not by_bleu, "--sample is for --confirm or --method bleu")
    _refuse_idle(bleu_loss is not None and not confirm, "--bleu-loss is for --confirm")
    _refuse_idle(exact and search, "--search judges the index, which --exact does not use")
    _refuse_idle(fast_candidates is not None and not fast, "--fast-candidates is for --fast")
    _refuse_idle(
        fast and (method == "bleu" or dims or search),
        "--fast tunes k, T and λ by likelihood: --method bleu, --dims and --search are for the other way",
    )
    usual = FAST if fast else BY_BLEU if method == "bleu" else TUNED
    names = names_of_tuning(usual if profile is None else profile)
    as_default = profile is not None or usual == TUNED
    opened = Datastore.open(store)
    if plot is not None:
        _prepare_place(plot)
    text = read_text(opened, development, pairs, all_dev, keep_known)
    with heavy_imports():
        from knnmt.evaluation.plotting import new_figure
        from knnmt.evaluation.scoring import require_sacrebleu
        from knnmt.retrieval.open_store import require_for_fast
    if fast:
        require_for_fast(opened)
    if by_bleu:
        require_sacrebleu(opened.manifest.target_language)
    if plot is not None:
        new_figure()  # what is missing shows before the work
    with ends_with("the store keeps the profiles it had", store / SETTINGS, "the profiles are saved"):
        translator = load_for(opened, model, device, threads, exact)
        of_fast = FastConfig(fast_candidates or FastConfig().candidates) if fast else None
        tuning = TuningSteps(translator, translator.memories.open(opened), text, sample or _SAMPLE, of_fast)
        tuned = tuning.by_likelihood()
        if method == "bleu":
            chosen = tuned.fixed.fixed.temperature if temperature is None else temperature
            main = tuning.by_bleu(chosen, with_present=as_default)
        else:
            main = tuning.confirm(tuned) if confirm else tuning.unless_worse(tuned.fading.fading)
        fixed = tuned.fixed.fixed if method == "likelihood" else None
        most_bleu = _BLEU_LOSS if bleu_loss is None else bleu_loss
        caches, cache = ([], None) if fast else tuning.cache(main, cache_loss, most_bleu if confirm else None)
        of_dims = tuning.dims(main, cache_loss) if dims else []
        of_search = tuning.search(main, cache_loss) if search else []
        found = {name: config for name, config in zip(names, (main, fixed, cache), strict=True) if config}
        tuning.report(found, with_bleu=confirm)
        if save:
            tuning.save(found, names, by_bleu, as_default)
    if plot is not None:
        from knnmt.evaluation.tuning_figures import draw_tuning

        try:
            written = draw_tuning(plot, tuned, caches, of_dims, of_search, cache_loss)
        except OSError as error:
            kept = "; the profiles are saved" if save else ""
            raise StorageError(
                f"{error.filename or plot}: the figure cannot be written: {error.strerror or error}{kept}. "
                "Mend that, or choose another STEM"
            ) from error
        typer.echo(f"drawn       {', '.join(map(str, written))}")


def _refuse_idle(idle: bool, problem: str) -> None:
    """Refuse an option that would have no effect."""
    if idle:
        raise SettingError(f"{problem}: it would have no effect here")


def _prepare_place(stem: Path) -> None:
    """Make the directory of a figure and see that it can be written to: before the work, not after it."""
    from knnmt.datastore.publication import storage_errors

    if not stem.name:
        raise SettingError(f"--plot needs the beginning of a file's name, got {str(stem)!r}")
    with storage_errors(stem):
        stem.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=stem.parent).close()
