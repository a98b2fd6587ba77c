"""What is remembered with a store besides its content: estimated and tuned settings, in `STORE/settings.json`.

It is no part of the store's state: it may be missing, and changing it makes no new generation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from knnmt.datastore.publication import publish_file
from knnmt.errors import DatastoreDamagedError

SETTINGS = "settings.json"


def read_settings(store: Path) -> dict[str, Any]:
    """Every section that was written; none where nothing was."""
    path = store / SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DatastoreDamagedError(
            f"{path}: expected settings in JSON, and they cannot be read ({error}). Mend the file, or remove it: "
            "`knnmt index` estimates the settings again."
        ) from error
    if not isinstance(content, dict):
        raise DatastoreDamagedError(f"{path}: expected a JSON object, found {type(content).__name__}.")
    return content


def settings_changed(store: Path) -> int:
    """When the settings were last written, in nanoseconds; 0 where there are none."""
    try:
        return (store / SETTINGS).stat().st_mtime_ns
    except OSError:
        return 0


def write_settings(store: Path, **sections: Any) -> None:
    """Write sections in the place of those of the same name; the others stay."""
    text = json.dumps({**read_settings(store), **sections}, indent=1).encode()
    publish_file(store / SETTINGS, lambda file: file.write(text))
