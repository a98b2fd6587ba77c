"""The face most people need: `Translator` and the `Translation` it returns."""
