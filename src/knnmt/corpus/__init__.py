"""Text in: segment pairs, lines of files, sentences of lines."""
