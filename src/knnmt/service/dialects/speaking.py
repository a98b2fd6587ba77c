"""What dialects share:

parameters as JSON, forms or query strings, errors in a dialect's form, and its way to send keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar
from urllib.parse import parse_qsl

from fastapi import Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, ValidationError, create_model
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from knnmt.corpus.text_encodings import text_encoding
from knnmt.errors import KnnmtError
from knnmt.records import parse_json, shown
from knnmt.service.access import Caller
from knnmt.service.http.answer_shapes import ProblemAnswer
from knnmt.service.http.requests import CallerFirst, authenticate, bearer
from knnmt.service.http.setting_shapes import form_fields, given_settings
from knnmt.service.problems import Problem, problem_of
from knnmt.service.service import Service
from knnmt.translator.settings import TranslationSettings

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
_MAX_FIELDS = 5_000
_LIKE_FORMS = (FORM, MULTIPART)
_WITHIN = re.compile(r"(\w{1,40})\[(\d{1,4})\]\.(\w{1,40})", re.ASCII)
# After 429 and 503 Weblate stops for half an hour, so a short problem is reported as 504.
_SOON_OVER = ("ending", "locked")
BAD_REQUEST: dict[int | str, dict[str, Any]] = {400: {"model": ProblemAnswer, "description": "the request is invalid"}}


class Parameters(BaseModel):
    """The parameters of a request.

    Forms have only texts, so numbers are parsed from texts. Unknown parameters are ignored.
    """

    model_config = ConfigDict(extra="ignore")


class _SettingsBase(Parameters):
    """Settings of knnmt, which the dialects themselves do not have.

    others: parameters with the name of a setting that mean something else in the dialect
    """

    others: ClassVar[frozenset[str]] = frozenset()

    def settings(self) -> TranslationSettings:
        """The given settings."""
        return given_settings(self, self.others)


if TYPE_CHECKING:
    SettingsParameters = _SettingsBase
else:
    SettingsParameters = create_model("SettingsParameters", __base__=_SettingsBase, **form_fields("service"))
Asked = TypeVar("Asked", bound=Parameters)


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _named(value: object) -> object:
    parts = value if isinstance(value, list) else [value]
    return [name for part in parts for name in (part.split(",") if isinstance(part, str) else [part]) if name]


InPath = Annotated[str, Path(max_length=200)]
"""An id, name or tag in the path."""
Texts = Annotated[list[str], FailFast(), BeforeValidator(_listed)]
"""One or several; a form repeats the field."""
Names = Annotated[list[str], FailFast(), BeforeValidator(_named)]
"""Names, as a list or separated by commas."""


async def read(request: Request, shape: type[Asked], listed: str | None = None, files: int = 0) -> Asked:
    """Read the parameters of a request, from its query string and from its body, which has precedence.

    listed: the parameter that a body which is a list stands for
    files: the most files in a form; with files, the caller must be known before, because files go to disk
    """
    if (key := bearer(request)) is not None:  # a wrong one is refused before the body is read
        authenticate(request, request.app.state.service, key)
    fields = _gathered(request.query_params.multi_items())
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _LIKE_FORMS:
        fields |= await _form(request, kind, files)
    elif body := await request.body():
        fields |= _json(body, listed)
    try:
        return shape.model_validate(fields)
    except ValidationError as error:
        raise _invalid([{**each} for each in error.errors()]) from None


async def _form(request: Request, kind: str, files: int) -> dict[str, Any]:
    stated = parse_options_header(request.headers.get("content-type"))[1].get(b"charset", b"utf-8").decode("latin-1")
    if text_encoding(stated) is None:
        raise Problem(422, "invalid_request", f"expected a form in UTF-8, found the charset {shown(stated)}")
    if kind == FORM:
        return _gathered(await _urlencoded(request))
    most = request.app.state.service.config.limits.body_bytes
    try:
        form = await request.form(max_files=files, max_fields=_MAX_FIELDS, max_part_size=most)
        return _gathered(form.multi_items())
    except (HTTPException, Problem):
        raise
    except Exception as error:  # whatever error the parser raises for bytes that are not a form
        raise Problem(422, "invalid_request", "expected a form as the body, found something else") from error


async def _urlencoded(request: Request) -> list[tuple[str, str]]:
    """The fields of a form. Starlette's parser makes an object for every `&`, of which a body may have millions."""
    body = await request.body()
    if body.count(b"&") >= _MAX_FIELDS:
        raise HTTPException(400, f"Too many fields. Maximum number of fields is {_MAX_FIELDS}.")
    if 3 * body.count(b"%") > len(body):
        raise Problem(422, "invalid_request", "expected two digits after each % of a form")
    service: Service = request.app.state.service
    client = None if request.client is None else request.client.host
    text = body.decode("latin-1")
    return await service.text_threads.run(client, len(text), lambda: parse_qsl(text, keep_blank_values=True))


