"""Codec: a worker's payloads and ids as perform has them, and as Redis has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lowkiq import codec
from lowkiq.types.annotations import Types
from lowkiq.types.ids import id_type
from lowkiq.types.payloads import Dump, Load, has_user_code, of_any_type, of_type, parts


@dataclass(frozen=True)
class Codec:
    """Made when a worker is registered, from its annotations and the application's settings."""

    #: Bytes → payload. Raises for what does not fit the type, with the path of the wrong field.
    load: Load = codec.load_payload
    #: Payload → bytes. Raises ValueError for what would not come back as it is.
    dump: Dump = codec.dump_payload
    #: To load a payload, or an id, runs code of the user's, which may kill the node.
    runs_user_code: bool = False
    #: Text → id, and back; both raise ValueError for what is no id. None where ids stay texts.
    load_id: Callable[[str], Any] | None = None
    dump_id: Callable[[Any], str] | None = None

    @property
    def check_id(self) -> Callable[[str], object] | None:
        """Raises ValueError for an id that can't be converted."""
        return self.load_id


#: Of workers without annotations, in an application without hooks of its own for payloads.
PLAIN: Final = Codec()


def make_codec(label: str, annotated: Types, load: Load, dump: Dump) -> Codec:
    """
    The codec of a worker, with the settings' own load_payload and dump_payload.

    Raises:
        SettingsError: a type can't be converted to and from what Redis holds.
    """
    is_typed = annotated.payload is not Any and annotated.payload is not object
    payloads = of_type(label, annotated.payload, load, dump) if is_typed else of_any_type(load, dump)
    ids = id_type(label, annotated.id)
    if ids is None:
        return Codec(*payloads)
    runs_user_code = payloads.runs_user_code or any(map(has_user_code, parts(annotated.id)))
    return Codec(payloads.load, payloads.dump, runs_user_code, ids.load, ids.dump)
