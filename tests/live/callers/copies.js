// SPDX-License-Identifier: GPL-2.0-only
const from = new Uint8Array(1 << 17), to = new Uint8Array(1 << 17);
function often() { to.set(from); }
function seldom() { to.set(from); }
const until = Date.now() + 1000 * process.argv[2];
while (Date.now() < until)
  for (let i = 0; i < 50; i++) { often(); often(); often(); seldom(); }
