"""Processes of a small parent, whose peak of memory is their own."""

from __future__ import annotations

# A process starts with the peak of the one that started it; a small one in between keeps pytest's own out of it.
IN_BETWEEN = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True)"
