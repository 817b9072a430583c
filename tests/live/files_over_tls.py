# SPDX-License-Identifier: GPL-2.0-only
"""Send a file to each client, repeatedly, by loop.sendfile(): files_over_tls.py PORT FILE CERTIFICATE|-."""

import asyncio
import ssl
import sys
from pathlib import Path


async def main(port: int, file: Path, certificate: str) -> None:
    context = None
    if certificate != "-":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)

    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with file.open("rb") as opened:
            while True:
                opened.seek(0)
                await asyncio.get_running_loop().sendfile(writer.transport, opened)

    server = await asyncio.start_server(send, "127.0.0.1", port, ssl=context)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
