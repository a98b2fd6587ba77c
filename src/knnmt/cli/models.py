"""`knnmt models`: list the models that can translate."""

from __future__ import annotations

import json

import typer

from knnmt.engine.shipped import MODELS_DIRECTORY, shipped_models


def models() -> None:
    """List the models of this package. Also say how to use others."""
    for name in shipped_models():
        directory = MODELS_DIRECTORY / name
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        megabytes = sum(path.stat().st_size for path in directory.iterdir()) / 1e6
        source, target = name.split("-")
        typer.echo(f"{name}, from {source} to {target}")
        typer.echo(
            f"  {config['model_type']}, {config['encoder_layers']} + {config['decoder_layers']} layers of width "
            f"{config['d_model']}, {config['vocab_size']:,} tokens, {megabytes:.0f} MB"
        )
        typer.echo(f"  {directory}")
        typer.echo(f"  {directory / 'README.md'} is its card: sources, licence, scores and limits")
    typer.echo(
        "\nThe languages of the memory, the document or the text choose between them."
        "\n\nAny other model: --model DIRECTORY (a Hugging Face checkpoint: config.json, weights, tokenizer)"
        "\nor --model NAME from the Hugging Face hub, such as Helsinki-NLP/opus-mt-de-en (pip install 'knnmt[hub]')."
        "\nMarian, FSMT, BART, mBART, M2M100, NLLB and Pegasus run on our own transformer, other sequence-to-sequence"
        "\nmodels run on transformers (pip install 'knnmt[transformers]'). A multilingual model needs both"
        "\nlanguages, such as --source-lang de --target-lang en."
    )
