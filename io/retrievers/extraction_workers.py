"""Extraction of text in separate processes with limits of time and memory.

A document comes from strangers, and a parser that is caught by it cannot be stopped within a process. So each document
is parsed in a worker: a bare Python that imports nothing but the parsers, and can be killed. Requests are JSON and
bytes, replies are JSON: nothing that a worker sends is executed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Final

from fcjax.io.retrievers.extraction import ExtractionError, ExtractionTimeoutError, OutOfTime, text_of

WORKERS: Final = 2
"""Processes of a pool, and so documents that are parsed at once."""
GRACE: Final = 1.0
"""Seconds after a document's time until its worker is killed; in them, a worker reports what it has."""
MEMORY: Final = 2 << 30
"""Bytes of address space of a worker, in addition to `MEMORY_PER_BYTE` for each byte of the document."""
MEMORY_PER_BYTE: Final = 32
_NEAR: Final = 7 / 8
"""The share of its limit that a worker has used when a parser, which may hide the error, was denied memory."""

_START: Final = 60.0  # seconds until a new worker must be ready, on a busy machine
_LONGEST_REPLY: Final = 16 << 20  # bytes; the text's own limit is far below
_LENGTH: Final = struct.Struct("<II")  # of a message's JSON and of the bytes behind it
_CHILD: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {} import serve; serve()"


