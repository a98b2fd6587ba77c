"""Documents in, documents out: units to translate are found in a file, and all but their targets stays as it was."""
