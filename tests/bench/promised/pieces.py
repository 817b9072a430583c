# SPDX-License-Identifier: GPL-2.0-only
"""Send zeros to each client for ever, in pieces. Arguments: port, bytes of a piece."""

import socket
import sys

port, size = map(int, sys.argv[1:])
piece = bytes(size)
listener = socket.create_server(("127.0.0.1", port))
connection, _ = listener.accept()
while True:
    connection.sendall(piece)
