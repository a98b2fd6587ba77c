"""Compares the speed of systems, in turns, each in its own process."""
