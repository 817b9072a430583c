# SPDX-License-Identifier: GPL-2.0-only
"""A record of a run over kTLS connections, made from a record without TLS."""

import copy
from typing import Any

Record = dict[str, Any]
# TLS 1.3 (RFC 8446, 5.2): header, content type, authentication tag.
RECORD_OVERHEAD_BYTES = 5 + 1 + 16
RECORDS_PER_MESSAGE = 4


def with_tls(raw: Record) -> Record:
    """Return a record of the same traffic over kTLS, with four TLS records for each message of 64 KiB.

    The hook of copies to the receiver counts no calls.
    """
    record = copy.deepcopy(raw)
    record["workload"]["tls"] = "1.3"
    for segment in record["run"]["segments"]:
        sender = segment["sides"]["sender"]
        sender["tls_records"] = sender["messages"] * RECORDS_PER_MESSAGE
    for side, report in record["traffic"].items():
        report["tls"] = {
            "version": "1.3",
            "cipher": "AES-GCM-128",
            "record_overhead_bytes": RECORD_OVERHEAD_BYTES,
            "software_connections": 1,
            "device_connections": 0,
        }
        records = report["messages"] * RECORDS_PER_MESSAGE
        counted = "bytes_acked" if side == "sender" else "bytes_received"
        report["threads"][0]["tcp_info"][counted] += records * RECORD_OVERHEAD_BYTES
        report.update({"tls_records": records} if side == "sender" else {"mapped": None})
    for row in record["bytes"]:
        if row["hook"] == "copy_out_bytes":
            row |= {"bytes": 0, "calls": 0}
    return record
