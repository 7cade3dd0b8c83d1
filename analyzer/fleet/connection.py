"""Connect this process to a Ray cluster: one at an address, or one of this machine that is started here.

Ray's refusals become one sentence each; what it would print or take (signals) meanwhile is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.errors import UsageError
from analyzer.fleet.local import default_jobs
from analyzer.fleet.node import Carried

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
    """Return the address in a text: ``HOST:PORT`` or ``ray://HOST:PORT``.

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
    """Report within seconds where nothing answers, or something that is not Ray: Ray itself tries for a minute.

    Raises:
        UsageError: So it is.
    """
    try:
        with socket.create_connection((address.host, address.port), timeout=_CONNECT_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return  # what answers speaks TLS, and with certificates of its own
            connection.sendall(_PREFACE)
            result = b""
            while len(result) < _HEADER and (part := connection.recv(_HEADER - len(result))):
                result += part
    except OSError as error:
        raise _no_answer(address, f"No Ray answers at {address.text}: {error.strerror or error}.") from error
    if len(result) < _HEADER or result[_TYPE] != _SETTINGS:
        raise _no_answer(address, f"What answers at {address.text} is not Ray.")


def answers(address: Address) -> bool:
    """Return whether Ray seems to be there."""
    try:
        require_answer(address)
    except UsageError:
        return False
    return True


def _no_answer(address: Address, message: str) -> UsageError:
    """Return the error, with how to start a cluster that would have answered."""
    # Of Ray Client this process stays outside of the cluster.
    kind = "ray-client-server-port" if address.text.startswith(_CLIENT) else "port"
    start = f"Start one on {address.host}: `ray start --head --{kind}={address.port}`"
    if address.named_by.startswith("--on"):
        return UsageError(message, hint=f"{start}; or leave --on out to use this machine alone.")
    return UsageError(message, hint=f"{start}; {address.named_by} names it.")


# Of a cluster started here: outcomes pass through it, a few MB each.
_STORE_BYTES = 256 * 2**20
# A socket's path has 107 bytes; Ray's own part of it takes 70 (session, date, process, name).
_LONGEST_FOLDER = 36

# A client gets a server of its own on the head node, which a busy head may lose as it begins: another process
# takes the port that was found free, say. The next try gets another port.
_NO_SERVER = "Starting Ray client server failed"
_TRIES = 3
_BETWEEN_TRIES_S = 1.0

_TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_INSTALL_HINT = "pip install 'onnx-analyzer[ray]'"
_HERE = "this machine"
# What a folder that is carried may leave behind.
LEAVE_OUT_HINT = (
    "A file .rayignore says what to leave out (as .gitignore does); or work in a folder that all nodes share."
)


class Connection:
    """A connection to a cluster: the package ``ray``, the cluster's address, and its dashboard.

    ``started``: the cluster is of this machine alone, started here.
    """

    def __init__(self, on: str, jobs: int | None) -> None:
        self._address: Address | None = None if on == "ray" else address_of(on, "--on")
        self.ray: Any = _imported(on)
        self._folder = ""
        self._joined = bool(self.ray.is_initialized())
        self.started = False
        self.dashboard = ""
        if self._joined:  # by a program that uses Ray itself
            self.told = "the cluster of this process"
            return
        self._options: dict[str, Any] = {}
        if self._address is None:
            named = os.environ.get("RAY_ADDRESS", "")
            self._address = None if named in ("", "auto", "local") else address_of(named, "RAY_ADDRESS")
        if self._address is not None:
            self._options = {"address": self._address.text}
        else:
            # Ray looks it up itself, and for that one alone uses the token of this machine.
            self._address = _started_before()
        if self._address is not None:
            self.told = self._address.text
            require_answer(self._address)
            self._begin(**self._options)
        else:
            self.told = _HERE
            self.started = True
            self._start(jobs or default_jobs())

    def carry(self, folder_facts: Carried) -> None:
        """Connect anew with a copy of a folder on each machine.

        Raises:
            UsageError: It is too large, or this connection is none of ours.
        """
        if self._joined or self._address is None:
            raise UsageError(
                "The machines of the cluster do not have the working folder of this one.",
                hint='Before: ray.init(..., runtime_env={"working_dir": "."}), or leave the connecting to us.',
            )
        self.ray.shutdown()
        excludes = [f"/{Path(name).as_posix()}/" for name in folder_facts.left_out]
        self._begin(
            address=self._address.text, runtime_env={"working_dir": folder_facts.folder, "excludes": excludes}
        )

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._joined:
            return
        with contextlib.suppress(Exception), _same_sigterm():
            self.ray.shutdown()
            self._tell_deaths(True)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _tell_deaths(self, yes: bool) -> None:
        """Set whether Ray prints how workers and machines died; rows say what matters of it."""
        # As Ray's own debugger does; no option says so (log_to_driver is about what tasks print).
        self.ray._private.worker._worker_logs_enabled = yes  # noqa: SLF001

    def _start(self, cores: int) -> None:
        # No word to its makers, and no token in the user's home, unless the user has said otherwise.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not any(name in os.environ for name in _TOKEN_VARIABLES):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        base = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(
            prefix="analyze-ray-", dir=base if len(base) < _LONGEST_FOLDER - 20 else "/tmp"
        )
        self._begin(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            _temp_dir=self._folder,
        )

    def _begin(self, **options: Any) -> None:
        """Connect, or start a cluster.

        Raises:
            UsageError: That cannot be done.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                # Its warnings are for programmers.
                with _same_sigterm(), _quiet(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    context = self.ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
                break
            except Exception as error:
                messages = _all_of(error)
                if tries_left and _NO_SERVER in messages:
                    time.sleep(_BETWEEN_TRIES_S)
                    continue
                self.close()
                raise _refused(self.told, messages) from error
        self._tell_deaths(False)
        url = getattr(context, "dashboard_url", None)
        self.dashboard = "" if not url else url if "://" in url else f"http://{url}"


def _imported(on: str) -> Any:
    # Read when Ray is imported; 20 tries, a second each, and a minute by default.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", "10")
    try:
        import ray

        if on.startswith("ray://"):
            import grpc  # noqa: F401 - Ray Client's
    except ImportError as error:
        raise UsageError(
            f"--on {on} needs {error.name}, which is not installed.", hint=_INSTALL_HINT
        ) from error
    return ray


def _started_before() -> Address | None:
    """Return the cluster that ``ray start`` began on this machine; None for none."""
    if os.environ.get("RAY_ADDRESS") == "local":
        return None
    from ray._private.utils import read_ray_address  # what ray.init() reads, and nothing else tells

    text = read_ray_address()
    address = address_of(text, "ray start") if text else None
    return address if address is not None and answers(address) else None


def _refused(where: str, text: str) -> UsageError:
    """Return Ray's reason for a failed connection or start, as one sentence."""
    if "AuthenticationError" in text or "Unauthenticated" in text:
        return UsageError(
            f"The cluster at {where} wants its token.",
            hint="With it in RAY_AUTH_TOKEN or ~/.ray/auth_token: RAY_AUTH_MODE=token.",
        )
    versions = re.findall(r"(Ray|Python): (\S+)", text)
    if len(versions) >= 4:
        (_, ray), (_, python), (_, our_ray), (_, our_python) = versions[:4]
        return UsageError(
            f"The cluster at {where} has Ray {ray} and Python {python}; here are Ray {our_ray} and Python "
            f"{our_python}.",
            hint=f"Both must be the same: pip install 'ray=={ray}', with Python {python}.",
        )
    if "exceeds the maximum size" in text:
        sizes = re.findall(r"[\d.]+ ?MiB", text)
        limit = f" {sizes[1]}" if len(sizes) > 1 else " less"
        return UsageError(
            f"The working folder is too large to be carried to the cluster: packed it has "
            f"{sizes[0] if sizes else 'more'}, and Ray takes{limit}.",
            hint=LEAVE_OUT_HINT,
        )
    first = text.strip().partition("\n")[0].rstrip(".")
    if first.endswith(":") and (raised := re.search(r"^\w+(?:Error|Exception): (.+)", text, re.MULTILINE)):
        first = raised[1].rstrip(".")  # a traceback of the other side follows
    if where == _HERE:
        return UsageError(f"Ray cannot be started here: {first}.", hint="`ray start --head` says more.")
    return UsageError(
        f"Ray at {where} cannot be used: {first}.",
        hint="HOST:PORT is for a machine of the cluster; from elsewhere it is ray://HOST:10001.",
    )


@contextlib.contextmanager
def _same_sigterm() -> Iterator[None]:
    """Ray takes the signal for itself, and would end this process without writing what is finished."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray's C++ parts write to standard error whatever they are told, until they are connected."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there may be none
            saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 2)
            os.dup2(nothing, 2)
            os.close(nothing)
        yield


def _all_of(error: BaseException | None) -> str:
    """Return the messages of an error and of those behind it."""
    texts = []
    while error is not None:
        texts.append(f"{error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)
