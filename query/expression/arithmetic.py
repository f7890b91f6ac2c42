"""Arithmetic: `$add $subtract $multiply $divide $mod $abs $ceil $floor $round $trunc $sqrt $pow $exp $ln $log $log10`,
trigonometry and `$rand`.

A result has the widest type among its operands: int32, int64, double, Decimal128. An int32 that overflows becomes int64,
an int64 that overflows a double. Null or missing operands give null.
"""

import math
import random
from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from bson import DatetimeMS, Decimal128, Int64

from ...common.errors import BadValue, Location, Overflow, TypeMismatch
from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, is_number, whole_number
from ...common.values import MISSING, type_name
from .base import VARIADIC, Call, Expression, OperatorParser, ParseContext, call_of, operands

DECIMAL: Final = Context(prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, traps=[], clamp=1)
"""The arithmetic of Decimal128; nothing raises, as in IEEE 754."""
_EXACT: Final = Context(prec=12_500, rounding=ROUND_HALF_EVEN, Emin=-13_000, Emax=13_000, traps=[])
"""Holds the difference between the largest and the smallest Decimal128 exactly."""


def to_decimal(value: Any) -> Decimal:
    """A number as a decimal; a double has fifteen digits, zeros at the end included, as MongoDB converts it."""
    if isinstance(value, Decimal128):
        return value.to_decimal()
    if isinstance(value, float):
        if not math.isfinite(value):
            return Decimal(repr(value))
        return Decimal(f"{value:.14e}") if value else Decimal(repr(value)).to_integral_value()
    return Decimal(int(value))


def from_decimal(value: Decimal) -> Decimal128:
    """A decimal as BSON, rounded to 34 digits."""
    return Decimal128(DECIMAL.create_decimal(value) if value.is_finite() else value)


def integer_result(value: int, *, wide: bool) -> Any:
    """A whole result as int32 or int64, or as a double where it is too large; `wide`: some operand was an int64."""
    if not wide and INT32_MIN <= value <= INT32_MAX:
        return value
    return Int64(value) if INT64_MIN <= value <= INT64_MAX else float(value)


def is_wide(value: Any) -> bool:
    """Whether a whole number is an int64."""
    return type(value) is Int64 or not INT32_MIN <= value <= INT32_MAX


def absent(value: Any) -> bool:
    """Whether a value is null or missing."""
    return value is None or value is MISSING


def add(*values: Any) -> Any:
    """`$add`: numbers, and numbers to one date."""
    total: Any = 0
    date: int | None = None
    wide = kind = 0
    for value in values:
        if absent(value):
            return None
        if type(value) is DatetimeMS:
            if date is not None:
                raise Location(16612, "only one date allowed in an $add expression")
            date = int(value)
            continue
        if not is_number(value):
            raise TypeMismatch(f"$add only supports numeric or date types, not {type_name(value)}")
        if isinstance(value, Decimal128):
            kind = 2
        elif isinstance(value, float):
            kind = max(kind, 1)
        else:
            wide |= is_wide(value)
    numbers = [value for value in values if type(value) is not DatetimeMS]
    if date is not None:
        return _date(date + sum(_milliseconds(value) for value in numbers))
    if kind == 2:
        for value in numbers:
            total = DECIMAL.add(Decimal(total), to_decimal(value))
        return from_decimal(Decimal(total))
    if kind == 1:
        return _sum_of_doubles(numbers)
    return integer_result(sum(int(value) for value in numbers), wide=bool(wide))


def _sum_of_doubles(numbers: Sequence[Any]) -> float:
    """The sum, rounded once where it is finite."""
    if len(numbers) > 2 and all(math.isfinite(number) for number in numbers):
        try:
            whole = sum(int(number) for number in numbers if isinstance(number, int))
            high = float(whole)
            # Two doubles hold what one may round off.
            return math.fsum([*(one for one in numbers if isinstance(one, float)), high, float(whole - int(high))])
        except OverflowError:
            pass  # the plain sum below is infinite, or was only on the way there
    return float(sum(map(float, numbers)))


