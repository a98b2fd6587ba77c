"""The door for models that `transformers` runs: our stores in people's own `model.generate()`."""
