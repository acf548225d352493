"""Canonical JSON: what goes in comes out, and equal objects give equal bytes."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.codec import dump_payload, format_error, load_payload

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


def shuffled(value: Any) -> Any:
    """An equal value whose mappings were filled in the opposite order."""
    match value:
        case dict():
            return {key: shuffled(value[key]) for key in reversed(value)}
        case list():
            return [shuffled(item) for item in value]
    return value


@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert load_payload(dump_payload(value)) == value


@given(values)
def test_the_bytes_are_json_to_everybody(value: Any) -> None:
    assert json.loads(dump_payload(value)) == value


@given(values)
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert dump_payload(shuffled(value)) == dump_payload(value)


@given(values)
def test_dumping_again_changes_nothing(value: Any) -> None:
    data = dump_payload(value)
    assert dump_payload(load_payload(data)) == data


def test_the_form_is_canonical() -> None:
    assert dump_payload({"b": 1, "a": [True, None, 1.5, "é"]}) == '{"a":[true,null,1.5,"é"],"b":1}'.encode()


def test_a_tuple_is_a_list() -> None:
    assert dump_payload({"a": (1, (2,))}) == dump_payload({"a": [1, [2]]}) == b'{"a":[1,[2]]}'


def test_an_ordered_dict_is_a_dict() -> None:
    assert dump_payload(OrderedDict(b=1, a=2)) == b'{"a":2,"b":1}'


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**100])
def test_a_large_integer_stays_exact_or_is_refused(value: int) -> None:
    try:
        data = dump_payload([value])
    except ValueError:
        return
    assert load_payload(data) == [value]


@pytest.mark.parametrize("value", [set(), frozenset(), b"", bytearray(), object(), float("nan"), {1: 2}, {(1,): 2}, 1j])
@pytest.mark.parametrize("inside", [lambda v: v, lambda v: [v], lambda v: {"a": [v]}, lambda v: (v,)])
def test_what_json_can_t_hold_is_refused_at_any_depth(value: Any, inside: Any) -> None:
    with pytest.raises(ValueError, match="payload"):
        dump_payload(inside(value))


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}])
def test_what_is_nested_without_end_is_refused_in_few_words(wrap: Any) -> None:
    value: Any = 1
    for _ in range(100_000):
        value = wrap(value)
    with pytest.raises(ValueError, match="nested too deeply") as caught:
        dump_payload(value)
    assert len(str(caught.value)) < 200


def test_an_error_is_kept_as_its_type_and_message() -> None:
    assert format_error(KeyError("a")) == "KeyError: 'a'"