def _milliseconds(value: Any) -> int:
    """A number added to a date, as whole milliseconds."""
    if isinstance(value, Decimal128):
        decimal = value.to_decimal()
        if not decimal.is_finite():
            raise Overflow("date overflow")
        return int(decimal.to_integral_value(ROUND_HALF_EVEN))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Overflow("date overflow")
        away = math.floor(abs(value) + 0.5)
        return -away if value < 0 else away
    return int(value)


def _date(milliseconds: int) -> DatetimeMS:
    if not INT64_MIN <= milliseconds <= INT64_MAX:
        raise Overflow("date overflow")
    return DatetimeMS(milliseconds)


def subtract(left: Any, right: Any) -> Any:
    """`$subtract`: numbers, a number from a date, or two dates."""
    if absent(left) or absent(right):
        return None
    if type(left) is DatetimeMS:
        if type(right) is DatetimeMS:
            return Int64(int(left) - int(right))
        if is_number(right):
            return _date(int(left) - _milliseconds(right))
        raise TypeMismatch(f"can't $subtract {type_name(right)} from {type_name(left)}")
    if not is_number(left) or not is_number(right):
        raise TypeMismatch(f"can't $subtract {type_name(right)} from {type_name(left)}")
    if isinstance(left, Decimal128) or isinstance(right, Decimal128):
        return from_decimal(DECIMAL.subtract(to_decimal(left), to_decimal(right)))
    if isinstance(left, float) or isinstance(right, float):
        return float(left) - float(right)
    return integer_result(int(left) - int(right), wide=is_wide(left) or is_wide(right))


def multiply(*values: Any) -> Any:
    """`$multiply`."""
    kind = wide = 0
    for value in values:
        if absent(value):
            return None
        if not is_number(value):
            raise TypeMismatch(f"$multiply only supports numeric types, not {type_name(value)}")
        if isinstance(value, Decimal128):
            kind = 2
        elif isinstance(value, float):
            kind = max(kind, 1)
        else:
            wide |= is_wide(value)
    if kind == 2:
        product = Decimal(1)
        for value in values:
            product = DECIMAL.multiply(product, to_decimal(value))
        return from_decimal(product)
    if kind == 1:
        result = 1.0
        for value in values:
            result *= float(value)
        return result
    return integer_result(math.prod(int(value) for value in values), wide=bool(wide))


def divide(left: Any, right: Any) -> Any:
    """`$divide`: always a double or a decimal."""
    if absent(left) or absent(right):
        return None
    if not is_number(left) or not is_number(right):
        raise TypeMismatch(f"$divide only supports numeric types, not {type_name(left)} and {type_name(right)}")
    if isinstance(left, Decimal128) or isinstance(right, Decimal128):
        divisor = to_decimal(right)
        if divisor == 0:
            raise BadValue("can't $divide by zero")
        return from_decimal(DECIMAL.divide(to_decimal(left), divisor))
    if right == 0:
        raise BadValue("can't $divide by zero")
    return float(left) / float(right)


def modulo(left: Any, right: Any) -> Any:
    """`$mod`: the remainder has the sign of the dividend."""
    if absent(left) or absent(right):
        return None
    if not is_number(left) or not is_number(right):
        raise Location(16611, f"$mod only supports numeric types, not {type_name(left)} and {type_name(right)}")
    if isinstance(left, Decimal128) or isinstance(right, Decimal128):
        divisor = to_decimal(right)
        if divisor == 0:
            raise Location(5733415, "can't $mod by zero")
        return from_decimal(_EXACT.remainder(to_decimal(left), divisor))
    if right == 0:
        raise Location(16610, "can't $mod by zero")
    if isinstance(left, float) or isinstance(right, float):
        whole_left, whole_right = whole_number(left), whole_number(right)
        if (
            isinstance(right, float)
            and whole_left is not None
            and whole_right is not None
            and not isinstance(left, float)
        ):
            return float(math.fmod(whole_left, whole_right))
        return math.fmod(float(left), float(right)) if math.isfinite(float(left)) else float("nan")
    remainder = abs(int(left)) % abs(int(right))
    return integer_result(-remainder if left < 0 else remainder, wide=is_wide(left) or is_wide(right))


