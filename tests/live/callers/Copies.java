// SPDX-License-Identifier: GPL-2.0-only
public class Copies {
    static byte[] from = new byte[1 << 17], to = new byte[1 << 17];
    static void often() { System.arraycopy(from, 0, to, 0, from.length); }
    static void seldom() { System.arraycopy(from, 0, to, 0, from.length); }
    public static void main(String[] words) {
        long until = System.nanoTime() + Long.parseLong(words[0]) * 1_000_000_000L;
        while (System.nanoTime() < until)
            for (int i = 0; i < 50; i++) { often(); often(); often(); seldom(); }
    }
}
