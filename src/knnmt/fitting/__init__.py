"""Fitting a store: its best settings, index and gate, chosen with text that it does not hold."""
