"""A relay of TCP that harms what goes through it, for tests: Relay(port of the server, harm, ...).

A harm begins when `after` bytes have gone in its direction ('up': to the server, 'down': from it) of the first
connection that sends more than a hello:
  none        nothing
  cut         both connections are closed (FIN)
  reset       both are reset (RST)
  half_open   nothing goes on in any direction, and nothing is closed
  drop        the bytes of one piece are left out
  flip        a bit of one byte is changed
  duplicate   a piece is sent twice
  reorder     a piece is sent behind the next one
  delay       every piece is held for 200 ms
  slow        100 kbit/s
A piece is what one read gives, at most 4 KiB.
"""
import select
import socket
import struct
import threading
import time


class Relay:
    def __init__(self, port, harm, after=0, direction='up'):
        self.port_of_server, self.harm, self.after, self.direction = port, harm, after, direction
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.struck = harm in ('none', 'delay', 'slow')
        self.lock = threading.Lock()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(('127.0.0.1', self.port_of_server), timeout=5)
            except OSError:
                client.close()  # the server is not up yet: the client comes again
                continue
            server.settimeout(None)
            state = {'frozen': False, 'closed': False}
            for source, sink, direction in ((client, server, 'up'), (server, client, 'down')):
                threading.Thread(target=self.pump, args=(source, sink, direction, state), daemon=True).start()

    def end(self, *sockets, reset=False):
        for one in sockets:
            try:
                if reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                else:
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            except OSError:
                pass

    def pump(self, source, sink, direction, state):
        passed, held, slow_until = 0, None, 0.0
        try:
            while True:
                if state['frozen']:
                    time.sleep(0.05)
                    continue
                if not select.select([source], [], [], 0.05)[0]:
                    continue
                piece = source.recv(4096)
                if not piece:
                    break
                if state['frozen']:
                    continue
                if self.harm == 'delay':
                    time.sleep(0.2)
                if self.harm == 'slow':
                    slow_until = max(slow_until, time.monotonic()) + len(piece) * 8 / 100_000
                    time.sleep(max(0.0, slow_until - time.monotonic()))
                with self.lock:
                    strike = not self.struck and direction == self.direction and passed + len(piece) > self.after
                    self.struck |= strike
                passed += len(piece)
                if strike and self.harm in ('cut', 'reset'):
                    self.end(source, sink, reset=self.harm == 'reset')
                    return
                if strike and self.harm == 'half_open':
                    state['frozen'] = True
                    continue
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
        if not state['frozen']:
            self.end(source, sink)
