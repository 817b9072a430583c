# SPDX-License-Identifier: GPL-2.0-only
"""Get the file of an SMB server again and again. Argument: port."""

import subprocess
import sys

command = ["smbclient", "//127.0.0.1/files", "-N", "-p", sys.argv[1], "-c", "get file /dev/null"]
while True:
    subprocess.run(command, check=True, capture_output=True)