def absolute(value: Any) -> Any:
    """`$abs`."""
    if absent(value):
        return None
    _check_number("$abs", value)
    if isinstance(value, Decimal128):
        return from_decimal(value.to_decimal().copy_abs())
    if isinstance(value, float):
        return abs(value)
    if int(value) == INT64_MIN:
        raise Location(28680, "can't take $abs of long long min")
    return integer_result(abs(int(value)), wide=is_wide(value))


def _check_number(name: str, value: Any, code: int = 28765) -> None:
    if not is_number(value):
        raise Location(code, f"{name} only supports numeric types, not {type_name(value)}")


def _whole(name: str, of_double: Callable[[float], float], rounding: str) -> Callable[[Any], Any]:
    def function(value: Any) -> Any:
        if absent(value):
            return None
        _check_number(name, value)
        if isinstance(value, Decimal128):
            decimal = value.to_decimal()
            if not decimal.is_finite() or decimal.adjusted() >= DECIMAL.prec:
                return Decimal128("NaN")
            return from_decimal(decimal.to_integral_value(rounding))
        if isinstance(value, float):
            return math.copysign(of_double(value), value) if math.isfinite(value) else value
        return value

    return function


def _rounded(name: str, rounding: str) -> Callable[..., Any]:
    def function(value: Any, place: Any = 0) -> Any:
        if absent(value) or absent(place):
            return None
        if not is_number(value):
            raise Location(51081, f"{name} only supports numeric types, not {type_name(value)}")
        if not is_number(place):
            raise Location(16004, f"can't convert from BSON type {type_name(place)} to int")
        places = whole_number(place)
        if places is None and isinstance(place, float) and not math.isfinite(place):
            raise Location(31109, f"Can't coerce out of range value {place} to long")
        if places is None:
            raise Location(51082, f"precision argument to  {name} must be a integral value")
        if not -20 <= places <= 100:
            raise Location(51083, f"cannot apply {name} with precision value {places} value must be in [-20, 100]")
        if isinstance(value, Decimal128):
            decimal = value.to_decimal()
            if not decimal.is_finite():
                return value
            rounded = _quantized(decimal, places, rounding)
            padded = DECIMAL.quantize(rounded, Decimal(1).scaleb(-places))
            return from_decimal(rounded if padded.is_nan() else padded)
        if isinstance(value, float):
            if not math.isfinite(value):
                return value
            if places == 0:
                return math.copysign(math.trunc(value) if rounding == ROUND_DOWN else round(value), value)
            return float(_quantized(Decimal(value), places, rounding))
        if places >= 0:
            return value
        whole = int(_quantized(Decimal(int(value)), places, rounding))
        if not INT64_MIN <= whole <= INT64_MAX:
            raise Location(51080, f"invalid conversion from Decimal128 result in {name}: {whole}")
        return integer_result(whole, wide=is_wide(value))

    return function


def _quantized(value: Decimal, places: int, rounding: str) -> Decimal:
    if -value.as_tuple().exponent <= places:  # type: ignore[operator]  # finite, so the exponent is a number
        return value
    wide = Context(prec=400, rounding=rounding, traps=[])
    return wide.quantize(value, Decimal(1).scaleb(-places, wide))


