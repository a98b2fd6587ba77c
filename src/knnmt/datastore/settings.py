"""Estimated and tuned settings of a store, in `STORE/settings.json`.

They are not part of the store's state: the file may be missing, and changing it makes no new generation. The file has
a checksum, which shows whether another program changed it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from knnmt.datastore.manifest import checksum
from knnmt.datastore.publication import clear_scratch, publish_file
from knnmt.errors import DatastoreDamagedError, quoted
from knnmt.records import parse_json
from knnmt.regular_files import read_regular

SETTINGS = "settings.json"
_CHECKSUM = "checksum"


def read_settings(path: Path) -> dict[str, Any]:
    """All sections that were written; empty if there are none."""
    place = path / SETTINGS
    try:
        content = parse_json(read_regular(place))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DatastoreDamagedError(
            f"{place}: expected settings in JSON, but they cannot be read ({error}). {_advice(path)}"
        ) from error
    if not isinstance(content, dict):
        raise DatastoreDamagedError(
            f"{place}: expected settings as a JSON object, found {type(content).__name__}. {_advice(path)}"
        )
    if content.pop(_CHECKSUM, None) != checksum(content):
        raise DatastoreDamagedError(
            f"{place}: its checksum does not fit its content, because something other than knnmt wrote or altered it. "
            f"{_advice(path)}"
        )
    return content


def _advice(path: Path) -> str:
    return (
        f"Restore it, or remove it: `knnmt index {quoted(path)}` estimates the settings again, and `knnmt tune` finds "
        "better ones."
    )


def settings_changed(path: Path) -> int:
    """When the settings were last written, in nanoseconds; 0 if there are none."""
    try:
        return (path / SETTINGS).stat().st_mtime_ns
    except OSError:
        return 0


def write_settings(path: Path, **sections: Any) -> None:
    """Replace the sections of these names; the others stay."""
    content = {**read_settings(path), **sections}
    content = json.loads(json.dumps(content))  # as it will be read: keys are text
    text = json.dumps({**content, _CHECKSUM: checksum(content)}, indent=1).encode()
    clear_scratch(path / SETTINGS)
    publish_file(path / SETTINGS, lambda file: file.write(text))
