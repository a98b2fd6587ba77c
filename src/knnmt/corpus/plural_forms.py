"""Plural forms: finds the singular, and makes contexts that distinguish forms with the same source.

A catalog has one or two sources for a message, and as many targets as its language has forms. If two forms have the
same source, only the form tells which target belongs to which.
"""

from __future__ import annotations

import gettext
import re
from collections.abc import Sequence

_MAX_FORMS = 20  # of a message; languages have at most six
_RULE = re.compile(r"nplurals\s*=\s*(\d{1,3})\s*;\s*plural\s*=([^;]+)")


def singular_form(rule: str) -> int | None:
    """The number of the singular form, by the `Plural-Forms` of a catalog; None if one form serves every number."""
    found = _RULE.search(rule)
    if found is None:
        return 0
    if int(found[1]) == 1:
        return None
    try:
        form: int = gettext.c2py(found[2])(1)
    except (ValueError, ZeroDivisionError, OverflowError):
        return 0
    return form


def form_count(rule: str) -> int:
    """How many forms there are, by the `Plural-Forms` of a catalog; 0 if it does not say."""
    found = _RULE.search(rule)
    return int(found[1]) if found else 0


def form_contexts(context: str, sources: Sequence[str], names: Sequence[str] = ()) -> list[str]:
    """The context of each form of a message that is used in `context`.

    It names the form if sources are the same, unless there are more forms than any language has.

    sources: of each form; names: names of the forms, by default their numbers
    """
    if len(sources) > _MAX_FORMS:
        return [context] * len(sources)
    names = names or [f"form {number} of {len(sources)}" for number in range(1, len(sources) + 1)]
    return [
        "\n".join(filter(None, (context, name))) if sources.count(source) > 1 else context
        for source, name in zip(sources, names, strict=True)
    ]
