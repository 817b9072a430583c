# SPDX-License-Identifier: GPL-2.0-only
"""Send MESSAGES messages of BYTES bytes over TCP to a thread of this program."""

import socket
import threading

MESSAGES, BYTES = 2000, 65536
listener = socket.create_server(("127.0.0.1", 0))


def read_all() -> None:
    connection, _ = listener.accept()
    while connection.recv(1 << 20):
        pass


reader = threading.Thread(target=read_all)
reader.start()
with socket.create_connection(listener.getsockname()) as sender:
    for _ in range(MESSAGES):
        sender.sendall(bytes(BYTES))
reader.join()
