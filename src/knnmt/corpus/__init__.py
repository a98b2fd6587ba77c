"""Text in and out: translation memories of every format, segment pairs, lines of files, sentences of lines."""
