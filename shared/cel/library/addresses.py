"""IP addresses and CIDRs, with Go's errors."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from shared.cel.declarations import FunctionDeclaration, function, member, overload
from shared.cel.types import BOOL, CIDR, INT, IP, STRING
from shared.cel.values import CelError, Cidr, Ip, Value, go_quote

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


def _parse_ip(text: str) -> Ip:
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


def _ip(text: str) -> Value:
    try:
        return _parse_ip(text)
    except ValueError as cause:
        return CelError(str(cause))


def _cidr(text: str) -> Value:
    try:
        return _parse_cidr(text)
    except ValueError as cause:
        return CelError(f"network address parse error during conversion from string: {cause}")


def _is_ip(text: str) -> Value:
    return not isinstance(_ip(text), CelError)


def _is_cidr(text: str) -> Value:
    return not isinstance(_cidr(text), CelError)


def _ip_text(value: Ip) -> str:
    return str(value.address)


def _cidr_text(value: Cidr) -> str:
    return f"{value.address}/{value.bits}"


def _is_canonical(text: str) -> Value:
    address = _ip(text)
    return _ip_text(address) == text if isinstance(address, Ip) else address


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
    network = ip_network((int(value.address), value.bits), strict=False) if value.address.version == 4 else None
    if network is None:
        mask = ((1 << 128) - 1) ^ ((1 << (128 - value.bits)) - 1)
        return Cidr(IPv6Address(int(value.address) & mask), value.bits)
    return Cidr(network.network_address, value.bits)


def _covers(cidr: Cidr, address: Address, bits: int) -> bool:
    """Whether the first bits of an address are those of the CIDR."""
    if cidr.address.version != address.version:
        return False
    ignored = address.max_prefixlen - bits
    return int(cidr.address) >> ignored == int(address) >> ignored


def _contains_ip(cidr: Cidr, ip: Ip | str) -> Value:
    address = _ip(ip) if isinstance(ip, str) else ip
    return _covers(cidr, address.address, cidr.bits) if isinstance(address, Ip) else _other_error(address)


def _contains_cidr(cidr: Cidr, other: Cidr | str) -> Value:
    part = _cidr(other) if isinstance(other, str) else other
    if not isinstance(part, Cidr):
        return part
    return cidr.bits <= part.bits and _covers(cidr, part.address, cidr.bits)


def _other_error(_: Value) -> CelError:
    return CelError("no such overload")


FUNCTIONS: list[FunctionDeclaration] = [
    function("ip", overload("string_to_ip", [STRING], IP, _ip)),
    function("family", member("ip_family", [IP], INT, lambda value: value.address.version)),
    function("ip.isCanonical", overload("ip_is_canonical", [STRING], BOOL, _is_canonical)),
    function("isUnspecified", member("ip_is_unspecified", [IP], BOOL, lambda value: value.address.is_unspecified)),
    function("isLoopback", member("ip_is_loopback", [IP], BOOL, lambda value: value.address.is_loopback)),
    function("isLinkLocalMulticast", member("ip_is_link_local_multicast", [IP], BOOL, _is_link_local_multicast)),
    function("isLinkLocalUnicast", member("ip_is_link_local_unicast", [IP], BOOL, _is_link_local_unicast)),
    function("isGlobalUnicast", member("ip_is_global_unicast", [IP], BOOL, _is_global_unicast)),
    function("isIP", overload("is_ip", [STRING], BOOL, _is_ip)),
    function("string", overload("ip_to_string", [IP], STRING, _ip_text)),
    function("cidr", overload("string_to_cidr", [STRING], CIDR, _cidr)),
    function(
        "containsIP",
        member("cidr_contains_ip_string", [CIDR, STRING], BOOL, _contains_ip),
        member("cidr_contains_ip_ip", [CIDR, IP], BOOL, _contains_ip),
    ),
    function(
        "containsCIDR",
        member("cidr_contains_cidr_string", [CIDR, STRING], BOOL, _contains_cidr),
        member("cidr_contains_cidr", [CIDR, CIDR], BOOL, _contains_cidr),
    ),
    function("ip", member("cidr_ip", [CIDR], IP, lambda value: Ip(value.address))),
    function("prefixLength", member("cidr_prefix_length", [CIDR], INT, lambda value: value.bits)),
    function("masked", member("cidr_masked", [CIDR], CIDR, _masked)),
    function("isCIDR", overload("is_cidr", [STRING], BOOL, _is_cidr)),
    function("string", overload("cidr_to_string", [CIDR], STRING, _cidr_text)),
]
