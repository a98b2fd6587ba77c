"""Scores, speed, tuning: what a practitioner chooses settings by, and a researcher trusts."""
