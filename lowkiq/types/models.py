"""Models: payload types of pydantic, which is loaded only for those who use it."""

from __future__ import annotations

import importlib
from typing import Any, Final, get_args

import msgspec

from lowkiq.types.places import refused
from lowkiq.usual import encodable

_encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=encodable).encode


def is_model(annotation: Any) -> bool:
    """Returns whether a type is a model or dataclass of pydantic, or a list, union and so on of such."""
    return hasattr(annotation, "__pydantic_core_schema__") or any(map(is_model, get_args(annotation)))


class Models:
    """Converts payloads of one such type. Raises what pydantic raises for a type that it can't handle."""

    runs_user_code = True

    def __init__(self, annotation: Any) -> None:
        pydantic = importlib.import_module("pydantic")
        self._adapter = pydantic.TypeAdapter(annotation)
        self._refused: type[Exception] = pydantic.ValidationError
        self._plain_part: Any = importlib.import_module("pydantic_core").to_jsonable_python

    def plain(self, payload: Any, /) -> Any:
        """Value that its JSON is loaded to."""
        # By its serializer, which has taken a fallback ever since.
        return self._adapter.serializer.to_python(
            payload, mode="json", by_alias=True, round_trip=True, warnings=False, fallback=encodable
        )

    def decode(self, data: bytes) -> Any:
        """JSON → payload. Raises ValueError with the path of the wrong field, as msgspec writes it."""
        try:
            return self._adapter.validate_json(data)
        except self._refused as error:
            raise _explained(error) from None

    def encode(self, payload: Any) -> bytes:
        """Payload → JSON, in an order that equal payloads share."""
        return _encode(self.plain(payload))

    def convert(self, plain: Any, /) -> Any:
        """A payload of what a `load_payload` of the user's makes."""
        return self.decode(_encode(plain))

    def is_same(self, one: Any, other: Any, /) -> bool:
        """Returns whether two payloads are equal."""
        return bool(one == other)

    def refused(self, payload: Any, error: Exception, /) -> Exception:
        """The refusal of a payload that could not be encoded, with the place of what is to blame."""
        return refused(payload, lambda part: _encode(self._plain_part(part, fallback=encodable)), error)


def _explained(error: Any) -> ValueError:
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f", and {len(others)} more" if others else ""
    return ValueError(f"{first['msg']} - at `{path}`{more}")
