# SPDX-License-Identifier: GPL-2.0-only
"""Read from a port for ever. Argument: port."""

import socket
import sys

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
buffer = bytearray(1 << 20)
while connection.recv_into(buffer):
    pass
