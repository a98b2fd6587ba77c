"""Segments of a memory by the words of their sources: the best match, and those that cover a source."""
