"""The version, for the build, the package and the command line."""

__version__ = "0.1.0"
