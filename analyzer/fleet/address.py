"""``--on``: where Ray is to be found, and whether anything answers there."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from analyzer.errors import UsageError

_CLIENT = "ray://"
_CONNECT_S = 5.0
# RFC 9113: what a client says first, with an empty SETTINGS frame; the server's own (type 4) come back.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HEADER, _TYPE, _SETTINGS = 9, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A cluster's head as Ray takes it, and what listens there; ``named_by`` says in messages who named it."""

    text: str
    host: str
    port: int
    named_by: str


def address_of(text: str, named_by: str) -> Address:
    """The address in a text: ``HOST:PORT`` or ``ray://HOST:PORT``.

    Raises:
        UsageError: It is none.
    """
    host, _, port = text.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16 or "/" in host:
        raise UsageError(
            f"{named_by} {text} is no place where a fleet can be worked on.",
            hint="It is local, ray, HOST:PORT of a cluster of Ray, or ray://HOST:PORT of its client server.",
        )
    return Address(text=text, host=host.strip("[]"), port=int(port), named_by=named_by)


def require_answer(address: Address) -> None:
    """Says within seconds where nothing answers, or something that is not Ray: Ray itself tries for a minute.

    Raises:
        UsageError: So it is.
    """
    try:
        with socket.create_connection((address.host, address.port), timeout=_CONNECT_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return  # what answers speaks TLS, and with certificates of its own
            connection.sendall(_PREFACE)
            found = b""
            while len(found) < _HEADER and (part := connection.recv(_HEADER - len(found))):
                found += part
    except OSError as error:
        raise _no_answer(address, f"No Ray answers at {address.text}: {error.strerror or error}.") from error
    if len(found) < _HEADER or found[_TYPE] != _SETTINGS:
        raise _no_answer(address, f"What answers at {address.text} is not Ray.")


def answers(address: Address) -> bool:
    """Whether Ray seems to be there."""
    try:
        require_answer(address)
    except UsageError:
        return False
    return True


def _no_answer(address: Address, message: str) -> UsageError:
    """The error, with how to start a cluster that would have answered."""
    # Of Ray Client this process stays outside of the cluster.
    kind = "ray-client-server-port" if address.text.startswith(_CLIENT) else "port"
    start = f"Start one on {address.host}: `ray start --head --{kind}={address.port}`"
    if address.named_by.startswith("--on"):
        return UsageError(message, hint=f"{start}; or leave --on out to use this machine alone.")
    return UsageError(message, hint=f"{start}; {address.named_by} names it.")
