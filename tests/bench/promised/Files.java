// SPDX-License-Identifier: GPL-2.0-only
// Send a file to a client again and again. Arguments: port, file, `stream` or `transferTo`.
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.nio.channels.FileChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

class Files {
	public static void main(String[] arguments) throws Exception {
		ServerSocketChannel listener = ServerSocketChannel.open();
		listener.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
		SocketChannel client = listener.accept();
		byte[] piece = new byte[65536];
		while (true) {
			if (arguments[2].equals("stream")) {
				try (FileInputStream file = new FileInputStream(arguments[1])) {
					for (int count; (count = file.read(piece)) > 0;)
						client.socket().getOutputStream().write(piece, 0, count);
				}
				continue;
			}
			try (FileChannel file = FileChannel.open(Path.of(arguments[1]))) {
				for (long sent = 0; sent < file.size();)
					sent += file.transferTo(sent, file.size() - sent, client);
			}
		}
	}
}