def _json(body: bytes, listed: str | None) -> dict[str, Any]:
    try:
        content = parse_json(body)
    except ValueError as error:
        raise Problem(422, "invalid_request", f"expected JSON as the body: {error}") from error
    if listed is not None and isinstance(content, list):
        return {listed: content}
    if not isinstance(content, dict):
        raise Problem(422, "invalid_request", "expected an object as the body, found other JSON")
    return content


def _gathered(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Gather fields:

    single ones as they are, repeated ones as lists; `terms[0].name` is a field of an object in a list.
    """
    found: dict[str, list[Any]] = {}
    objects: dict[str, dict[int, dict[str, Any]]] = {}
    for name, value in items:
        if within := _WITHIN.fullmatch(name):
            objects.setdefault(within[1], {}).setdefault(int(within[2]), {})[within[3]] = value
        else:
            found.setdefault(name, []).append(value)
    fields: dict[str, Any] = {name: values[0] if len(values) == 1 else values for name, values in found.items()}
    return fields | {name: [each for _, each in sorted(numbered.items())] for name, numbered in objects.items()}


def _invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    fields = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in errors[:3])
    return Problem(422, "invalid_request", f"the request is invalid: {fields}")


def caller_with(service: Service, request: Request, key: str | None) -> Caller:
    """The caller, by a key in a parameter of the dialect or in the header."""
    return authenticate(request, service, bearer(request) or key)


Answer = Callable[[Problem], Response]


def errors_as(statuses: Mapping[int, int], **more: str) -> Answer:
    """Problems with the statuses of a dialect. more: further fields with the message, by the dialect's names"""

    def answer(problem: Problem) -> Response:
        usual = problem.answer()
        also = {name: getattr(problem, value) for name, value in more.items()}
        content = {"code": problem.code, "message": problem.message, **also, **problem.more}
        status = 504 if problem.code in _SOON_OVER else statuses.get(problem.status, problem.status)
        kept = ("retry-after",) if status != 401 else ("retry-after", "www-authenticate")
        return JSONResponse(content, status, {name: usual.headers[name] for name in kept if name in usual.headers})

    return answer


def route_with_errors(answer: Answer) -> type[APIRoute]:
    """A class of routes whose errors are answered in this way."""

    class DialectRoute(CallerFirst):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handled(request: Request) -> Response:
                try:
                    return await handle(request)
                except Problem as problem:
                    return answer(problem)
                except KnnmtError as error:
                    own = problem_of(error)
                    own.message = request.app.state.service.domains.named_in(own.message)
                    return answer(own)
                except RequestValidationError as error:
                    return answer(_invalid(error.errors()))
                except HTTPException as error:
                    codes = {413: "too_large"}
                    return answer(Problem(error.status_code, codes.get(error.status_code, "error"), str(error.detail)))
                finally:
                    await request.close()  # files of its form

            return handled

    return DialectRoute


# For the OpenAPI ------------------------------------------------------------------------------------------------------


def with_body(shape: type[Parameters], *kinds: str) -> dict[str, Any]:
    """The OpenAPI of a body that a route reads itself."""
    schema = shape.model_json_schema()
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


def with_query(shape: type[Parameters]) -> dict[str, Any]:
    """The OpenAPI of query parameters that a route reads itself."""
    schema = shape.model_json_schema()
    needed = schema.get("required", [])
    return {
        "parameters": [
            {"name": name, "in": "query", "required": name in needed, "schema": each}
            for name, each in schema["properties"].items()
        ]
    }


def file_of(value: object, name: str) -> UploadFile:
    """The file of a form."""
    if not isinstance(value, UploadFile):
        raise Problem(422, "invalid_request", f"{name}: expected a file")
    return value
