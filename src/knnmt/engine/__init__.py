"""The frozen model: encode, step, forced decoding, from checkpoints in the Hugging Face layout."""
