"""IP addresses and CIDRs, with Go's errors."""

from ipaddress import IPv4Address, IPv6Address

from shared.cel.declarations import Overload, member, parsable
from shared.cel.types import BOOL, CIDR, INT, IP, STRING
from shared.cel.values import NO_SUCH_OVERLOAD, Cidr, Ip, Value, go_quote

_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_DIGITS = frozenset("0123456789")
Address = IPv4Address | IPv6Address


def parse_address(text: str) -> tuple[Address, str]:
    """The address and its zone, if any; ValueError with Go's text if there is no address."""
    for character in text:
        if character == ".":
            return IPv4Address(bytes(_fields(text, text))), ""
        if character == ":":
            return _parse_v6(text)
        if character == "%":
            raise _wrong(text, "missing IPv6 address")
    raise _wrong(text, "unable to parse IP")


def _wrong(text: str, reason: str, where: str = "") -> ValueError:
    suffix = f" (at {go_quote(where)})" if where else ""
    return ValueError(f"ParseAddr({go_quote(text)}): {reason}{suffix}")


def _fields(text: str, dotted: str) -> list[int]:
    """The four numbers of an IPv4 address, which may stand at the end of an IPv6 address."""
    fields: list[int] = []
    value = digits = 0
    for index, character in enumerate(dotted):
        if character in _DIGITS:
            if digits == 1 and value == 0:
                raise _wrong(text, "IPv4 field has octet with leading zero")
            value = value * 10 + int(character)
            digits += 1
            if value > 255:
                raise _wrong(text, "IPv4 field has value >255")
        elif character == ".":
            if index in (0, len(dotted) - 1) or dotted[index - 1] == ".":
                raise _wrong(text, "IPv4 field must have at least one digit", dotted[index:])
            if len(fields) == 3:
                raise _wrong(text, "IPv4 address too long")
            fields.append(value)
            value = digits = 0
        else:
            raise _wrong(text, "unexpected character", dotted[index:])
    if len(fields) < 3:
        raise _wrong(text, "IPv4 address too short")
    return [*fields, value]


