"""Commands of `knnmt` that belong to the laboratory."""
