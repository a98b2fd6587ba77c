"""Every exception and warning of knnmt.

    KnnmtError
    ├── SettingError            an option or argument has a value that cannot work
    │   └── LanguagesRequiredError    the languages to translate between are not clear
    ├── InputError              an input text cannot be read
    │   ├── MalformedMemoryError    a translation memory, or a unit of it, violates its format
    │   └── MalformedDocumentError  a document violates its format, or is too large
    ├── ModelError
    │   ├── ModelNotFoundError      there is no model of that name or at that path
    │   ├── CheckpointError         files of a checkpoint are missing or inconsistent
    │   └── UnsupportedModelError   a valid checkpoint of a kind that this version cannot run
    ├── DatastoreError
    │   ├── NotADatastoreError      the path is not a datastore
    │   ├── DatastoreExistsError    the path of a new datastore already exists
    │   ├── DatastoreVersionError   written in a format newer than this version reads
    │   ├── DatastoreMismatchError  built with another model or tokenizer
    │   ├── DatastoreDamagedError   a file is missing, cut off, altered, or inconsistent
    │   │   └── DatastoreChangedError   another program changed a file while the store was open
    │   ├── DatastoreLockedError    another process is writing to it
    │   └── StorageError            the disk is full or not writable
    ├── NoTranslationError      a text has no possible translation
    ├── SystemStoppedError      the process of a measured system ended
    ├── MissingDependencyError  a required optional package is not installed
    ├── CometError              COMET failed in its environment
    ├── ServiceError            a service answered with an error, or not at all
    └── ClusterError            a cluster could not be reached, or its workers ended

    KnnmtWarning (a UserWarning)
    ├── TextWarning             about one translation; `Translation.warnings` has it, too
    │   ├── LongSegmentWarning      a segment was too long for the model and was translated in parts
    │   ├── CutTranslationWarning   a translation reached the maximum length before it ended
    │   ├── NoTranslationWarning    one of several texts has no translation
    │   ├── InPiecesWarning         a text was translated piece by piece between its codes
    │   ├── SourceKeptWarning       a text, or a piece of it, was not translated, because its codes would be lost
    │   ├── ContentWarning          a translation has what its source lacks, or seems to lack or to repeat content
    │   ├── TermWarning             a term of a glossary is missing in a translation, or contradicts another
    │   ├── MatchWarning            the target of an exact match has other placeholders than the text
    │   └── ShardWarning            a shard did not answer and was left out
    ├── IgnoredSettingWarning   a setting of a checkpoint, or KNNMT_NATIVE, is not supported and was ignored
    ├── OldBuildWarning         the compiled code belongs to other sources and is not used
    ├── SlowSearchWarning       a large store is searched without an index
    └── LanguageWarning         text seems to be in another language than stated

A message says what was expected, what was found, where, and what to do.
"""

from __future__ import annotations

import os
import shlex


class KnnmtError(Exception):
    """Root of all errors of knnmt."""


class SettingError(KnnmtError):
    """An option or argument has a value that cannot work."""


class LanguagesRequiredError(SettingError):
    """The languages to translate between are not clear: a multilingual model needs them, or two models are shipped."""


class InputError(KnnmtError):
    """An input text cannot be read."""


class MalformedMemoryError(InputError):
    """A translation memory, or a unit of it, violates its format."""


class MalformedDocumentError(InputError):
    """A document to translate violates its format, or is too large."""


class ModelError(KnnmtError):
    """Something is wrong with a translation model."""


class ModelNotFoundError(ModelError):
    """There is no model of that name or at that path."""


class CheckpointError(ModelError):
    """Files of a checkpoint are missing or inconsistent."""


class UnsupportedModelError(ModelError):
    """A valid checkpoint of a kind that this version cannot run."""


class DatastoreError(KnnmtError):
    """Something is wrong with a datastore."""


class NotADatastoreError(DatastoreError):
    """The path is not a datastore."""


class DatastoreExistsError(DatastoreError):
    """The path of a new datastore already exists."""


class DatastoreVersionError(DatastoreError):
    """The datastore has a newer format than this version reads."""


class DatastoreMismatchError(DatastoreError):
    """The datastore was built with another model or tokenizer."""


class DatastoreDamagedError(DatastoreError):
    """A file of the datastore is missing, cut off, altered, or inconsistent with another."""


class DatastoreChangedError(DatastoreDamagedError):
    """Another program changed a file of the datastore while it was open."""


class DatastoreLockedError(DatastoreError):
    """Another process is writing to the datastore."""


class StorageError(DatastoreError):
    """The disk is full or not writable."""


class NoTranslationError(KnnmtError):
    """A text has no possible translation."""


class SystemStoppedError(KnnmtError):
    """The process of a measured system ended."""


class MissingDependencyError(KnnmtError):
    """A required optional package is not installed."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'knnmt[{extra}]'"
        )
        self.package = package
        self.purpose = purpose
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingDependencyError], tuple[str, str, str]]:
        """Pickle it with its arguments: a pool of processes passes on the errors of its workers."""
        return type(self), (self.package, self.purpose, self.extra)


# Without an older setuptools there is no pkg_resources, which a dependency of unbabel-comet 2.2.7 imports.
COMET_RECIPE = "python3 -m venv comet-env && comet-env/bin/pip install unbabel-comet 'setuptools<81'"


class CometError(KnnmtError):
    """COMET failed in its own environment.

    advice: how to make such an environment
    """

    advice = (
        f"COMET runs in its own environment. Make one with {COMET_RECIPE}; then add --comet-python comet-env/bin/python"
    )


class ServiceError(KnnmtError):
    """A service answered with an error, or not at all.

    code: for programs
    status: of HTTP; None if there was no answer
    retry_after: seconds, if the service gave them
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


class TextWarning(KnnmtWarning):
    """A warning about one translation. `Translation.warnings` has it, too."""


class LongSegmentWarning(TextWarning):
    """A segment was too long for the model and was translated in parts."""


class CutTranslationWarning(TextWarning):
    """A translation reached the maximum length before it ended."""


class ShardWarning(TextWarning):
    """A shard did not answer and was left out."""


class LanguageWarning(KnnmtWarning):
    """Text seems to be in another language than stated."""


class NoTranslationWarning(TextWarning):
    """One of several texts has no translation."""


class InPiecesWarning(TextWarning):
    """A text was translated piece by piece between its codes, because a translation of the whole text lost them."""


class SourceKeptWarning(TextWarning):
    """A text, or a piece of it, was not translated, because every translation lost placeholders or numbers."""


class ContentWarning(TextWarning):
    """A translation has something that its source lacks, or it is empty, very short or repeats itself."""


class TermWarning(TextWarning):
    """A term of a glossary is missing in a translation, or contradicts another."""


class MatchWarning(TextWarning):
    """An exact match was used whose target has other placeholders than the text."""


class SlowSearchWarning(KnnmtWarning):
    """A large store is searched without an index, or much of it is."""


class OldBuildWarning(KnnmtWarning):
    """The compiled code is there, but belongs to other sources, so it is not used."""


class IgnoredSettingWarning(KnnmtWarning):
    """A setting of a checkpoint, or of the environment, is not supported and was ignored."""


def quoted(path: str | os.PathLike[str]) -> str:
    """A path, quoted for a shell, for commands in messages."""
    text = os.fspath(path)
    if os.name == "nt":
        return f'"{text}"' if " " in text else text
    return shlex.quote(text)
