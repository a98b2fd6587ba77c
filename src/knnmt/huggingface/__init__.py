"""Our stores in the `model.generate()` of `transformers`."""
