"""Documents: the units to translate are found in a file, and everything but their targets stays as it was."""
