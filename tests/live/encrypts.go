// SPDX-License-Identifier: GPL-2.0-only
// encrypts.go - encrypts by Go's crypto for half of its time, as encrypts.c does by libcrypto.
//
// encrypts-go gcm SECONDS REPORT
//
// It writes {"copy_ns": ..., "other_ns": ...}, CPU time of its thread, to the file REPORT.
package main

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"math/rand"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const recordBytes = 16 << 10

var sum uint64 = 1

func threadTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(1 /* RUSAGE_THREAD */, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func calculate() {
	x := sum
	for i := 0; i < 5000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sum = x
}

func takeTurn(work func(), turn time.Duration) time.Duration {
	began := threadTime()
	for {
		for i := 0; i < 16; i++ {
			work()
		}
		if spent := threadTime() - began; spent >= turn {
			return spent
		}
	}
}

func main() {
	runtime.LockOSThread()
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	if err != nil {
		panic(err)
	}
	block, _ := aes.NewCipher(make([]byte, 16))
	gcm, _ := cipher.NewGCM(block)
	from, to, nonce := make([]byte, recordBytes), make([]byte, 0, recordBytes+64), make([]byte, 12)
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	conn, err := net.Dial("udp", sink.LocalAddr().String())
	if err != nil {
		panic(err)
	}
	var encrypting, other time.Duration
	until := time.Now().Add(time.Duration(seconds * 1e9))
	for time.Now().Before(until) {
		turn := time.Duration(rand.Intn(1e6))
		encrypting += takeTurn(func() { gcm.Seal(to, nonce, from, nil) }, turn)
		other += takeTurn(calculate, turn)
		conn.Write(from[:1200])
	}
	report := fmt.Sprintf("{\"copy_ns\": %d, \"other_ns\": %d}\n", encrypting, other)
	if err := os.WriteFile(os.Args[3], []byte(report), 0o600); err != nil {
		panic(err)
	}
}
