"""Searching the keys of a store: exact in PyTorch, approximate with FAISS, and both at once over a store that lives."""
