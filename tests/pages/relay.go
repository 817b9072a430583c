// SPDX-License-Identifier: GPL-2.0-only
// relay.go - passes on what it receives, both ways: `relay PORT TO`. io.Copy() from one TCP connection to another uses splice(2).
package main

import (
	"io"
	"net"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			server, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
			if err != nil {
				panic(err)
			}
			go io.Copy(server, client)
			io.Copy(client, server)
		}()
	}
}
