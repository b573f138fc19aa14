"""What a script runs in the place of `sfnode` (`forked_program`): imports nothing but what Python has at hand."""

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(f"\0{sys.argv[1]}")
    message = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [message], [0, 1, 2])
    pid = int(server.recv(16))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: os.kill(pid, received))
    code = int(server.recv(16))
sys.exit(code if code >= 0 else 128 - code)
