"""`GET /`: the page for people. It consists of our own static files; no path of a request names a file.

Its controls for settings are made from their only descriptions.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from knnmt.service.http.requests import TheService
from knnmt.service.http.setting_shapes import parameter
from knnmt.service.problems import Problem
from knnmt.settings import Description, described
from knnmt.translator.settings import TranslationSettings

router = APIRouter(include_in_schema=False)
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Only files of the service load. Content is inserted as text, and the browser blocks anything that would be parsed.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the browser always asks, and a file is sent again only if it changed
}


def _served() -> dict[str, tuple[bytes, str]]:
    """The files by name, each with its content and media type."""
    found: dict[str, Traversable] = {
        each.name: each for each in files("knnmt.service").joinpath("page").iterdir() if each.is_file()
    }
    found["explain.css"] = files("knnmt.translator").joinpath("page.css")  # for words and neighbours
    kinds = {name: _KINDS.get(PurePath(name).suffix) for name in found}
    return {name: (found[name].read_bytes(), kind) for name, kind in kinds.items() if kind is not None}


_FILES = _served()


@router.get("/")
async def page(request: Request) -> Response:
    """The page."""
    return _answer(request, "index.html")


@router.get("/page/settings.json")
async def settings(service: TheService) -> Response:
    """The settings for which the page has controls, with the defaults of the service."""
    usual = service.translator.settings.resolved()
    return JSONResponse([_control(name, each, getattr(usual, name)) for name, each in _controls().items()])


def _controls() -> dict[str, Description]:
    known = described(TranslationSettings).items()
    return {
        name: each
        for name, each in known
        if {"texts", "service"} <= {*each.uses} and "http" in each.interfaces and each.group != "retrieval"
    }


def _control(name: str, each: Description, usual: object) -> dict[str, object]:
    words = ("no", "yes")[usual] if isinstance(usual, bool) else ", ".join(usual) if isinstance(usual, tuple) else usual
    return {
        "name": name,
        "parameter": parameter(name, each),
        "documents": "documents" in each.uses,
        "help": each.help,
        "kind": each.kind.__name__,
        "choices": each.choices,
        "many": each.many,
        "least": each.least,
        "most": each.most,
        "usual": each.otherwise if words is None else words,
    }


@router.get("/page/{name}")
async def part(name: str, request: Request) -> Response:
    """A file of the page."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    if name not in _FILES:
        raise Problem(404, "not_found", "the page has no such file")
    content, kind = _FILES[name]
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={**_HEADERS, "ETag": tag})
    return Response(content, headers={**_HEADERS, "ETag": tag}, media_type=kind)
