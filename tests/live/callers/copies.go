// SPDX-License-Identifier: GPL-2.0-only
package main

import (
	"os"
	"strconv"
	"time"
)

var to, from [1 << 17]byte

//go:noinline
func often() { copy(to[:], from[:]) }

//go:noinline
func seldom() { copy(to[:], from[:]) }

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	for time.Now().Before(until) {
		for i := 0; i < 50; i++ {
			often()
			often()
			often()
			seldom()
		}
	}
}
