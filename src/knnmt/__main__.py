"""`python -m knnmt` is the command line."""

from knnmt.cli import main

main()
