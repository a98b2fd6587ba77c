"""Every exception and warning knnmt raises.

    KnnmtError
    ├── SettingError            an option or argument has a value that cannot work
    ├── InputError              text that was given cannot be read
    ├── ModelError
    │   ├── ModelNotFoundError      no model of that name or at that place
    │   ├── CheckpointError         the files of a checkpoint are missing or do not fit together
    │   └── UnsupportedModelError   a sound checkpoint of a kind this version cannot run
    └── MissingDependencyError  an optional package is needed and not installed

    KnnmtWarning (a UserWarning)
    ├── LongSegmentWarning      a segment was too long for the model and was translated in parts
    ├── CutTranslationWarning   a translation reached the maximum length before it ended
    └── IgnoredSettingWarning   a checkpoint asks for something that decoding here does not do

A message says what was expected, what came, where, and what can be done.
"""

from __future__ import annotations


class KnnmtError(Exception):
    """Root of all errors a caller may want to catch."""


class SettingError(KnnmtError):
    """An option or argument has a value that cannot work."""


class InputError(KnnmtError):
    """Text that was given cannot be read."""


class ModelError(KnnmtError):
    """Something is wrong with a translation model."""


class ModelNotFoundError(ModelError):
    """No model of that name, or at that place."""


class CheckpointError(ModelError):
    """Files of a checkpoint are missing or do not fit together."""


class UnsupportedModelError(ModelError):
    """A sound checkpoint of a kind this version cannot run."""


class MissingDependencyError(KnnmtError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'knnmt[{extra}]'"
        )
        self.package = package
        self.extra = extra


class KnnmtWarning(UserWarning):
    """Root of all warnings."""


class LongSegmentWarning(KnnmtWarning):
    """A segment was too long for the model and was translated in parts."""


class CutTranslationWarning(KnnmtWarning):
    """A translation reached the maximum length before it ended."""


class IgnoredSettingWarning(KnnmtWarning):
    """A checkpoint asks for something that decoding here does not do."""