def _real(
    name: str,
    of_double: Callable[[float], float],
    of_decimal: Callable[[Decimal], Decimal] | None = None,
    check: Callable[[Any], bool] | None = None,
    complaint: tuple[int, str] = (0, ""),
) -> Callable[[Any], Any]:
    """A function of one real number; what `check` refuses gets the complaint."""

    def function(value: Any) -> Any:
        if absent(value):
            return None
        _check_number(name, value)
        if isinstance(value, Decimal128):
            decimal = value.to_decimal()
            if decimal.is_nan():
                return math.nan if name in ("$ln", "$log10") else value
            if check is not None and not check(decimal):
                raise Location(complaint[0], f"{complaint[1]}{value}")
            if of_decimal is not None:
                return from_decimal(of_decimal(decimal))
            return from_decimal(Decimal(repr(_caught(of_double, float(decimal)))))
        number = float(value)
        if math.isnan(number):
            return number
        if check is not None and not check(number):
            raise Location(complaint[0], f"{complaint[1]}{value}")
        return _caught(of_double, number)

    return function


def _caught(function: Callable[[float], float], number: float) -> float:
    try:
        return float(function(number))
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def power(base: Any, exponent: Any) -> Any:
    """`$pow`: whole where both operands are whole, the exponent is not negative and the result fits."""
    if absent(base) or absent(exponent):
        return None
    if not is_number(base):
        raise Location(28762, f"$pow's base must be numeric, not {type_name(base)}")
    if not is_number(exponent):
        raise Location(28763, f"$pow's exponent must be numeric, not {type_name(exponent)}")
    if base == 0 and not isinstance(exponent, Decimal128) and exponent < 0:
        raise Location(28764, "$pow cannot take a base of 0 and a negative exponent")
    if isinstance(base, Decimal128) or isinstance(exponent, Decimal128):
        return from_decimal(_decimal_power(to_decimal(base), to_decimal(exponent)))
    if isinstance(base, float) or isinstance(exponent, float) or (exponent < 0 and abs(base) != 1):
        return _double_power(float(base), float(exponent))
    if abs(base) > 1 and exponent > 64:
        return _double_power(float(base), float(exponent))
    result = int(base) ** (int(exponent) if abs(base) > 1 else int(exponent) % 2 if exponent else 0)
    if abs(base) <= 1:
        result = 1 if exponent == 0 else int(base) if base != -1 else (-1 if exponent % 2 else 1)
    return integer_result(result, wide=is_wide(base) or is_wide(exponent))


def _decimal_power(base: Decimal, exponent: Decimal) -> Decimal:
    """A power with all its 34 digits, and zero at its smallest exponent."""
    result = DECIMAL.power(base, exponent)
    if not result.is_finite() or exponent == 0:
        return result
    if result == 0:
        return Decimal("0E-6176")
    return DECIMAL.quantize(result, Decimal(1).scaleb(max(result.adjusted() - DECIMAL.prec + 1, -6176)))


def _double_power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf
    except ValueError:
        return math.nan


def logarithm(value: Any, base: Any) -> Any:
    """`$log` to a base."""
    if absent(value) or absent(base):
        return None
    if not is_number(value):
        raise Location(28756, f"$log's argument must be numeric, not {type_name(value)}")
    if not is_number(base):
        raise Location(28757, f"$log's base must be numeric, not {type_name(base)}")
    exact = isinstance(value, Decimal128) or isinstance(base, Decimal128)
    number, root = (to_decimal(value), to_decimal(base)) if exact else (float(value), float(base))
    if number != number or root != root:
        return math.nan
    if not number > 0:
        raise Location(28758, f"$log's argument must be a positive number, but is {value}")
    if not (root > 0 and root != 1):
        raise Location(28759, f"$log's base must be a positive number not equal to 1, but is {base}")
    if exact:
        return from_decimal(DECIMAL.divide(DECIMAL.ln(to_decimal(value)), DECIMAL.ln(to_decimal(base))))
    return math.log(float(value)) / math.log(float(base))


def _parse_round(function: Callable[..., Any]) -> OperatorParser:
    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        return Call(name, operands(name, spec, context, 1, 2), function)

    return parse


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: low <= value <= high


