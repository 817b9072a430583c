// SPDX-License-Identifier: GPL-2.0-only
use std::hint::black_box;
use std::time::{Duration, Instant};
#[inline(never)]
fn often(to: &mut [u8], from: &[u8]) { to.copy_from_slice(from); black_box(&to); }
#[inline(never)]
fn seldom(to: &mut [u8], from: &[u8]) { to.copy_from_slice(from); black_box(from); }
fn main() {
    let from = black_box(vec![1u8; 1 << 17]);
    let mut to = black_box(vec![2u8; 1 << 17]);
    let seconds = std::env::args().nth(1).unwrap().parse().unwrap();
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        for _ in 0..50 {
            often(&mut to, &from);
            often(&mut to, &from);
            often(&mut to, &from);
            seldom(&mut to, &from);
        }
    }
}
