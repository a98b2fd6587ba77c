"""The version, where the build, the package and the command line find it."""

__version__ = "0.1.0"