def _trigonometry(
    name: str, function: Callable[[float], float], check: Callable[[Any], bool] | None = None
) -> OperatorParser:
    complaint = (50989, f"cannot apply {name} to a value outside its domain: ")
    return call_of(_real(name, function, None, check, complaint), 1)


def _atan2(y: Any, x: Any) -> Any:
    if absent(y) or absent(x):
        return None
    for value, code in ((y, 51044), (x, 51045)):
        if not is_number(value):
            raise Location(code, f"$atan2 only supports numeric types, not {type_name(value)}")
    result = math.atan2(float(to_decimal(y)), float(to_decimal(x)))
    if isinstance(y, Decimal128) or isinstance(x, Decimal128):
        return from_decimal(Decimal(repr(result)))
    return result


def _decimal_exponential(value: Decimal) -> Decimal:
    return Decimal(1) if value.adjusted() < -DECIMAL.prec else DECIMAL.exp(value)


def _finite(value: Any) -> bool:
    return bool(math.isfinite(value))


def _parse_random(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict | list):
        raise Location(10065, f"invalid parameter: expected an object ({name})")
    if spec:
        raise Location(3040501, f"{name} does not currently accept arguments")
    return Call(name, [], random.random, shown=lambda values: {}, constant=False)


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$abs": call_of(absolute, 1),
    "$add": call_of(add, 0, VARIADIC),
    "$ceil": call_of(_whole("$ceil", math.ceil, "ROUND_CEILING"), 1),
    "$divide": call_of(divide, 2),
    "$exp": call_of(_real("$exp", math.exp, _decimal_exponential), 1),
    "$floor": call_of(_whole("$floor", math.floor, "ROUND_FLOOR"), 1),
    "$ln": call_of(
        _real(
            "$ln", math.log, DECIMAL.ln, lambda v: v > 0, (28766, "$ln's argument must be a positive number, but is ")
        ),
        1,
    ),
    "$log": call_of(logarithm, 2),
    "$log10": call_of(
        _real(
            "$log10",
            math.log10,
            DECIMAL.log10,
            lambda v: v > 0,
            (28761, "$log10's argument must be a positive number, but is "),
        ),
        1,
    ),
    "$mod": call_of(modulo, 2),
    "$multiply": call_of(multiply, 0, VARIADIC),
    "$pow": call_of(power, 2),
    "$rand": _parse_random,
    "$round": _parse_round(_rounded("$round", ROUND_HALF_EVEN)),
    "$sqrt": call_of(
        _real(
            "$sqrt",
            math.sqrt,
            DECIMAL.sqrt,
            lambda v: v >= 0,
            (28714, "$sqrt's argument must be greater than or equal to 0"),
        ),
        1,
    ),
    "$subtract": call_of(subtract, 2),
    "$trunc": _parse_round(_rounded("$trunc", ROUND_DOWN)),
    "$acos": _trigonometry("$acos", math.acos, _between(-1, 1)),
    "$acosh": _trigonometry("$acosh", math.acosh, _between(1, math.inf)),
    "$asin": _trigonometry("$asin", math.asin, _between(-1, 1)),
    "$asinh": _trigonometry("$asinh", math.asinh),
    "$atan": _trigonometry("$atan", math.atan),
    "$atan2": call_of(_atan2, 2),
    "$atanh": _trigonometry(
        "$atanh", lambda v: math.copysign(math.inf, v) if abs(v) == 1 else math.atanh(v), _between(-1, 1)
    ),
    "$cos": _trigonometry("$cos", math.cos, _finite),
    "$cosh": _trigonometry("$cosh", math.cosh),
    "$degreesToRadians": call_of(_real("$degreesToRadians", math.radians), 1),
    "$radiansToDegrees": call_of(_real("$radiansToDegrees", math.degrees), 1),
    "$sin": _trigonometry("$sin", math.sin, _finite),
    "$sinh": _trigonometry("$sinh", math.sinh),
    "$tan": _trigonometry("$tan", math.tan, _finite),
    "$tanh": _trigonometry("$tanh", math.tanh),
}
