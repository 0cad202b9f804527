"""What a command needs, for the job tests that hold it against a bound."""
import os
import time


def measured(command, log):
    """Runs a command with its output in a file: its wait status, its seconds, the most KiB that it had resident."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execvp(command[0], command)
    _, status, used = os.wait4(child, 0)
    return status, time.monotonic() - begin, used.ru_maxrss
