"""Query and body of a request as typed values. A refusal names the field, its value, and what it may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from lowkiq.errors import LowkiqError, short, unknown_option

T = TypeVar("T", bound=msgspec.Struct)

#: Format of a text, or "" where it is a bound of a range → what it may be.
_FORMS: Final = {
    "date": "a day, such as 2026-11-23",
    "": "a number such as 5, (5 for more or less than 5, -inf or +inf",
}
#: More fields than any operation has.
MAX_FIELDS: Final = 20


class Rejected(LowkiqError):
    """A request that can't be done: the message is the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


def read_query(request: Request, kind: type[T]) -> T:
    """The parameters of the query. An empty one is one not given, as a form sends it."""
    try:
        # Starlette would put "\ufffd" for what is no UTF-8, and so look for a job that nobody asked for.
        text = request.scope["query_string"].decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise Rejected(400, "the query is not UTF-8: percent-encode the bytes of UTF-8 text") from None
    except ValueError:
        raise Rejected(400, f"the query has more than {MAX_FIELDS} parameters") from None
    lists = {field.name for field in msgspec.structs.fields(kind) if _is_list(field.type)}
    values: dict[str, Any] = {}
    given = set()
    for name, value in pairs:
        if name in given and name not in lists:
            raise Rejected(400, f"parameter {short(name)} is given twice: give it once")
        given.add(name)
        if value:
            values[name] = [*values.get(name, ()), value] if name in lists else value
    return _typed(kind, values, "parameter", strict=False)


async def read_body(request: Request, kind: type[T]) -> T:
    """The JSON of the body."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        # A form of another site can't send it without being asked for leave, so this is a second lock on writes.
        raise Rejected(415, f"content-type is {short(given)}, it must be application/json")
    try:
        value = msgspec.json.decode(await request.body())
    except RecursionError:
        raise Rejected(400, "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Rejected(400, f"the body is {short(value)}, it must be a JSON object")
    return _typed(kind, value, "field")


def _typed(kind: type[T], values: Mapping[str, Any], noun: str, path: str = "", *, strict: bool = True) -> T:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in values:
        if name not in fields:
            raise Rejected(400, str(unknown_option(noun, short(path + name)[1:-1], [path + known for known in fields])))
    for field in fields.values():
        if field.required and field.name not in values:
            raise Rejected(400, f"{noun} {path}{field.name} is missing, it must be {_what(field.type)}")
    return kind(**{name: _value(fields[name].type, value, noun, path + name, strict) for name, value in values.items()})


def _value(kind: Any, value: Any, noun: str, name: str, strict: bool) -> Any:
    struct = _struct_in(kind)
    if struct and isinstance(value, dict):
        return _typed(struct, value, noun, f"{name}.")
    if isinstance(value, str) and value.lower() == "null":
        strict = True  # else it would be none, as if it were not given
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        if isinstance(value, float) and value.is_integer():  # to JSON 10.0 and 10 are one number
            return _value(kind, int(value), noun, name, strict)
        place = re.search(r" - at `\$([^`]*)`$", str(error))
        where = f" ({name}{place[1]})" if place else ""
        raise Rejected(400, f"{noun} {name} is {short(value)}{where}, it must be {_what(kind)}") from None


def _is_list(kind: Any) -> bool:
    """True for a parameter that may be given several times."""
    return any(schema.get("type") == "array" for schema in schemas_of(kind))


def schemas_of(kind: Any) -> list[dict[str, Any]]:
    """The JSON schemas of a field, but for null: in a query, that is a parameter left out."""
    schema = msgspec.json.schema(kind)
    return [one for one in schema.get("anyOf", [schema]) if one != {"type": "null"}]


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(_struct_in, get_args(kind))), None)


def _what(kind: Any) -> str:
    """The values that a field may have, in words."""
    return " or ".join(map(_in_words, schemas_of(kind)))


def _in_words(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": values}:
            return f"one of {', '.join(map(str, values))}"
        case {"type": "integer" | "number" as kind, "minimum": low, "maximum": high}:
            return f"a {'whole ' * (kind == 'integer')}number from {low:,} to {high:,}"
        case {"type": "string", "format": _} | {"type": "string", "pattern": _}:
            return _FORMS[schema.get("format", "")]
        case {"type": "string", "maxLength": most}:
            return f"a text of 1 to {most:,} characters"
        case {"type": "array", "minItems": low, "maxItems": high, "items": item}:
            return f"a list of {low:,} to {high:,}, each {_in_words(item)}"
    return {"boolean": "true or false", "string": "a text", "array": "a list"}.get(schema.get("type", ""), "an object")
