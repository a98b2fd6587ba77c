"""Search among the keys of a store.

It is exact in PyTorch, approximate with FAISS, and both at once for a store that changes.
"""
