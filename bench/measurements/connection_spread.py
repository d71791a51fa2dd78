"""How evenly connections spread over processes, by three ways to share one port.

`python -m bench.measurements.connection_spread` prints for each way how many of 40 connections the
busiest process holds, and the time from `connect` to the first byte of its answer.

- reuseport: each process has a listening socket of its own (SO_REUSEPORT), and the kernel chooses.
- shared: all processes accept from one listening socket.
- handed: one process accepts, and hands the connections over in turn.
"""

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

CONNECTIONS = 40
WAYS = ("reuseport", "shared", "handed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    print("way        processes  arrival   busiest of 40: median, worst   first byte: p50, p95 ms")
    for count in options.processes:
        for way in WAYS:
            for arrival in ("at once", "in turn"):
                _report(way, count, arrival, options.rounds)


def _report(way: str, processes: int, arrival: str, rounds: int) -> None:
    busiest: list[int] = []
    times_ms: list[float] = []
    for _ in range(rounds):
        holders, round_ms = _measure(way, processes, is_burst=arrival == "at once")
        busiest.append(max(Counter(holders).values()))
        times_ms += round_ms
    times_ms.sort()
    p95 = times_ms[int(0.95 * len(times_ms))]
    print(
        f"{way:10} {processes:9}  {arrival}   {statistics.median(busiest):14.0f}"
        f"  {max(busiest):5}   {statistics.median(times_ms):20.2f}  {p95:5.2f}"
    )


def _measure(
    way: str, processes: int, *, is_burst: bool
) -> tuple[Sequence[bytes], Sequence[float]]:
    """Returns which process answered each connection, and the times in ms."""
    first = _listening(0)
    port = first.getsockname()[1]
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(processes)]
    context = multiprocessing.get_context("fork")
    children = []
    for number in range(processes):
        own = _listening(port) if way == "reuseport" else first
        source = pairs[number][1] if way == "handed" else own
        children.append(context.Process(target=_serve, args=(source, number, way == "handed")))
    if way == "reuseport":
        first.close()  # it would get a share of the connections
    if way == "handed":
        children.append(context.Process(target=_hand_over, args=(first, [a for a, _ in pairs])))
    for child in children:
        child.start()
    try:
        return asyncio.run(_connect(port, is_burst=is_burst))
    finally:
        for child in children:
            child.kill()
            child.join()
        for pair in pairs:
            for end in pair:
                end.close()
        first.close()


def _listening(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    listening.setblocking(False)
    return listening


def _serve(source: socket.socket, number: int, is_handed: bool) -> None:
    """Accepts connections in an event loop and answers each with the number of this process."""
    held = []

    def accept() -> None:
        for _ in range(64):
            with suppress(BlockingIOError):
                if is_handed:
                    _, [descriptor], *_ = socket.recv_fds(source, 16, 1)
                    connection = socket.socket(fileno=descriptor)
                else:
                    connection, _ = source.accept()
                connection.send(b"%d" % number)
                held.append(connection)
                continue
            return

    source.setblocking(False)
    loop = asyncio.new_event_loop()
    loop.add_reader(source, accept)
    loop.run_forever()


def _hand_over(listening: socket.socket, processes: Sequence[socket.socket]) -> None:
    turn = 0

    def accept() -> None:
        nonlocal turn
        for _ in range(64):
            with suppress(BlockingIOError):
                connection, _ = listening.accept()
                socket.send_fds(processes[turn % len(processes)], [b"c"], [connection.fileno()])
                connection.close()
                turn += 1
                continue
            return

    loop = asyncio.new_event_loop()
    loop.add_reader(listening, accept)
    loop.run_forever()


async def _connect(port: int, *, is_burst: bool) -> tuple[Sequence[bytes], Sequence[float]]:
    held: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[bytes, float]:
        began = time.perf_counter()
        while True:
            with suppress(ConnectionRefusedError):  # the processes have only begun
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
        held.append(writer)
        return await reader.read(1), 1000 * (time.perf_counter() - began)

    if is_burst:
        answers = await asyncio.gather(*(connect() for _ in range(CONNECTIONS)))
    else:
        answers = [await connect() for _ in range(CONNECTIONS)]
    for writer in held:
        writer.close()
    return [answer for answer, _ in answers], [ms for _, ms in answers]


if __name__ == "__main__":
    main()
