"""Fitting a store: the settings, the index and the gate that serve it best, by text that it does not hold."""
