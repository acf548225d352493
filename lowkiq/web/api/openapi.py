"""The OpenAPI document, made from the operations and their types, so that it can't disagree with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from lowkiq.version import VERSION
from lowkiq.web.api.input import schemas_of
from lowkiq.web.api.operation import JSON, Operation
from lowkiq.web.api.replies import Failure
from lowkiq.web.api.requests import MAX_CHARS

_REF: Final = "#/components/schemas/{name}"

_DESCRIPTION: Final = """\
Numbers, jobs and actions of Lowkiq, ordered background jobs on Redis.

Reading needs credentials if the view has any: `Authorization: Bearer <LOWKIQ_WEB_TOKEN>`, Basic with user and
password, or a browser's session. Writing needs nothing more with Bearer. With anything else, which a browser could
send without being told to, it needs the token of `GET /api/v1/token` in the header `X-Lowkiq-Token`:

    token=$(curl -s -u admin:password $URL/api/v1/token | jq -r .token)
    curl -u admin:password -H "X-Lowkiq-Token: $token" -H 'Content-Type: application/json' \\
      -d '{"action": "revive", "ids": ["order-1"]}' $URL/api/v1/queues/Orders/actions

Every error is `{"error": "…"}`. Times are Unix seconds by Redis's clock.
"""

_IN_PATH: Final = {"queue": "A queue's name.", "node": "A node's name.", "id": "The id of a bulk, request or dump."}

#: Operations of any kind can answer with these.
_ALWAYS: Final = {
    401: "Credentials are missing or wrong.",
    403: "The view is read-only, or its write token is missing, or the request comes from elsewhere.",
    503: "Redis does not answer; try again later.",
}
_WITH_BODY: Final = {413: "The body is larger than 1 MiB.", 415: "The body is not application/json."}


def document(operations: Sequence[Operation], *, server: str, session_cookie: str) -> dict[str, Any]:
    """
    The document.

    Args:
        server: what the paths are relative to.
        session_cookie: the name of the cookie that a session has.
    """
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lowkiq", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": server}],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _security_schemes(session_cookie)},
    }


class _Schemas:
    """The schemas of all types that operations take or return; structs are components that others refer to."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        bodies = [operation.body for operation in operations if operation.body]
        kinds: list[Any] = [Failure, *bodies]
        for operation in operations:
            kinds += [kind for some in operation.replies.values() for kind in some]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._schemas = dict(zip(map(repr, kinds), schemas, strict=True))
        for name in msgspec.json.schema_components(bodies, ref_template=_REF)[1]:
            self.components[name]["additionalProperties"] = False  # as input.py refuses what it does not know

    def of(self, kind: Any) -> dict[str, Any]:
        return self._schemas[repr(kind)]


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation.path), *_query_parameters(operation)],
        "responses": _responses(operation, schemas),
        "security": _security(operation.method),
    }
    if operation.description:
        described["description"] = operation.description
    if operation.body:
        examples = {name: {"value": body} for name, body in operation.examples.items()}
        content = {JSON: {"schema": schemas.of(operation.body), "examples": examples}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", path):
        yield _parameter(name, "path", True, _IN_PATH[name], {"type": "string"})


def _query_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for field in msgspec.structs.fields(operation.query) if operation.query else ():
        (schema,) = schemas_of(field.type)
        schema.pop("description", None)
        if schema.get("maxLength") == MAX_CHARS:  # servers read no address of that length
            del schema["maxLength"]
        if not field.required and field.default is not None:
            schema["default"] = field.default
        description = msgspec.json.schema(field.type)["description"]
        parameter = _parameter(field.name, "query", field.required, description, schema)
        yield parameter if field.required else parameter | {"allowEmptyValue": True}  # it is one not given


def _parameter(name: str, place: str, required: bool, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "description": description, "schema": schema}


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kinds in operation.replies.items():
        alternatives = [schemas.of(kind) for kind in kinds]
        schema = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        if operation.media_type != JSON:
            schema = {"type": "string"}
        content = {operation.media_type: {"schema": schema}}
        responses[str(status)] = {"description": _in_words(operation, kinds), "content": content}
    for status, when in sorted(_refusals(operation).items()):
        responses[str(status)] = {"description": when, "content": {JSON: {"schema": schemas.of(Failure)}}}
    return responses


def _in_words(operation: Operation, kinds: Sequence[Any]) -> str:
    """The docstrings of the types; where the answer is no JSON, the summary has to do."""
    if operation.media_type != JSON:
        return operation.summary
    first_lines = [(kind.__doc__ or "").strip().splitlines()[0] for kind in kinds]
    return " Or: ".join(line for line in first_lines if line)


def _refusals(operation: Operation) -> Mapping[int, str]:
    refusals = dict(_ALWAYS)
    if operation.query or operation.body:
        refusals[400] = "A value can't be used; the error names it, and what it may be."
    if operation.body:
        refusals |= _WITH_BODY
    return refusals | dict(operation.refusals)


def _security(method: str) -> list[dict[str, list[str]]]:
    """Credentials, each with the write token where that is needed; a view without credentials needs none."""
    token: dict[str, list[str]] = {} if method == "GET" else {"writeToken": []}
    return [{"bearer": []}, {"basic": []} | token, {"session": []} | token, token]


def _security_schemes(session_cookie: str) -> dict[str, Any]:
    return {
        "bearer": {"type": "http", "scheme": "bearer", "description": "LOWKIQ_WEB_TOKEN. Writes need nothing more."},
        "basic": {"type": "http", "scheme": "basic", "description": "LOWKIQ_WEB_USER and LOWKIQ_WEB_PASSWORD."},
        "session": {"type": "apiKey", "in": "cookie", "name": session_cookie, "description": "Made by signing in."},
        "writeToken": {
            "type": "apiKey",
            "in": "header",
            "name": "X-Lowkiq-Token",
            "description": "From GET /api/v1/token, asked for with the same credentials.",
        },
    }
