"""What is wrong with a setting of the laboratory, in the words of an error that commands show."""

from __future__ import annotations

from knnmt.errors import SettingError


def check(condition: bool, message: str) -> None:
    """Raise `SettingError(message)` unless `condition` holds."""
    if not condition:
        raise SettingError(message)
