"""Two network namespaces, joined by a relay of IP packets that harms them, for tests: Wire(harm, port, ready).

Its ends are tun interfaces, 10.89.0.1 and 10.89.0.2. `port` is the rendezvous' of the job; all other TCP is data of its
ranks. For TCP itself to heal, from the first packet on, in both directions:
  delay       every packet is held for 200 ms
  slow        100 kbit/s, and a queue of 2 s
  reorder     every 5th packet comes behind the next three
  duplicate   every packet comes twice
  drop        every 20th packet is lost
  flip        a bit of every 20th packet is changed
Beyond that, once `ready()` is true:
  reset       each data connection is reset (RST to both ends)
  half_open   data packets from 10.89.0.1 are lost
  black_hole  data packets are lost, those of the rendezvous are not
  cut         all packets are lost
"""
import fcntl
import heapq
import os
import select
import socket
import struct
import subprocess
import threading
import time

HEALED = ('none', 'delay', 'slow', 'reorder', 'duplicate', 'drop', 'flip')
ADDRESSES = ('10.89.0.1', '10.89.0.2')
SET_INTERFACE, TUN_WITHOUT_HEADER = 0x400454ca, 0x1001


def sum_of(data):
    """The Internet checksum (RFC 1071)."""
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def tcp_of(packet):
    """Where the TCP header of an IPv4 packet begins, None: it has none."""
    return (packet[0] & 15) * 4 if packet[0] >> 4 == 4 and packet[9] == socket.IPPROTO_TCP else None


def reset(source, sink, ports, number, acknowledged):
    """An IPv4 packet with a TCP RST of that sequence number."""
    tcp = struct.pack('!HHIIBBHHH', *ports, number, acknowledged, 5 << 4, 0x14, 0, 0, 0)
    total = sum_of(source + sink + struct.pack('!HH', socket.IPPROTO_TCP, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack('!H', total) + tcp[18:]
    head = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + source + sink
    return head[:10] + struct.pack('!H', sum_of(head)) + head[12:] + tcp


class Wire:
    def __init__(self, harm, port, ready):
        self.harm, self.port, self.ready = harm, port, ready
        self.struck = time.monotonic() if harm in HEALED else None
        self.over, self.waiting, self.count = False, [], 0
        self.free, self.held, self.behind = [0.0, 0.0], [None, None], [0, 0]
        self.spaces, self.ends = [], []
        for end, address in enumerate(ADDRESSES):
            space = subprocess.Popen(['unshare', '--net', 'sh', '-c', 'echo; exec sleep 3600'],
                                     stdout=subprocess.PIPE)
            space.stdout.readline()  # it has its namespace
            self.spaces.append(space)
            tun = os.open('/dev/net/tun', os.O_RDWR)
            name = f'wire{end}'
            fcntl.ioctl(tun, SET_INTERFACE, struct.pack('16sH22x', name.encode(), TUN_WITHOUT_HEADER))
            self.ends.append(tun)
            subprocess.run(['ip', 'link', 'set', name, 'netns', str(space.pid)], check=True)
            for words in (['addr', 'add', address + '/24', 'dev', name], ['link', 'set', name, 'up'],
                          ['link', 'set', 'lo', 'up']):
                subprocess.run(self.inside(end) + ['ip'] + words, check=True)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def inside(self, end):
        """What goes before a command to run it in that end's namespace."""
        return ['nsenter', '--target', str(self.spaces[end].pid), '--net']

    def close(self):
        self.over = True
        self.thread.join()
        for space in self.spaces:
            space.kill()
            space.wait()
            space.stdout.close()
        for tun in self.ends:
            os.close(tun)

    def run(self):
        while not self.over:
            now = time.monotonic()
            while self.waiting and self.waiting[0][0] <= now:
                _, _, sink, packet = heapq.heappop(self.waiting)
                self.write(sink, packet)
            left = min(0.05, self.waiting[0][0] - now) if self.waiting else 0.05
            for tun in select.select(self.ends, [], [], max(0.0, left))[0]:
                self.pass_on(self.ends.index(tun), os.read(tun, 65536))

    def write(self, sink, packet):
        try:
            os.write(self.ends[sink], packet)
        except OSError:  # the interface is not up yet, or no more
            pass

    def later(self, seconds, sink, packet):
        self.count += 1
        heapq.heappush(self.waiting, (time.monotonic() + seconds, self.count, sink, packet))

    def pass_on(self, source, packet):
        tcp = tcp_of(packet)
        if tcp is None:
            return
        sink = 1 - source
        ports = struct.unpack_from('!HH', packet, tcp)
        is_data = self.port not in ports
        if self.struck is None and self.ready():
            self.struck = time.monotonic()
        if self.harm in HEALED:
            return self.disturb(source, sink, packet)
        if self.struck and self.harm == 'cut':
            return
        if self.struck and is_data and (self.harm == 'black_hole' or self.harm == 'half_open' and source == 0):
            return
        if self.struck and is_data and self.harm == 'reset':
            number, acknowledged = struct.unpack_from('!II', packet, tcp + 4)
            here, there = packet[12:16], packet[16:20]
            self.write(sink, reset(here, there, ports, number, acknowledged))
            self.write(source, reset(there, here, ports[::-1], acknowledged, number))
            return
        self.write(sink, packet)

    def disturb(self, source, sink, packet):
        self.count += 1
        if self.harm == 'delay':
            return self.later(0.2, sink, packet)
        if self.harm == 'slow':
            now = time.monotonic()
            ends = max(now, self.free[sink]) + len(packet) * 8 / 100_000
            if ends - now > 2:
                return
            self.free[sink] = ends
            return self.later(ends - now, sink, packet)
        if self.harm == 'reorder':
            if self.held[sink] is None and self.count % 5 == 0:
                self.held[sink], self.behind[sink] = packet, 3
                return
            self.write(sink, packet)
            self.behind[sink] -= 1
            if self.held[sink] is not None and self.behind[sink] == 0:
                self.write(sink, self.held[sink])
                self.held[sink] = None
            return
        if self.harm == 'drop' and self.count % 20 == 0:
            return
        if self.harm == 'flip' and self.count % 20 == 0:
            at = len(packet) - 1  # of the header where the packet has no data
            packet = packet[:at] + bytes([packet[at] ^ 4])
        self.write(sink, packet)
        if self.harm == 'duplicate':
            self.write(sink, packet)
