"""Processes that import nothing and load no shipped model, which takes seconds: forked from one that has done it.

`Popen` and `run` work like those of `subprocess`, for commands `[sys.executable, "-c" or "-m", ...]`, `-W FILTER` or
`-P` first. What they start is a process of its own: streams, environment, directory, arguments and exit are as if
Python had begun it, and whoever asked for it is its parent, who can interrupt, kill and wait for it. With `light=True`
it is forked from one that has imported the command line, and not PyTorch, for tests of what goes without. Tests of
memory, and of variables that are read while Python or a library starts, need a fresh interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Self, cast

from support import TESTS

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>: who is given the children of a process that ends
_LENGTH = 8  # bytes that say how long a request is
_channels: dict[bool, socket.socket] = {}
Stream = int | IO[Any] | None


# In the process that asks ---------------------------------------------------------------------------------------------


def _connected(light: bool) -> socket.socket:
    """Where processes are asked for; the first call starts the one that forks them."""
    if light not in _channels:
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "this process cannot take over the children of its children")
        _channels[light], theirs = socket.socketpair()
        command = [sys.executable, "-m", "support.warm", str(theirs.fileno()), "light" if light else "whole"]
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        atexit.register(_end, _channels[light], server)
    return _channels[light]


def _end(channel: socket.socket, server: subprocess.Popen[bytes]) -> None:
    channel.close()
    server.wait()


class Popen:
    """The part of `subprocess.Popen` that tests use. Threads may wait for one process together."""

    def __init__(
        self,
        args: Sequence[str | Path],
        *,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        bufsize: int = -1,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
        process_group: int | None = None,
        light: bool = False,
    ) -> None:
        if args[0] != sys.executable or process_group not in (None, 0):
            raise ValueError(f"only `python -c` and `python -m`, in a group of its own or ours, not {args}")
        self.args = args
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        request = {
            "arguments": [str(each) for each in args[1:]],
            "directory": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "own session": start_new_session,
            "own group": process_group == 0,
        }
        content = json.dumps(request).encode()
        own: list[IO[Any] | None] = []
        with contextlib.ExitStack() as theirs:
            streams: list[int] = []
            for number, given in enumerate((stdin, stdout, stderr)):
                passed, kept = _opened(given, number, streams, theirs)
                streams.append(passed)
                buffering = 0 if bufsize == 0 else -1
                own.append(None if kept is None else os.fdopen(kept, "rb" if number else "wb", buffering))
            channel = _connected(light)
            socket.send_fds(channel, [len(content).to_bytes(_LENGTH)], streams)
            channel.sendall(content)
            self.pid = int.from_bytes(_exactly(channel, _LENGTH))
        if text or encoding or errors:
            form: dict[str, Any] = {"encoding": encoding, "errors": errors}
            form |= {"line_buffering": bufsize == 1, "write_through": True}
            own = [each and io.TextIOWrapper(cast("Any", each), **form) for each in own]
        self.stdin, self.stdout, self.stderr = own

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # another thread has waited for it
                self._await_end(timeout)
            with self._waiting:
                if self.returncode is None:
                    self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def _await_end(self, timeout: float | None) -> None:
        end, asked = os.pidfd_open(self.pid), select.poll()
        try:
            asked.register(end, select.POLLIN)
            if not asked.poll(None if timeout is None else 1000 * max(0.0, timeout)):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        finally:
            os.close(end)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002
        until = None if timeout is None else time.monotonic() + timeout
        said: dict[int, Any] = {}

        def write() -> None:
            if self.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    if input is not None:
                        self.stdin.write(input)
                    self.stdin.close()

        def read(number: int, stream: IO[Any]) -> None:
            with stream:
                said[number] = stream.read()

        threads = [threading.Thread(target=write, daemon=True)]
        for number, stream in ((1, self.stdout), (2, self.stderr)):
            if stream is not None:
                threads.append(threading.Thread(target=read, args=(number, stream), daemon=True))
        for each in threads:
            each.start()
        for each in threads:
            each.join(None if until is None else max(0.0, until - time.monotonic()))
            if each.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if until is None else until - time.monotonic())
        return said.get(1), said.get(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.wait()


def _opened(given: Stream, number: int, before: Sequence[int], theirs: contextlib.ExitStack) -> tuple[int, int | None]:
    """The process's end of a stream, which `theirs` closes if it is new, and ours of a pipe."""
    kept = None
    if given is None:
        return number, None
    if given == subprocess.STDOUT:
        return before[1], None
    if given == subprocess.DEVNULL:
        passed = os.open(os.devnull, os.O_RDWR)
    elif given == subprocess.PIPE:
        passed, kept = os.pipe() if number == 0 else os.pipe()[::-1]
    else:
        return (given if isinstance(given, int) else given.fileno()), None
    theirs.callback(os.close, passed)
    return passed, kept