class Workers:
    """A pool of at most `most` processes that extract texts; it may be used by several threads.

    They start when they are first needed, and again after `close`. A worker that is killed is replaced. `memory` is in
    bytes, as `MEMORY`.
    """

    def __init__(self, most: int = WORKERS, *, memory: int = MEMORY):
        self._memory = memory
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._all: set[_Worker] = set()
        self._idle: list[_Worker] = []

    def text_of(self, kind: str, body: bytes, charset: str | None, seconds: float) -> tuple[str, str | None]:
        """What `extraction.text_of` returns, within `seconds`; blocks, also while all workers are busy.

        Raises `ExtractionTimeoutError` after that time, and `ExtractionError`.
        """
        memory = self._memory + MEMORY_PER_BYTE * len(body)
        request = {"kind": kind, "charset": charset, "seconds": seconds, "memory": memory, "least": self._memory}
        with self._room:
            worker = self._taken()
            try:
                reply = worker.ask(request, body, seconds + GRACE)
            except BaseException:
                with self._lock:
                    self._all.discard(worker)
                worker.end()
                raise
            with self._lock:
                kept = worker in self._all and not reply.get("large")
                if kept:
                    self._idle.append(worker)
                else:
                    self._all.discard(worker)
            if not kept:  # the pool was closed, or what comes next would not be told from this document
                worker.end()
        if "error" in reply:
            raise ExtractionError(reply["error"])
        if "text" not in reply:
            raise ExtractionTimeoutError(f"extracting the text took over {seconds:g} s")
        return reply["text"], reply["note"]

    def close(self) -> None:
        """End all workers; documents that are being parsed are given up."""
        with self._lock:
            busy, idle = self._all.difference(self._idle), self._idle
            self._all, self._idle = set(), []
        for worker in busy:
            worker.kill()  # the thread that waits for it does the rest
        for worker in idle:
            worker.end()

    def _taken(self) -> _Worker:
        """A worker that is idle, or else a new one."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                self._all.discard(worker)
            worker.end()
        worker = _Worker()
        with self._lock:
            self._all.add(worker)
        return worker


class _Worker:
    """One process. Raises `ExtractionError` where it cannot be started."""

    def __init__(self) -> None:
        from multiprocessing.spawn import get_executable  # which an embedding program may have set

        try:
            paths = [os.fsdecode(path) or os.getcwd() for path in sys.path]
            command = [get_executable() or sys.executable, "-P", "-c", _CHILD.format(__name__), json.dumps(paths)]
            self._process = subprocess.Popen(
                [os.fsdecode(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the program, which ends its workers
            )
        except OSError as error:
            raise ExtractionError(f"no process could be started to extract the text ({error.strerror})") from error
        self._ready = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], body: bytes, seconds: float) -> dict[str, Any]:
        """The reply to a request. After `seconds`, the process is killed; then the reply is empty."""
        if not self._ready:
            if self._within(_START, lambda: _receive(self._process.stdout)) is None:
                raise ExtractionError(f"the process that extracts text did not start ({self._exit()})")
            self._ready = True

        def exchange() -> tuple[dict[str, Any], bytes] | None:
            _send(self._process.stdin, request, body)
            return _receive(self._process.stdout)

        begin = time.monotonic()
        reply = self._within(seconds, exchange)
        if reply is not None:
            return reply[0]
        if time.monotonic() - begin >= seconds:
            raise ExtractionTimeoutError(f"extracting the text took over {request['seconds']:g} s")
        raise ExtractionError(f"the process that extracts text died ({self._exit()})")

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill the process and release all that belongs to it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _within(self, seconds: float, do: Any) -> Any:
        """The result of `do`, None where the process ended or was killed after `seconds`."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            return do()
        except (OSError, ValueError):  # the process is gone, or writes what is no reply
            return None
        finally:
            timer.cancel()
            timer.join()  # so that it cannot kill during the next document

    def _exit(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"


def _send(pipe: Any, message: dict[str, Any], body: bytes = b"") -> None:
    head = json.dumps(message).encode()
    for part in (_LENGTH.pack(len(head), len(body)) + head, body):
        left = memoryview(part)
        while left:
            left = left[pipe.write(left) :]


def _receive(pipe: Any, longest: int = _LONGEST_REPLY) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None where there is none or it is cut off."""
    lengths = _exactly(pipe, _LENGTH.size)
    if lengths is None:
        return None
    head_length, body_length = _LENGTH.unpack(lengths)
    if head_length + body_length > longest:
        return None
    head, body = _exactly(pipe, head_length), _exactly(pipe, body_length)
    return None if head is None or body is None else (json.loads(head), body)


def _exactly(pipe: Any, count: int) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        part = pipe.read(min(count - len(found), 1 << 20))
        if not part:
            return None
        found += part
    return bytes(found)


# ---- What runs in the process.


def serve() -> None:
    """Answer requests until there are no more."""
    import pypdf  # noqa: F401
    import trafilatura  # noqa: F401

    requests, replies = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # a library that prints must not spoil a reply
        os.dup2(nothing, number)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _alarm)
    _send(replies, {})
    while (received := _receive(requests, 1 << 40)) is not None:
        request, body = received
        before = _peak()
        _limit(request["memory"], request["seconds"])
        reply = _reply(request, body)
        after = _peak()
        if "error" in reply and after > before and after > _NEAR * request["memory"]:
            reply = {"error": f"extracting the text needs more than {request['memory'] >> 20:,} MiB of memory"}
        _send(replies, reply | {"large": after > _NEAR * request["least"]})
        del received, body, reply


def _reply(request: dict[str, Any], body: bytes) -> dict[str, Any]:
    seconds = request["seconds"]
    try:
        try:
            _set_alarm(seconds)
            text, note = text_of(request["kind"], body, request["charset"], time.monotonic() + seconds)
        finally:
            _set_alarm(0)
    except OutOfTime:
        return {}
    except ExtractionError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"extracting the text needs more than {request['memory'] >> 20:,} MiB of memory"}
    except Exception as error:  # a stranger's document met a fault of a library: that document's loss
        return {"error": f"extracting the text failed ({type(error).__name__})"}
    return {"text": text, "note": note}


def _peak() -> int:
    """The most bytes of address space that this process ever had; 0 where the system does not say."""
    try:
        with open("/proc/self/status", "rb") as lines:
            return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"VmPeak:")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def _alarm(number: int, frame: Any) -> None:
    raise OutOfTime


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit(memory: int, seconds: float) -> None:
    """Limit this process for its next document; its time too, as the program that would kill it may be gone."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: math.ceil(time.process_time() + seconds + GRACE) + 1,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        _, hard = resource.getrlimit(kind)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has no limit of address space
            resource.setrlimit(kind, (most, hard))
