# SPDX-License-Identifier: GPL-2.0-only
"""Retrieve the file of an FTP server again and again. Argument: port."""

import ftplib
import sys

with ftplib.FTP() as client:
    client.connect("127.0.0.1", int(sys.argv[1]))
    client.login()
    while True:
        client.retrbinary("RETR file", lambda _: None, blocksize=1 << 20)
