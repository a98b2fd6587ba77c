"""Every exception and warning knnmt raises.

    KnnmtError
    ├── SettingError            an option or argument has a value that cannot work
    │   └── UntoldLanguagesError    a model of many languages was not told between which to translate
    ├── InputError              text that was given cannot be read
    │   ├── MalformedMemoryError    a translation memory, or a unit of it, is not what its format says
    │   └── MalformedDocumentError  a document to translate is not what its format says, or too large
    ├── ModelError
    │   ├── ModelNotFoundError      no model of that name or at that place
    │   ├── CheckpointError         the files of a checkpoint are missing or do not fit together
    │   └── UnsupportedModelError   a sound checkpoint of a kind this version cannot run
    ├── DatastoreError
    │   ├── NotADatastoreError      nothing there, or something that is not a datastore
    │   ├── DatastoreExistsError    something is in the way of a new datastore
    │   ├── DatastoreVersionError   written in a format newer than this version reads
    │   ├── DatastoreMismatchError  built with another model or tokenizer
    │   ├── DatastoreDamagedError   a file is missing, cut, altered, or contradicts another
    │   ├── DatastoreLockedError    another process is writing to it
    │   └── StorageError            the disk is full, or refuses to be written
    ├── NoTranslationError      no hypothesis of a text was possible
    ├── SystemStoppedError      the process of a system that was being measured ended
    ├── MissingDependencyError  an optional package is needed and not installed
    ├── CometError              COMET, in its own environment, could not be asked
    ├── ServiceError            a service refused or failed, or could not be asked
    └── ClusterError            a cluster could not be reached, or its workers ended

    KnnmtWarning (a UserWarning)
    ├── LongSegmentWarning      a segment was too long for the model and was translated in parts
    ├── CutTranslationWarning   a translation reached the maximum length before it ended
    ├── IgnoredSettingWarning   a checkpoint asks for something that decoding here does not do
    ├── NoTranslationWarning    a text among others has no translation
    ├── SlowSearchWarning       a large store is searched without an index
    ├── InPiecesWarning         a text was translated in the pieces between its codes
    ├── SourceKeptWarning       a text, or a piece of it, stayed as it was, for nothing else kept its codes
    ├── TermWarning             a term of a glossary is missing in a translation, or contradicts another
    ├── MatchWarning            a match was taken over whose target has other placeholders than the text
    ├── ShardWarning            a shard did not answer, and what it holds was left out
    └── LanguageWarning         text looks like another language than the one it was said to be

A message says what was expected, what came, where, and what can be done.
"""

from __future__ import annotations

import os
import shlex


class KnnmtError(Exception):
    """Root of all errors a caller may want to catch."""


class SettingError(KnnmtError):
    """An option or argument has a value that cannot work."""


class UntoldLanguagesError(SettingError):
    """A model of many languages was not told between which to translate."""


class InputError(KnnmtError):
    """Text that was given cannot be read."""


class MalformedMemoryError(InputError):
    """A translation memory, or a unit of it, is not what its format says."""


class MalformedDocumentError(InputError):
    """A document to translate is not what its format says, or too large."""


class ModelError(KnnmtError):
    """Something is wrong with a translation model."""


class ModelNotFoundError(ModelError):
    """No model of that name, or at that place."""


class CheckpointError(ModelError):
    """Files of a checkpoint are missing or do not fit together."""


class UnsupportedModelError(ModelError):
    """A sound checkpoint of a kind this version cannot run."""


class DatastoreError(KnnmtError):
    """Something is wrong with a datastore."""


class NotADatastoreError(DatastoreError):
    """Nothing there, or something that is not a datastore."""


class DatastoreExistsError(DatastoreError):
    """Something is in the way of a new datastore."""


class DatastoreVersionError(DatastoreError):
    """Written in a format newer than this version reads."""


class DatastoreMismatchError(DatastoreError):
    """Built with another model or tokenizer."""


class DatastoreDamagedError(DatastoreError):
    """A file is missing, cut, altered, or contradicts another."""


class DatastoreLockedError(DatastoreError):
    """Another process is writing to it."""


class StorageError(DatastoreError):
    """The disk is full, or refuses to be written."""


class NoTranslationError(KnnmtError):
    """No hypothesis of a text was possible."""


class SystemStoppedError(KnnmtError):
    """The process of a system that was being measured ended."""


class MissingDependencyError(KnnmtError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'knnmt[{extra}]'"
        )
        self.package = package
        self.purpose = purpose
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingDependencyError], tuple[str, str, str]]:
        """As it was made: a pool of processes hands on the errors of its workers."""
        return type(self), (self.package, self.purpose, self.extra)


class CometError(KnnmtError):
    """COMET, in its own environment, could not be asked."""


class ServiceError(KnnmtError):
    """A service refused or failed, or could not be asked.

    code: for programs; status: of HTTP, None where there was no answer; retry_after: seconds, where it said so
    """

    def __init__(
        self, message: str, code: str = "error", status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.retry_after = code, status, retry_after


class ClusterError(KnnmtError):
    """A cluster could not be reached, or its workers ended."""


class KnnmtWarning(UserWarning):
    """Root of all warnings."""


class LongSegmentWarning(KnnmtWarning):
    """A segment was too long for the model and was translated in parts."""


class CutTranslationWarning(KnnmtWarning):
    """A translation reached the maximum length before it ended."""


class ShardWarning(KnnmtWarning):
    """A shard did not answer, and what it holds was left out."""


class LanguageWarning(KnnmtWarning):
    """Text looks like another language than the one it was said to be."""


class NoTranslationWarning(KnnmtWarning):
    """A text among others has no translation."""


class InPiecesWarning(KnnmtWarning):
    """A text was translated in the pieces between its codes: as a whole, its translation did not keep them."""


class SourceKeptWarning(KnnmtWarning):
    """A text, or a piece of it, stayed as it was: no translation that was found kept its placeholders or numbers."""


class TermWarning(KnnmtWarning):
    """A term of a glossary is missing in a translation, or contradicts another."""


class MatchWarning(KnnmtWarning):
    """An exact match was taken over, and its target has other placeholders than the text."""


class SlowSearchWarning(KnnmtWarning):
    """A large store is searched without an index, or much of it is."""


class IgnoredSettingWarning(KnnmtWarning):
    """A checkpoint asks for something that decoding here does not do."""


def quoted(path: str | os.PathLike[str]) -> str:
    """A path as a shell takes it, for commands that a message advises."""
    text = os.fspath(path)
    if os.name == "nt":
        return f'"{text}"' if " " in text else text
    return shlex.quote(text)
