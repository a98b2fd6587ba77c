"""Keys, values and where they came from, on disk: a directory that survives anything.

    STORE/
      manifest.json                    what the store is; names every other file with its size and SHA-256
      lock                             held by the one process that writes
      segments/00000-<digest>.safetensors     immutable; `knnmt.datastore.segment` lists the arrays
      segments/00012-joined.safetensors       immutable; an addition with the small segments before it
      segments/00000-removed-g7.safetensors   which sentences of that segment were removed, as of generation 7
      segments/projection.safetensors         in a store with reduced keys: how they, and queries, are reduced

A store changes only by a new manifest put in the place of the old one, in one step. Files that no manifest names are
leftovers of an interrupted writer; the next writer clears them away.
"""
