"""What collections in the order of `_id` ask of an `_id`."""

import math
from typing import Final

from bson import Binary, Decimal128

from ..common.errors import Location
from ..common.values import decode, encode

RECORD_ID_BYTES_MAX: Final = 8 * 1024 * 1024
_STRING_BYTES: Final = 2
_BINARY_BYTES: Final = 7
_DOCUMENT_BYTES: Final = 12


def check_record_id(raw: bytes) -> None:
    """Refuse an `_id` that is too long to keep documents in its order.

    Raises:
        Location: 5894900
    """
    identity = decode(raw).get("_id")
    if isinstance(identity, str):
        size = len(identity.encode()) + _STRING_BYTES
    elif isinstance(identity, bytes | Binary):
        size = len(identity) + _BINARY_BYTES
    else:
        size = len(encode({"": identity})) - _DOCUMENT_BYTES
    if size > RECORD_ID_BYTES_MAX:
        raise Location(
            5894900, f"The size of the RecordId is too large: {size} bytes, the most is {RECORD_ID_BYTES_MAX} bytes"
        )


def refuse_number_twice(raw: bytes) -> None:
    """Tell of a second NaN or infinity as MongoDB does, which cannot show such a key of a clustered collection.

    Raises:
        Location: 50819, 50826
    """
    identity = decode(raw).get("_id")
    if isinstance(identity, Decimal128):
        number = identity.to_decimal()
        nan, infinite = number.is_nan(), number.is_infinite()
    elif isinstance(identity, float):
        nan, infinite = math.isnan(identity), math.isinf(identity)
    else:
        return
    if nan:
        raise Location(50819, "the _id NaN is there already")
    if infinite:
        raise Location(50826, "the _id of an infinite number is there already")
