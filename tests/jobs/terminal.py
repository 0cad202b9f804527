"""terminal.py COLUMNS COMMAND...: runs a command in a terminal and prints what stands on it in the end, then one of the
progress lines that were removed. Fails where such a line is wider than the terminal, or text stands on its row."""
import fcntl, os, pty, re, struct, sys, termios

columns, command = int(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.execvp(command[0], command)
written = b""
while True:
    try:
        got = os.read(terminal, 1 << 16)
    except OSError:  # all who had it open have ended
        break
    if not got:
        break
    written += got
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
removed = []
for row in written.decode().split("\r\n"):
    *before, last = row.split("\r\033[K")
    if before and before[0]:
        sys.exit(f"text before a progress line: {row!r}")
    removed += [line for line in before if line]
    if re.search(r"step \d+ of", last):
        sys.exit(f"a progress line that stays: {row!r}")
    if "\r" in last or "\033" in last:
        sys.exit(f"a torn line: {row!r}")
    print(last)
if any(len(line) >= columns for line in removed):
    sys.exit(f"wider than the terminal: {max(removed, key=len)!r}")
if removed:
    print("progress:", removed[-1])
sys.exit(code)