def _parse_v6(text: str) -> tuple[Address, str]:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _wrong(text, "zone must be a non-empty string")
    parts = bytearray()
    ellipsis = -1
    if rest.startswith("::"):
        ellipsis = 0
        rest = rest[2:]
    while rest and len(parts) < 16:
        length = _hexadecimal_digits(text, rest)
        if rest[length : length + 1] == ".":
            if ellipsis < 0 and len(parts) != 12:
                raise _wrong(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
            if len(parts) + 4 > 16:
                raise _wrong(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
            parts += bytes(_fields(text, rest))
            rest = ""
            break
        parts += int(rest[:length], 16).to_bytes(2)
        rest = rest[length:]
        if not rest:
            break
        if rest[0] != ":":
            raise _wrong(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _wrong(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis >= 0:
                raise _wrong(text, "multiple :: in address", rest)
            ellipsis = len(parts)
            rest = rest[1:]
    if rest:
        raise _wrong(text, "trailing garbage after address", rest)
    if len(parts) < 16:
        if ellipsis < 0:
            raise _wrong(text, "address string too short")
        parts[ellipsis:ellipsis] = bytes(16 - len(parts))
    elif ellipsis >= 0:
        raise _wrong(text, "the :: must expand to at least one field of zeros")
    return IPv6Address(bytes(parts)), zone


def _hexadecimal_digits(text: str, rest: str) -> int:
    length = 0
    while length < len(rest) and rest[length] in _HEXADECIMAL:
        if length > 3:
            raise _wrong(text, "each group must have 4 or less digits", rest)
        length += 1
    if not length:
        raise _wrong(text, "each colon-separated field must have at least one digit", rest)
    return length


def _ip(text: str) -> Ip:
    try:
        address, zone = parse_address(text)
    except ValueError as cause:
        message = f"IP Address {go_quote(text)} parse error during conversion from string: {cause}"
        raise ValueError(message) from None
    if zone:
        raise ValueError(f"IP address {go_quote(text)} with zone value is not allowed")
    if _mapped(address):
        raise ValueError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return Ip(address)


def _parse_cidr(text: str) -> Cidr:
    try:
        cidr = _parse_prefix(text)
    except ValueError as cause:
        message = f"network address parse error during conversion from string: netip.ParsePrefix({go_quote(text)})"
        raise ValueError(f"{message}: {cause}") from None
    if _mapped(cidr.address):
        raise ValueError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return cidr


def _parse_prefix(text: str) -> Cidr:
    before, slash, bits = text.rpartition("/")
    if not slash:
        raise ValueError("no '/'")
    address, zone = parse_address(before)
    if zone:
        raise ValueError("IPv6 zones cannot be present in a prefix")
    bad_bits = f"bad bits after slash: {go_quote(bits)}"
    if (len(bits) > 1 and bits[0] not in "123456789") or not bits or not set(bits) <= _DIGITS or len(bits) > 18:
        raise ValueError(bad_bits)
    if int(bits) > address.max_prefixlen:
        raise ValueError("prefix length out of range")
    return Cidr(address, int(bits))


def _mapped(address: Address) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


def _cidr(text: str) -> Cidr:
    try:
        return _parse_cidr(text)
    except ValueError as cause:
        raise ValueError(f"network address parse error during conversion from string: {cause}") from None


def _is_link_local_multicast(value: Ip) -> Value:
    octets = value.address.packed
    return octets[:3] == b"\xe0\0\0" if len(octets) == 4 else octets[0] == 0xFF and octets[1] & 0x0F == 2


def _is_link_local_unicast(value: Ip) -> Value:
    octets = value.address.packed
    return octets[:2] == b"\xa9\xfe" if len(octets) == 4 else octets[0] == 0xFE and octets[1] & 0xC0 == 0x80


def _is_global_unicast(value: Ip) -> Value:
    address = value.address
    if address == IPv4Address("255.255.255.255") or address.is_unspecified or address.is_loopback:
        return False
    return not address.is_multicast and not _is_link_local_unicast(value)


def _masked(value: Cidr) -> Cidr:
    ignored = value.address.max_prefixlen - value.bits
    return Cidr(type(value.address)(int(value.address) >> ignored << ignored), value.bits)


def _covers(cidr: Cidr, address: Address) -> bool:
    """Whether the first bits of an address are those of the CIDR."""
    ignored = address.max_prefixlen - cidr.bits
    return cidr.address.version == address.version and int(cidr.address) >> ignored == int(address) >> ignored


def _contains_ip(cidr: Cidr, ip: Ip | str) -> Value:
    try:
        return _covers(cidr, (_ip(ip) if isinstance(ip, str) else ip).address)
    except ValueError:
        return NO_SUCH_OVERLOAD


def _contains_cidr(cidr: Cidr, other: Cidr | str) -> Value:
    part = _cidr(other) if isinstance(other, str) else other
    return cidr.bits <= part.bits and _covers(cidr, part.address)


FUNCTIONS = [
    Overload("ip", "string_to_ip", [STRING], IP, _ip),
    member("family", "ip_family", [IP], INT, lambda value: value.address.version),
    Overload("ip.isCanonical", "ip_is_canonical", [STRING], BOOL, lambda text: str(_ip(text).address) == text),
    member("isUnspecified", "ip_is_unspecified", [IP], BOOL, lambda value: value.address.is_unspecified),
    member("isLoopback", "ip_is_loopback", [IP], BOOL, lambda value: value.address.is_loopback),
    member("isLinkLocalMulticast", "ip_is_link_local_multicast", [IP], BOOL, _is_link_local_multicast),
    member("isLinkLocalUnicast", "ip_is_link_local_unicast", [IP], BOOL, _is_link_local_unicast),
    member("isGlobalUnicast", "ip_is_global_unicast", [IP], BOOL, _is_global_unicast),
    Overload("isIP", "is_ip", [STRING], BOOL, parsable(_ip)),
    Overload("string", "ip_to_string", [IP], STRING, lambda value: str(value.address)),
    Overload("cidr", "string_to_cidr", [STRING], CIDR, _cidr),
    member("containsIP", "cidr_contains_ip_string", [CIDR, STRING], BOOL, _contains_ip),
    member("containsIP", "cidr_contains_ip_ip", [CIDR, IP], BOOL, _contains_ip),
    member("containsCIDR", "cidr_contains_cidr_string", [CIDR, STRING], BOOL, _contains_cidr),
    member("containsCIDR", "cidr_contains_cidr", [CIDR, CIDR], BOOL, _contains_cidr),
    member("ip", "cidr_ip", [CIDR], IP, lambda value: Ip(value.address)),
    member("prefixLength", "cidr_prefix_length", [CIDR], INT, lambda value: value.bits),
    member("masked", "cidr_masked", [CIDR], CIDR, _masked),
    Overload("isCIDR", "is_cidr", [STRING], BOOL, parsable(_cidr)),
    Overload("string", "cidr_to_string", [CIDR], STRING, lambda value: f"{value.address}/{value.bits}"),
]
