-- SPDX-License-Identifier: GPL-2.0
-- wrk --script: after the load one line each of its histogram: MICROSECONDS COUNT (wrk_latency.py).
function done(summary, latency, requests)
	io.write(string.format("histogram %d %d\n", summary.requests, summary.duration))
	for i = 1, #latency do
		local microseconds, count = latency(i)
		io.write(string.format("%d %d\n", microseconds, count))
	end
end
