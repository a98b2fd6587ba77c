"""Comparing the speed of systems, in turns, each in a process of its own."""
