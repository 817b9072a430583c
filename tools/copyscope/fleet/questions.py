"""What is asked of a fleet's records most: a name, what it answers, and the SQL. Pure.

`runs` has a line for each record, `rows` a line for each row of its ledger (lines.py), both with host and
date. Only valid runs count; of each host and program the newest, but where time is the question.
"""

from dataclasses import dataclass

NEWEST = """\
WITH newest AS (
  SELECT * FROM runs WHERE valid
  QUALIFY row_number() OVER (PARTITION BY host, subject, size_bytes, path ORDER BY started_at DESC) = 1
)
"""
# What one KiB costs where it is copied; an account may stand in several rows of a run.
COST = """\
WITH copies AS (
  SELECT host, started_at, run, {by}, subject, size_bytes, name,
    sum(cpu_ns) / (sum(bytes) / 1024) AS ns_per_copied_kib
  FROM rows
  WHERE valid AND kind = 'account' AND name IN ('file_read', 'gather', 'copy_in', 'deferred', 'silent',
    'copy_out')
  GROUP BY ALL HAVING sum(bytes) > 0 AND count(cpu_ns) > 0
)
SELECT {by}, name AS copy, subject, size_bytes, count(DISTINCT host) AS hosts, count(*) AS runs,
  round(median(ns_per_copied_kib), 1) AS "ns per copied KiB",
  round(quantile_cont(ns_per_copied_kib, 0.25), 1) AS "a quarter below",
  round(quantile_cont(ns_per_copied_kib, 0.75), 1) AS "a quarter above"
FROM copies GROUP BY ALL ORDER BY copy, subject, size_bytes, "ns per copied KiB"
"""


@dataclass(frozen=True)
class Question:
    """`text` is one sentence."""

    text: str
    sql: str


QUESTIONS = {
    "who-copies": Question(
        "Which hosts copy most, and how often was a zero-copy send copied after all?",
        NEWEST
        + """\
SELECT host, subject, kernel, nic, round(copied_bytes / delivered_bytes, 2) AS "copies of each byte",
  round(100 * zero_copy_copied_share, 1) AS "zero-copy sends copied %", cause
FROM newest
ORDER BY zero_copy_copied_share DESC NULLS LAST, "copies of each byte" DESC NULLS LAST, host, subject
""",
    ),
    "cost-by-kernel": Question("What does a copy cost, by kernel?", COST.format(by="kernel")),
    "cost-by-nic": Question("What does a copy cost, by the driver of the NIC?", COST.format(by="nic")),
    "since-when": Question(
        "When did each host start or stop copying its zero-copy sends, and what else changed then?",
        """\
WITH told AS (
  SELECT host, subject, path, started_at, kernel, nic, zero_copy_copied_share > 0 AS copies
  FROM runs WHERE valid AND zero_copy_copied_share IS NOT NULL
), changed AS (
  SELECT *, lag(copies) OVER each AS before, lag(kernel) OVER each AS kernel_before,
    lag(nic) OVER each AS nic_before, lag(started_at) OVER each AS last_seen_otherwise
  FROM told WINDOW each AS (PARTITION BY host, subject, path ORDER BY started_at)
)
SELECT host, subject, path, CASE WHEN copies THEN 'copied' ELSE 'not copied' END AS "zero-copy sends are",
  started_at AS since, CASE WHEN before IS NULL THEN NULL ELSE last_seen_otherwise END AS "last otherwise",
  concat_ws('; ', CASE WHEN before IS NULL THEN 'no record from before' END,
    CASE WHEN kernel <> kernel_before THEN 'kernel ' || kernel_before || ' -> ' || kernel END,
    CASE WHEN nic <> nic_before THEN 'nic ' || nic_before || ' -> ' || nic END) AS "changed with it"
FROM changed WHERE before IS NULL OR copies <> before
QUALIFY row_number() OVER (PARTITION BY host, subject, path ORDER BY started_at DESC) = 1
ORDER BY since DESC, host, subject
""",
    ),
    "who-gains": Question(
        "Which watched programs would save most if they copied less, and what stops them?",
        NEWEST
        + """\
SELECT host, subject, kernel, round(100 * save_share, 1) AS "at most % of its CPU time",
  round(100 * save_share_low, 1) AS "low end (95 %)",
  coalesce(nullif(stoppers, ''), 'nothing') AS "stopped by"
FROM newest WHERE watched AND save_share IS NOT NULL
ORDER BY stoppers <> '', save_share DESC, host, subject
""",
    ),
}
