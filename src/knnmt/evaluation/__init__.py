"""Scores, speed and tuning, for choosing settings and for research."""
