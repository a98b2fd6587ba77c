"""Text input and output: translation memories of every format, segment pairs, lines of files, sentences of lines."""
