# SPDX-License-Identifier: GPL-2.0-only
"""Send a file to a client again and again. Arguments: port, file, `read` or `sendfile`."""

import os
import socket
import sys
from pathlib import Path

port, file, way = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", int(port)))
connection, _ = listener.accept()
with Path(file).open("rb", buffering=0) as source:
    size = os.fstat(source.fileno()).st_size
    while True:
        source.seek(0)
        if way == "sendfile":
            connection.sendfile(source, 0, size)
        else:
            while piece := source.read(65536):
                connection.sendall(piece)
