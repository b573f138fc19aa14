"""Compare an answer with a schema of JSON: the small part of JSON Schema that SPEC 1.6 has. No `pattern`, no `$ref`."""

from collections.abc import Mapping

from protocol.run import Constant, JsonSchema, JsonType, RowText, bounded_json
from protocol.schema import Malformed


def fits(answer: str, schema: JsonSchema, values: Mapping[str, str]) -> bool:
    """Return whether the answer is JSON of the schema's form. ``values``: of the row's fields."""
    try:
        value = bounded_json.read_json(answer, "answer")
    except Malformed:
        return False
    return _fits(value, schema, values)


def _fits(value: object, schema: JsonSchema, values: Mapping[str, str]) -> bool:
    """Compare each value once with each schema that applies to it; schemas nest a few levels, so recursion ends."""
    if schema.type is not None and schema.type not in _types_of(value):
        return False
    if schema.allowed is not None and not _is_among(value, schema.allowed, values):
        return False
    if isinstance(value, str):
        return _within(len(value), schema.text)
    if isinstance(value, list):
        is_counted = _within(len(value), schema.items_count)
        return is_counted and (schema.items is None or all(_fits(each, schema.items, values) for each in value))
    if isinstance(value, dict):
        return _object_fits(value, schema, values)
    return isinstance(value, bool) or not isinstance(value, int | float) or _within(value, schema.value)


def _object_fits(value: Mapping[str, object], schema: JsonSchema, values: Mapping[str, str]) -> bool:
    if not schema.is_open and any(name not in schema.properties for name in value):
        return False
    if any(name not in value for name in schema.required):
        return False
    known = ((each, schema.properties[name]) for name, each in value.items() if name in schema.properties)
    return all(_fits(each, wanted, values) for each, wanted in known)


def _types_of(value: object) -> tuple[JsonType, ...]:
    """Return the types that a value of JSON has; a whole number has two, as 3.0 is an integer, too."""
    match value:
        case None:
            return (JsonType.NULL,)
        case bool():
            return (JsonType.BOOLEAN,)
        case str():
            return (JsonType.STRING,)
        case int() | float():
            return (JsonType.NUMBER, JsonType.INTEGER) if value == int(value) else (JsonType.NUMBER,)
        case list():
            return (JsonType.ARRAY,)
        case _:
            return (JsonType.OBJECT,)


def _is_among(value: object, allowed: tuple[Constant, ...], values: Mapping[str, str]) -> bool:
    """Return whether a value is one of the constants; true is not 1, although Python says so."""
    filled = (each.filled(values.__getitem__) if isinstance(each, RowText) else each for each in allowed)
    return any(isinstance(value, bool) is isinstance(each, bool) and value == each for each in filled)


def _within(size: float, ends: tuple[float, float]) -> bool:
    return ends[0] <= size <= ends[1]
