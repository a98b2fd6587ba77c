"""Makes smaller stores from larger ones, which stay as they are: PCA shortens the keys, pruning removes entries.

`manifest.transforms` names the transforms in order. A new store appears whole or not at all.
"""