def run(
    command: list[str], *, check: bool = False, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    given = options.pop("input", None)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.wait(), stdout, stderr)
    if check:
        done.check_returncode()
    return done


# In the process that forks --------------------------------------------------------------------------------------------


def _exactly(channel: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        if not (some := channel.recv(count - len(content))):
            raise EOFError("the process at the other end is gone")
        content += some
    return content


def _import_everything() -> None:
    import knnmt
    from knnmt.errors import MissingDependencyError
    from knnmt.index.faiss_index import load_faiss

    with contextlib.suppress(MissingDependencyError):
        load_faiss()

    for module in pkgutil.walk_packages(knnmt.__path__, "knnmt."):
        if not module.name.endswith("__main__") and "-" not in module.name:  # a compiled file for other processors
            importlib.import_module(module.name)


def _load_everything() -> None:
    """The shipped model and the command line, which all processes that are forked then share."""
    import torch
    import typer.main

    from knnmt.cli import app
    from support.loaded_once import ASKING, sharing

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # others would not live on in a forked process
    shared = sharing()
    shared("de-en", None, None, None, None)
    torch.set_num_threads(threads)
    for module in ASKING:
        sys.modules[module].load_engine = shared  # type: ignore[attr-defined]
    typer.main.get_command = functools.cache(typer.main.get_command)
    with contextlib.redirect_stdout(None):
        typer.main.get_command(app).main(["models"], standalone_mode=False)  # which imports the rest of typer


def _import_the_command_line() -> None:
    import knnmt.cli
    import knnmt.corpus.plain_text
    import knnmt.datastore.store  # noqa: F401

    if "torch" in sys.modules:
        raise ImportError("the command line has imported PyTorch before a verb needs it")


def _next_process(channel: socket.socket) -> dict[str, Any]:
    """Fork processes as they are asked for; returns in each of them, with what was asked, and never in this one."""
    while True:
        head, streams, _, _ = socket.recv_fds(channel, _LENGTH, 3)
        if not head:
            os._exit(0)
        request = json.loads(_exactly(channel, int.from_bytes(head)))
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            number = os.fork()
            if number == 0:
                channel.close()
                os.close(reading)
                os.close(writing)
                for wanted, stream in enumerate(streams):
                    os.dup2(stream, wanted)
                for stream in streams:
                    if stream > 2:
                        os.close(stream)
                return dict(request)
            os.write(writing, number.to_bytes(_LENGTH))
            os._exit(0)
        os.waitpid(between, 0)  # then the process is a child of whoever asked
        channel.sendall(os.read(reading, _LENGTH))
        for each in (reading, writing, *streams):
            os.close(each)


def _begin(request: dict[str, Any]) -> None:
    """What Python does before it runs a command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["own session"]:
        os.setsid()
    if request["own group"]:
        os.setpgid(0, 0)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    with contextlib.suppress(OSError):  # a closed one
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        file = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(file, "utf-8", errors, line_buffering=number == 2 or os.isatty(number)))


def _run(arguments: list[str]) -> None:
    sys.path[0] = ""
    if arguments[0] == "-W":
        warnings.simplefilter(arguments[1])  # type: ignore[arg-type]
        arguments = arguments[2:]
    elif arguments[0] == "-P":
        del sys.path[0], arguments[0]
    kind, what, *rest = arguments
    sys.argv = [kind, *rest]
    if kind == "-m":
        if not hasattr(sys.modules.get(what), "__path__"):
            sys.modules.pop(what, None)  # or `runpy` warns
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(what, "<string>", "exec"), vars(main))


def _leave(status: int) -> NoReturn:
    """As Python ends, but that modules are not taken down one by one, which takes half a second of PyTorch."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # Python knows what to say
    os._exit(status)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a terminal sends to all is for the tests
    gc.disable()  # nothing that is loaded here goes
    if sys.argv[2] == "light":
        _import_the_command_line()
    else:
        _import_everything()
        _load_everything()
    gc.freeze()
    gc.enable()
    _asked = _next_process(socket.socket(fileno=int(sys.argv[1])))
    _begin(_asked)
    try:
        _run(_asked["arguments"])
    except SystemExit as _exit:
        if _exit.code is not None and not isinstance(_exit.code, int):
            raise
        _leave(_exit.code or 0)
    _leave(0)
