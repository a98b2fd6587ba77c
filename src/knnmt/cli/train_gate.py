"""`knnmt train-gate`: learn from development text which steps of a translation are worth a search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.adapting.development_text import read_development
from knnmt.cli.advice import command
from knnmt.cli.change import StoreArgument
from knnmt.cli.interrupt import ends_with
from knnmt.cli.options import AllDev, Development, Device, Exact, KeepKnown, ModelOfStore, Threads
from knnmt.cli.progress import counter
from knnmt.cli.start import heavy_imports
from knnmt.corpus.splitting import divide
from knnmt.errors import InputError

if TYPE_CHECKING:
    from knnmt.adapting.gate_training import Epoch, GateText, Training
    from knnmt.retrieval.gate import TrainedGate

_TRAINING = 0.8  # the rest of the text for learning decides when to stop
_ALPHAS = (0.25, 0.5, 0.75)


def train_gate(
    store: StoreArgument,
    development: Development,
    features: Annotated[
        str,
        typer.Option(
            help="What the gate sees beside the decoder state: confidence, entropy, or both separated by a comma; "
            "an empty text gives it the state alone. Entropy makes every step slower."
        ),
    ] = "confidence",
    epochs: Annotated[
        int, typer.Option(min=1, help="At most this many epochs; training ends when validation no longer improves.")
    ] = 100,
    l1: Annotated[
        float, typer.Option("--l1", min=0, help="Cost of λ in nats. A larger cost makes fewer steps worth a search.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="The same seed trains the same gate.")] = 0,
    k: Annotated[
        int | None, typer.Option(min=1, help="Neighbours per step.  [default: the store's]", show_default=False)
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="How evenly neighbours share the weight. A higher value gives far neighbours more.  [default: the "
            "store's]",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Take k and T from this profile.  [default: the store's]", show_default=False)
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Learn from at most this many pairs of DEV, and report at most this many.")
    ] = 10_000,
    all_dev: AllDev = False,
    keep_known: KeepKnown = False,
    save: Annotated[bool, typer.Option(help="Save the gate in place of an earlier one.")] = True,
    exact: Exact = False,
    model: ModelOfStore = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train a gate, which decides which steps to search. It predicts the weight of the memory (λ).

    `knnmt translate -d STORE --gate 0.5` then searches only the steps whose λ is above 0.5, and uses that λ. A larger
    threshold searches less. The gate is kept in the store's directory and belongs to the k and T that it was trained
    for. After a new tuning, or for a store made from this one, train again. An earlier gate for the same k and T stays
    if it loses less on the reported pairs than the new one.

    A hash of the sources divides DEV. One half trains the gate (a fifth of it decides when to stop). The other half is
    reported, as losses in nats per token. The report compares the gate with a random choice of as many steps: a gate is
    useful if it loses less.

    Examples:

        knnmt train-gate projekt.store --dev probe.tsv

        knnmt train-gate projekt.store --dev probe.tsv --features confidence,entropy --l1 0.2

        knnmt translate -d projekt.store --gate 0.25 handbuch.de.txt
    """
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    text = read_development(opened, development, pairs, all_dev, keep_known, typer.echo)
    teaching, validating = divide(text.tuning, _TRAINING)
    if not teaching or not validating:
        raise InputError(f"{development}: {len(text.tuning)} pairs are too few to learn from; give more pairs")
    with heavy_imports():
        from dataclasses import replace

        from knnmt.adapting.gate_training import GateConfig, gate_text
        from knnmt.adapting.gate_training import train_gate as train
        from knnmt.evaluation.loading import translator_of_store
        from knnmt.retrieval.gate import FILE, earlier_like
        from knnmt.retrieval.settings import RetrievalSettings
        from knnmt.translator.memories import warn_if_slow
    named = tuple(filter(None, map(str.strip, features.split(","))))
    config = GateConfig(named, epochs, l1=l1, seed=seed)
    with ends_with("the store keeps the gate it had, if any", store / FILE, f"the gate is saved: {store / FILE}"):
        translator = translator_of_store(opened, model, device, threads, exact)
        memory = translator.memories.open(opened)
        warn_if_slow(memory.opened)
        asked = RetrievalSettings(k=k, temperature=temperature, profile=profile, search="whole")
        retrieval = replace(memory.resolve(asked), cache=None, gate=None)
        parts = []
        for some in (teaching, validating, *([] if all_dev else [text.reported])):
            with counter("forcing", lambda some=some: 2 * len(some), "pairs passed") as progress:  # type: ignore[misc]
                parts.append(
                    gate_text(translator.engine, memory.opened, some, retrieval, config.features, progress=progress)
                )
        training, validation, reported = parts[0], parts[1], parts[-1]
        typer.echo(
            f"positions   {len(training):,} for training, {len(validation):,} for validation, {len(reported):,} "
            f"reported; k {retrieval.k}, T {retrieval.temperature:.4g}\n\nepoch  training  validation"
        )
        trained = train(memory.opened, training, validation, retrieval, config, _say)
        before = earlier_like(trained.gate, opened)
        stays = _report(trained, reported, before)
        if stays:
            typer.echo(
                f"kept        {opened.path / FILE} unchanged, because it loses less; remove it to replace it anyway"
            )
        elif save:
            memory.opened.datastore.require_unchanged()
            trained.gate.write(opened.path)
            used = command("translate", *([] if model is None else ["-m", model]), "-d", store, "--gate", 0.5)
            typer.echo(f"saved       {opened.path / FILE}; {used} uses it")


def _say(epoch: Epoch) -> None:
    typer.echo(f"{epoch.number:>5}  {epoch.training:8.4f}  {epoch.validation:10.4f}")


def _report(trained: Training, text: GateText, before: TrainedGate | None) -> bool:
    """Losses of the reported text, and the effect of thresholds, for both readings of α.

    Returns True if an earlier gate of the same kind loses less.
    """

    names = {
        "alone": "the model alone",
        "fixed": f"fixed λ {trained.fixed:.2f}",
        "fading": "fading λ",
        "gate": "the gate's λ, every step searched",
        "before": "λ of the earlier gate",
    }
    typer.echo(f"chosen      epoch {trained.gate.record.epochs}\n\n{'reported':<36}{'loss':>8} {'perplexity':>11}")
    losses = trained.losses(text)
    if before is not None:
        losses["before"] = text.loss(before.predicted(text.inputs))
    for name, loss in losses.items():
        typer.echo(f"{names[name]:<36}{loss:8.4f} {math.exp(loss):11.3f}")
    typer.echo("\nα: searched if    searched      loss   by chance   by chance, fading λ")
    for rule, thresholds in (("λ > α", _ALPHAS), ("λ > 1 - α", [1 - alpha for alpha in _ALPHAS])):
        for alpha, each in zip(_ALPHAS, trained.judge(text, thresholds), strict=True):
            typer.echo(
                f"{alpha:4.2f}: {rule:<12}{each.searched:8.1%} {each.gate:9.4f} {each.chance:11.4f} "
                f"{each.chance_fading:21.4f}"
            )
    typer.echo("(--gate takes λ > α, as the paper says; the numbers in its tables grow with α, as with λ > 1 - α)\n")
    if losses["gate"] > losses["alone"]:
        typer.echo("note        this gate is worse than no memory at all; train it with more pairs or more epochs")
    return losses["gate"] > losses.get("before", math.inf)
