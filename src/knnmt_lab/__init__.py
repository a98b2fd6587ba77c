"""The laboratory of knnmt: the reproduction of the paper, speed measurements, and comparisons with other systems.

It uses `knnmt`, which never imports it. Its commands and its parts of `knnmt evaluate` are registered as entry points
(pyproject.toml). Install its dependencies with `pip install 'knnmt[lab]'`.
"""
