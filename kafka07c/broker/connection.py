"""One connection, from its first request to its end: frames in, answers out, and the scripted faults in between."""

from __future__ import annotations

import socket

from kafka07c.broker.faults import Faults
from kafka07c.broker.handlers import Handlers, describe
from kafka07c.broker.stats import BrokerStats
from kafka07c.framing import FrameDecoder
from kafka07c.protocol import decode_request

__all__ = ["serve"]


def serve(
    sock: socket.socket, handlers: Handlers, faults: Faults, stats: BrokerStats, max_request_bytes: int
) -> None:
    """Answer the requests that come in through ``sock``, in order, until either side ends the connection.

    Returns for the connection to be closed; so does every exception: ProtocolError for what is no request or is larger
    than ``max_request_bytes``, OSError where the peer has gone, anything else from a request that 0.7.2 refuses so.
    """
    decoder = FrameDecoder(max_request_bytes)
    while True:
        frame = _receive(sock, decoder, stats)
        if frame is None:
            return
        request = decode_request(frame)
        script = faults.take(*describe(request))
        if script.close_before:
            return
        if script.stall is not None:
            script.stall.hold()
        answer = handlers.handle(request)
        if answer is not None:
            answer.send(sock, script.cut_at_byte)
            stats.bytes_written.inc(answer.size if script.cut_at_byte is None else script.cut_at_byte)
            if answer.then_close:
                return
        if script.close_after or script.cut_at_byte is not None:
            return


def _receive(sock: socket.socket, decoder: FrameDecoder, stats: BrokerStats) -> memoryview | None:
    """The next frame; None at the end of the stream, be it between two frames or inside one."""
    while True:
        count = sock.recv_into(decoder.buffer())
        if not count:
            return None
        stats.bytes_read.inc(count)
        frame = decoder.advance(count)
        if frame is not None:
            return frame
