// SPDX-License-Identifier: GPL-2.0-only
// Answers each request with a file, read in pieces. Arguments: port, file, bytes of a piece.
const [port, file, size] = process.argv.slice(2);
const options = { highWaterMark: Number(size) };
require("http").createServer((request, answer) => {
  require("fs").createReadStream(file, options).pipe(answer);
}).listen(Number(port), "127.0.0.1");
