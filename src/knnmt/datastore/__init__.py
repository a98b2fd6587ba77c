"""Keys, values and their origins on disk, in a directory that stays valid if a writer is interrupted.

    STORE/
      manifest.json                    describes the store; names every other file with its size and SHA-256
      lock                             held by the one process that writes
      segments/00000-<digest>.safetensors     immutable; `knnmt.datastore.segment` lists the arrays
      segments/00012-joined.safetensors       immutable; an addition with the small segments before it
      segments/00000-removed-g7.safetensors   which sentences of that segment were removed, as of generation 7
      segments/projection.safetensors         in a store with reduced keys: the projection of keys and queries

A store changes only when a new manifest replaces the old one, in one step. Files that no manifest names are
leftovers of an interrupted writer; the next writer clears them away.
"""
