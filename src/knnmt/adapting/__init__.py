"""Adapting a model to a memory: building a store, tuning it on held-out text, training gates, measuring the gain."""
