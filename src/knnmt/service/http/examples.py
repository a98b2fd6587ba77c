"""Examples of every request and its answer, for the OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from knnmt.version import __version__

_SENTENCE, _TRANSLATED = "Die Datei wurde gelöscht.", "The file has been deleted."
_PAIR = {"source": _SENTENCE, "target": _TRANSLATED}
_HELD = {**_PAIR, "origin": "projekt.tmx#17", "context": ""}
_MATCH = {**_PAIR, "origin": "projekt.tmx#17", "score": 100, "exact": True}
_WORDS = [{"text": "file", "span": [4, 8], "share": 0.91}, {"text": "deleted", "span": [18, 25], "share": 0.64}]
_DOMAIN = {
    "name": "software",
    "default": True,
    "memory": True,
    "source_language": "de",
    "target_language": "en",
    "segments": 15_000,
    "entries": 404_292,
    "generation": 3,
    "deletable": False,
}
_BASE = {
    "name": "base",
    "default": False,
    "memory": False,
    "source_language": None,
    "target_language": None,
    "directions": [{"source": "de", "target": "en"}, {"source": "en", "target": "de"}],
}
_JOB = {
    "id": "3f6c0e5a9b1d4c78",
    "domain": "software",
    "name": "projekt.tmx",
    "state": "running",
    "stage": "building",
    "adding": True,
    "done": 1_200,
    "of": 15_000,
    "by": "omegat",
    "created": 1_790_000_000.0,
    "summary": [],
}
_DOCUMENT = {
    "id": "a1b2c3d4e5f60718293a4b5c6d7e8f90",
    "domain": "software",
    "name": "app.po",
    "state": "running",
    "done": 40,
    "of": 120,
}
_UNIT = {
    "unit": "line 4",
    "state": "new",
    "kind": "with memory",
    "source": _SENTENCE,
    "text": _TRANSLATED,
    "coverage": {"covered": 0.8},
    "certainty": 71,
}
_CHANGED = {"domain": "software", "generation": 4, "segments": 15_001}
_CORRECTION = {
    "id": "9d2f7c01b3e85a64",
    "by": "anna",
    "created": 1_790_000_000.0,
    "segments": [{**_PAIR, "origin": "corrections#anna", "context": ""}],
    "replaced": [{**_HELD, "target": "The file was removed."}],
}
_GLOSSARY = {
    "id": "7d2f3c1e-58a4-4b60-9e1d-0c5b8a9f6e42",
    "name": "terms.tsv",
    "by": "anna",
    "created": 1_790_000_000.0,
    "dictionaries": [{"source_language": "de", "target_language": "en", "terms": 120}],
}
_PARAMETERS = {
    "domain": "software",
    "job": _JOB["id"],
    "correction": _CORRECTION["id"],
    "glossary": _GLOSSARY["id"],
    "glossary_id": _GLOSSARY["id"],
    "words": "Datei gelöscht",
    "document": _DOCUMENT["id"],
    "source": _SENTENCE,
    "origin": "projekt.tmx#17",
    "name": "projekt.tmx",
    "term": ["Lieferant=supply partner"],
}


@dataclass(frozen=True, slots=True)
class Example:
    """A body and its answer; None if there is none, or if it is a file."""

    asked: Any = None
    answered: Any = None


EXAMPLES = {
    ("post", "/v1/translate"): Example(
        {"texts": [_SENTENCE], "domain": "software", "retrieval": {"k": 8}},
        {
            "domain": "software",
            "translations": [{"text": _TRANSLATED, "kind": "with memory", "score": -0.12, "complete": True}],
        },
    ),
    ("post", "/v1/sentences"): Example(
        {"text": f"{_SENTENCE} Öffnen Sie sie nicht."},
        {"sentences": [f"{_SENTENCE} ", "Öffnen Sie sie nicht."], "language": "de"},
    ),
    ("post", "/v1/explain"): Example(
        {"texts": [_SENTENCE], "domain": "software"},
        {
            "domain": "software",
            "explanations": [
                {
                    "text": _TRANSLATED,
                    "share": 0.71,
                    "alone": "The file was deleted.",
                    "words": _WORDS,
                    "passages": [{"text": "The file", "share": 0.91, **_HELD, "spans": [[0, 8]]}],
                }
            ],
        },
    ),
    ("post", "/v1/match"): Example(
        {"texts": [_SENTENCE], "domain": "software", "at_least": 70},
        {"domain": "software", "matches": [[_MATCH]]},
    ),
    ("get", "/v1/domains"): Example(answered={"domains": [_BASE, _DOMAIN]}),
    ("post", "/v1/domains"): Example({"name": "software", "segments": [_PAIR]}, {**_DOMAIN, "deletable": True}),
    ("get", "/v1/domains/{domain}"): Example(answered=_DOMAIN),
    ("delete", "/v1/domains/{domain}"): Example(),
    ("get", "/v1/domains/{domain}/segments"): Example(answered={"domain": "software", "segments": [_HELD]}),
    ("post", "/v1/domains/{domain}/segments"): Example({"segments": [_PAIR]}, {**_CHANGED, "stored": 1}),
    ("put", "/v1/domains/{domain}/segments"): Example({"segments": [_PAIR]}, {**_CHANGED, "stored": 1}),
    ("delete", "/v1/domains/{domain}/segments"): Example(answered={**_CHANGED, "removed": 1}),
    ("get", "/v1/domains/{domain}/concordance"): Example(answered={"domain": "software", "segments": [_HELD]}),
    ("get", "/v1/domains/{domain}/corrections"): Example(answered={"domain": "software", "corrections": [_CORRECTION]}),
    ("delete", "/v1/domains/{domain}/corrections/{correction}"): Example(answered=_CHANGED),
    ("post", "/v1/domains/{domain}/memories"): Example(answered={**_JOB, "done": 0, "state": "waiting"}),
    ("get", "/v1/jobs"): Example(answered={"jobs": [_JOB]}),
    ("get", "/v1/jobs/{job}"): Example(answered=_JOB),
    ("delete", "/v1/jobs/{job}"): Example(answered={**_JOB, "state": "cancelled", "ended": 1_790_000_042.5}),
    ("post", "/v1/documents"): Example(answered={**_DOCUMENT, "done": 0, "state": "waiting"}),
    ("get", "/v1/documents/{document}"): Example(answered=_DOCUMENT),
    ("get", "/v1/documents/{document}/units"): Example(
        answered={"units": [_UNIT], "of": 1, "source_language": "de", "target_language": "en"}
    ),
    ("get", "/v1/documents/{document}/content"): Example(),
    ("delete", "/v1/documents/{document}"): Example(),
    ("post", "/v1/glossaries"): Example(answered={**_GLOSSARY, "left_out": 0}),
    ("get", "/v1/glossaries"): Example(answered={"glossaries": [_GLOSSARY]}),
    ("get", "/v1/glossaries/{glossary}"): Example(answered=_GLOSSARY),
    ("delete", "/v1/glossaries/{glossary}"): Example(),
    ("get", "/health"): Example(answered={"status": "ok", "version": __version__}),
    ("get", "/ready"): Example(answered={"status": "ready", "waiting": 0}),
    ("get", "/metrics"): Example(),
}


def add_examples(schema: dict[str, Any]) -> None:
    """Add the examples to an OpenAPI, in place."""
    for (method, path), example in EXAMPLES.items():
        operation = schema["paths"][path][method]
        if example.asked is not None:
            operation["requestBody"]["content"]["application/json"]["example"] = example.asked
        if example.answered is not None:
            status = next(each for each in operation["responses"] if each.startswith("2"))
            operation["responses"][status]["content"]["application/json"]["example"] = example.answered
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in _PARAMETERS:
                parameter.setdefault("example", _PARAMETERS[parameter["name"]])
