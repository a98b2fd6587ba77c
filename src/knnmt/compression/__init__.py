"""Smaller stores from larger ones, and the large one stays as it was: PCA makes keys shorter, pruning makes them fewer.

`manifest.transforms` names what was done, in order. A new store appears whole or not at all.
"""
