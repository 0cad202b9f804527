"""A relay of TCP that harms what goes through it, for tests: Relay(host, port of the server, harm, ...).

A harm begins, once, when `after` bytes have gone in its direction ('up': to the server, 'down': from it) of any one
connection, a piece has at least `least` bytes, and `ready()` is true:
  none        nothing
  cut         both connections are closed (FIN)
  reset       both are reset (RST)
  half_open   nothing goes on in any direction, and nothing is closed; new connections work
  gone        as half_open, new connections, too
  drop        the bytes of one piece are left out
  flip        a bit of one byte is changed
  duplicate   a piece is sent twice
  reorder     a piece is sent behind the next one
  delay       every piece of its direction is held for 200 ms
  slow        its direction has 100 kbit/s
A piece is what one read gives, at most 4 KiB.
"""
import select
import socket
import struct
import threading
import time

ALWAYS = ('none', 'delay', 'slow')


class Relay:
    def __init__(self, host, port, harm, after=0, direction='up', ready=lambda: True, least=0):
        self.server, self.harm, self.after, self.direction, self.ready = (host, port), harm, after, direction, ready
        self.listener = socket.create_server((host, 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.struck = time.monotonic() if harm in ALWAYS else None
        self.least = least
        self.lock, self.over = threading.Lock(), False
        self.kept = []  # sockets: one that nobody holds would be closed
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self):
        """Ends the listener; what is open stays as it is."""
        self.over = True
        self.listener.close()

    def strikes(self, passed, piece, direction):
        with self.lock:
            now = (self.struck is None and self.direction in (direction, 'both') and passed > self.after and
                   len(piece) >= self.least and self.ready())
            if now:
                self.struck = time.monotonic()
            return now

    def serve(self):
        while not self.over:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.harm == 'gone' and self.struck:
                self.kept.append(client)
                continue
            try:
                server = socket.create_connection(self.server, 5)
            except OSError:
                client.close()  # the server is not up yet: the client comes again
                continue
            server.settimeout(None)
            self.kept += [client, server]
            state = {'frozen': False}
            for source, sink, direction in ((client, server, 'up'), (server, client, 'down')):
                threading.Thread(target=self.pump, args=(source, sink, direction, state), daemon=True).start()

    def end(self, *sockets, reset=False):
        for one in sockets:
            try:
                if reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                else:
                    one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def pump(self, source, sink, direction, state):
        passed, held, slow_until = 0, None, 0.0

        def frozen():
            return state['frozen'] or self.harm == 'gone' and self.struck

        try:
            while not frozen():
                if not select.select([source], [], [], 0.05)[0]:
                    continue
                piece = source.recv(4096)
                if not piece:
                    break
                if frozen():
                    return
                if self.harm == 'delay' and self.direction in (direction, 'both'):
                    time.sleep(0.2)
                if self.harm == 'slow' and self.direction in (direction, 'both'):
                    slow_until = max(slow_until, time.monotonic()) + len(piece) * 8 / 100_000
                    time.sleep(max(0.0, slow_until - time.monotonic()))
                passed += len(piece)
                strike = self.strikes(passed, piece, direction)
                if strike and self.harm in ('cut', 'reset'):
                    self.end(source, sink, reset=self.harm == 'reset')
                    return
                if strike and self.harm in ('half_open', 'gone'):
                    state['frozen'] = True
                    return
                if strike and self.harm == 'drop':
                    continue
                if strike and self.harm == 'reorder':
                    held = piece
                    continue
                if strike and self.harm == 'flip':
                    at = len(piece) // 2
                    piece = piece[:at] + bytes([piece[at] ^ 4]) + piece[at + 1:]
                sink.sendall(piece * 2 if strike and self.harm == 'duplicate' else piece)
                if held is not None:
                    sink.sendall(held)
                    held = None
        except (OSError, ValueError):  # closed by the other direction
            pass
        if not frozen():
            self.end(source, sink)
