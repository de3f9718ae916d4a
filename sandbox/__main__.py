"""`python -m sandbox`: both servers in one process, until SIGINT or SIGTERM."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from sandbox import smtp_server
from sandbox.gateway import CHANNELS, Gateway
from sandbox.http_server import HttpServer


def _rate(text: str) -> tuple[str, int]:
    channel, _, limit = text.partition("=")
    if channel.lower() not in CHANNELS or not limit.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not CHANNEL=CALLS_A_SECOND, as in SMS=500")
    return channel.lower(), int(limit)


def parser() -> argparse.ArgumentParser:
    """Return the command line of the simulator."""
    command = argparse.ArgumentParser(
        prog="python -m sandbox",
        description="A provider simulator: HTTP gateway for SMS and push, SMTP server, outbox.",
        epilog="Example: python -m sandbox --http-port 8025 --smtp-port 2525 --rate SMS=500 --latency-ms 20",
    )
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument("--http-port", type=int, default=8025, help="0 takes a free one (default: %(default)s)")
    command.add_argument("--smtp-port", type=int, default=2525, help="0 takes a free one (default: %(default)s)")
    command.add_argument(
        "--rate", type=_rate, action="append", default=[], metavar="CHANNEL=N", help="limit of calls a second"
    )
    command.add_argument("--latency-ms", type=float, default=0.0, help="wait before every answer")
    command.add_argument("--token", default="", help="bearer token that POST /sms and /push must carry")
    return command


async def serve(arguments: argparse.Namespace) -> None:
    """Run both servers until a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    gateway = Gateway(limits=dict(arguments.rate), latency_ms=arguments.latency_ms)
    http = HttpServer(gateway, arguments.token)
    http_port = await http.listen(arguments.host, arguments.http_port)
    mail, smtp_port = await smtp_server.listen(gateway, arguments.host, arguments.smtp_port)
    host = arguments.host
    sys.stdout.write(f"sandbox.ready http=http://{host}:{http_port} smtp=smtp://{host}:{smtp_port}\n")
    sys.stdout.flush()
    await stop.wait()
    mail.close()
    http.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, serve, and return the exit code."""
    arguments = parser().parse_args(argv)
    try:
        asyncio.run(serve(arguments))
    except OSError as error:
        sys.stderr.write(f"sandbox: cannot listen: {error}. Choose other ports: --http-port, --smtp-port.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
