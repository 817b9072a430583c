// SPDX-License-Identifier: GPL-2.0-only
// files.go - sends a file to whoever connects, again and again, by io.Copy().
//
// files-go PORT FILE plain|wrapped|CERTIFICATE
//
// plain: from the file to the connection; wrapped: to a struct that has it as an io.Writer; else over TLS.
package main

import (
	"crypto/tls"
	"io"
	"net"
	"os"
)

type onlyWriter struct{ io.Writer }

func send(to io.Writer, path string) {
	for {
		file, err := os.Open(path)
		if err != nil {
			panic(err)
		}
		if _, err := io.Copy(to, file); err != nil {
			return
		}
		file.Close()
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	if how := os.Args[3]; how != "plain" && how != "wrapped" {
		certificate, err := tls.LoadX509KeyPair(how, how)
		if err != nil {
			panic(err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}})
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		if os.Args[3] == "wrapped" {
			go send(onlyWriter{conn}, os.Args[2])
		} else {
			go send(conn, os.Args[2])
		}
	}
}
